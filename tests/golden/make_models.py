#!/usr/bin/env python3
"""Makes tests/golden/models.safetensors: three SGD steps of seven small-image networks, computed by PyTorch in f64.

    python3 tests/golden/make_models.py [--check]

The networks are too large to commit, so both sides compute the parameters, images and labels from formulas.

Random numbers   U(stream, i) = fri_uniform_f32(v[i % 4]), v = fri_philox(seed, stream, i / 4): src/base/philox.h
                 S(stream, i) = 2 * U(stream, i) - 1: uniform in [-1, 1), exact in f32
Parameters       parameter number p (0, 1, ...) in the order of model.named_parameters(); i counts its elements in
                 frugal's layout (convolution [K, R, S, C], linear [out, in]). All in f64, rounded to f32 once:
                   rank 4 or 2      sqrt(3 / fan_in) * S(p, i), fan_in = R * S * C or in
                   rank 1, .weight  1 + 0.1 * S(p, i)     (batch norm)
                   rank 1, .bias    0.1 * S(p, i)         (norm, convolution, linear)
                   rank 3           sqrt(3) * S(p, i)     (ConvNeXt's layer scale)
Running stats    mean 0, variance 1 at the start, momentum 0.1, eps 1e-5
Images of step t x[i] = S(1000 + t, i), i counts [batch, 32, 32, 3] (N, H, W, C); t = 1, 2, 3
Labels of step t target[n] = v[n % 4] % 10, v = fri_philox(seed, 2000 + t, n / 4)
A step           train mode, loss = mean cross entropy over the batch, then torch.optim.SGD(lr, momentum 0.9,
                 weight decay 5e-4, all parameters alike). No dropout. The computation is in f64 throughout: from the
                 f32 parameters and images above, f64 parameters and momentum from step to step. seed, lr and
                 batch are those of NETWORKS below and are in the file. They are chosen so that f32 can follow: with
                 batch 4 and lr 0.1, batch norm over few values (resnet18's last stage has one pixel per image)
                 amplifies rounding to percents within three steps, and so does a single relu input or maxpool tie
                 that rounding moves to the other side. Each seed is one where five f32 runs, four of them from
                 parameters disturbed by 1.2e-7, meet no such accident; --f32 prints what they show.

Networks         vgg11       torchvision's features (with bias), global average pool, "classifier" Linear(512, 10)
                 vgg11_bn    the same with batch norm
                 resnet18    torchvision.models.resnet18(num_classes=10): 7x7 stem with stride 2, maxpool
                 densenet_bc DenseNet-BC, k = 12, depth 22: features.conv0 3x3 (24, no bias), three blocks of three
                             bottleneck layers (4k), two transitions with compression 0.5 (floor) and 2x2 average pool,
                             features.norm5, relu, global average pool, "classifier" Linear(69, 10)
                 mobilenet_v2  torchvision.models.mobilenet_v2(num_classes=10, dropout=0), every norm frozen: with
                             batch statistics of 32-pixel images f32 cannot follow
                 mobilenet_v3_small, mobilenet_v3_large, efficientnet_b0  the same
                 squeezenet1_1  torchvision.models.squeezenet1_1(num_classes=10, dropout=0)
                 convnext_tiny  torchvision.models.convnext_tiny(num_classes=10, stochastic_depth_prob=0)
                 resnet18_frozen  resnet18 with every norm, conv1 and layer1 frozen (no gradient, running values)

Tensors          <m>.seed i64 [1], <m>.lr f64 [1], <m>.batch i64 [1]
                 <m>.parameters       u8: the names of the parameters, each ended by a newline
                 <m>.numel            i64 [P]: their sizes
                 <m>.buffers          u8: the names of the running statistics, each ended by a newline
                 <m>.loss             f64 [3]: the loss of each step, before its update
                 <m>.logits           f64 [batch, 10]: of step 1
                 <m>.gradient.sum     f64 [P]: of the gradients of step 1, without weight decay
                 <m>.gradient.norm    f64 [P]: L2
                 <m>.gradient.samples f64 [P, 8]: elements floor(j * numel / 8), j = 0 .. 7, in frugal's layout
                 <m>.step<t>.sum, .norm, .samples                     the parameters after step t
                 <m>.step<t>.buffer_sum, .buffer_norm, .buffer_samples   the running statistics after step t
"""

import argparse
import math
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from safetensors.torch import save_file

from make_golden import check

HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES, STEPS, SAMPLES = 10, 3, 8


def philox(seed, stream, counters):
    """fri_philox(seed, stream, counter) for all counters: u32 [n, 4]."""
    mask = np.uint64(0xFFFFFFFF)
    counter = counters.astype(np.uint64)
    c0, c1 = counter & mask, counter >> np.uint64(32)
    c2 = np.full_like(counter, stream & 0xFFFFFFFF)
    c3 = np.full_like(counter, stream >> 32)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = ((p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0), p1 & mask,
                          (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1), p0 & mask)
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def numbers(seed, stream, n):
    return philox(seed, stream, np.arange((n + 3) // 4)).reshape(-1)[:n]


def symmetric(seed, stream, n):
    """S(stream, 0 .. n-1) in f64."""
    return 2.0 * ((numbers(seed, stream, n) >> 8).astype(np.float64) / 16777216.0) - 1.0


def to_torch_layout(flat, shape):
    """Elements in frugal's layout as a tensor of PyTorch's shape."""
    if len(shape) != 4:
        return torch.from_numpy(flat.reshape(shape))
    k, c, r, s = shape
    return torch.from_numpy(flat.reshape(k, r, s, c)).permute(0, 3, 1, 2)


def flat_in_our_layout(t):
    return (t.permute(0, 2, 3, 1) if t.dim() == 4 else t).detach().double().reshape(-1)


def initialize(model, seed):
    for p, (name, parameter) in enumerate(model.named_parameters()):
        s = symmetric(seed, p, parameter.numel())
        if parameter.dim() > 1:
            value = math.sqrt(3.0 / parameter[0].numel()) * s
        else:
            value = 1.0 + 0.1 * s if name.endswith(".weight") else 0.1 * s
        with torch.no_grad():
            parameter.copy_(to_torch_layout(value.astype(np.float32), parameter.shape))


def images_and_target(seed, step, batch):
    images = symmetric(seed, 1000 + step, batch * 32 * 32 * 3).reshape(batch, 32, 32, 3)
    target = numbers(seed, 2000 + step, batch) % CLASSES
    return torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(target.astype(np.int64))


class SmallVGG(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.features = make().features
        self.classifier = nn.Linear(512, CLASSES)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class DenseLayer(nn.Module):
    def __init__(self, channels, growth):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.conv1(F.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(F.relu(self.norm2(y)))], 1)


class Transition(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, out, 1, bias=False)

    def forward(self, x):
        return F.avg_pool2d(self.conv(F.relu(self.norm(x))), 2)


class DenseNetBC(nn.Module):
    def __init__(self, growth=12, depth=22):
        super().__init__()
        channels = 2 * growth
        self.features = nn.Sequential()
        self.features.add_module("conv0", nn.Conv2d(3, channels, 3, padding=1, bias=False))
        for block in (1, 2, 3):
            layers = nn.Sequential()
            for layer in range((depth - 4) // 6):
                layers.add_module(f"denselayer{layer + 1}", DenseLayer(channels, growth))
                channels += growth
            self.features.add_module(f"denseblock{block}", layers)
            if block < 3:
                self.features.add_module(f"transition{block}", Transition(channels, channels // 2))
                channels //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, CLASSES)

    def forward(self, x):
        return self.classifier(F.relu(self.features(x)).mean((2, 3)))


class Network:
    def __init__(self, make, seed, lr, batch, frozen=()):
        self.make, self.seed, self.lr, self.batch, self.frozen = make, seed, lr, batch, frozen

    def freeze(self, model):
        """torchvision's FrozenBatchNorm2d for every norm, and what is below the frozen names gets no gradient."""
        for name, module in model.named_modules() if self.frozen else ():
            if isinstance(module, nn.BatchNorm2d) or name.split(".")[0] in self.frozen:
                module.requires_grad_(False)
            if isinstance(module, nn.BatchNorm2d):
                module.eval()


NETWORKS = {"vgg11": Network(lambda: SmallVGG(torchvision.models.vgg11), 21, 0.1, 4),
            "vgg11_bn": Network(lambda: SmallVGG(torchvision.models.vgg11_bn), 25, 0.01, 4),
            "resnet18": Network(lambda: torchvision.models.resnet18(num_classes=CLASSES), 5, 0.01, 16),
            "densenet_bc": Network(DenseNetBC, 5, 0.01, 8),
            "mobilenet_v2": Network(lambda: torchvision.models.mobilenet_v2(num_classes=CLASSES, dropout=0), 3, 2.0, 16,
                                    ("norms",)),
            "convnext_tiny": Network(lambda: torchvision.models.convnext_tiny(num_classes=CLASSES,
                                                                              stochastic_depth_prob=0), 4, 0.01, 4),
            "mobilenet_v3_small": Network(lambda: torchvision.models.mobilenet_v3_small(num_classes=CLASSES, dropout=0),
                                          3, 1.0, 16, ("norms",)),
            "mobilenet_v3_large": Network(lambda: torchvision.models.mobilenet_v3_large(num_classes=CLASSES, dropout=0),
                                          3, 1.0, 16, ("norms",)),
            "efficientnet_b0": Network(lambda: torchvision.models.efficientnet_b0(num_classes=CLASSES, dropout=0,
                                                                                  stochastic_depth_prob=0),
                                       3, 1.0, 16, ("norms",)),
            "squeezenet1_1": Network(lambda: torchvision.models.squeezenet1_1(num_classes=CLASSES, dropout=0), 3, 0.01,
                                     16),
            "resnet18_frozen": Network(lambda: torchvision.models.resnet18(num_classes=CLASSES), 14, 0.05, 16,
                                       ("conv1", "layer1"))}


def summary(tensors):
    """Sum, L2 norm and samples of each tensor, in f64."""
    flat = [flat_in_our_layout(t) for t in tensors]
    samples = [torch.stack([f[j * f.numel() // SAMPLES] for j in range(SAMPLES)]) for f in flat]
    if not flat:
        return torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64), \
            torch.zeros(0, SAMPLES, dtype=torch.float64)
    return torch.stack([f.sum() for f in flat]), torch.stack([f.norm() for f in flat]), torch.stack(samples)


def text(names):
    return torch.tensor(list("".join(n + "\n" for n in names).encode()), dtype=torch.uint8)


class Result:
    """What check() of make_golden.py compares: like one of its ops."""

    def __init__(self):
        self.name, self.tensors, self.cases = "models", {}, list(NETWORKS)


def train(name, network, dtype, out, disturbance=0.0):
    model = network.make()
    initialize(model, network.seed)
    for parameter in model.parameters() if disturbance else ():
        parameter.data *= 1.0 + disturbance * torch.randn_like(parameter)
    model.to(dtype).train()
    network.freeze(model)
    parameters = dict(model.named_parameters())
    buffers = {n: b for n, b in model.named_buffers() if not n.endswith("num_batches_tracked")}
    out[f"{name}.seed"] = torch.tensor([network.seed])
    out[f"{name}.lr"] = torch.tensor([network.lr], dtype=torch.float64)
    out[f"{name}.batch"] = torch.tensor([network.batch])
    out[f"{name}.parameters"] = text(parameters)
    out[f"{name}.numel"] = torch.tensor([p.numel() for p in parameters.values()])
    out[f"{name}.buffers"] = text(buffers)
    optimizer = torch.optim.SGD(parameters.values(), lr=network.lr, momentum=0.9, weight_decay=5e-4)
    losses = []
    for step in range(1, STEPS + 1):
        images, target = images_and_target(network.seed, step, network.batch)
        optimizer.zero_grad()
        logits = model(images.to(dtype))
        loss = F.cross_entropy(logits, target)
        loss.backward()
        losses.append(loss.detach().double())
        if step == 1:
            out[f"{name}.logits"] = logits.detach().double().clone()
            gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters.values()]
            for field, value in zip(("sum", "norm", "samples"), summary(gradients)):
                out[f"{name}.gradient.{field}"] = value
        optimizer.step()
        for field, value in zip(("sum", "norm", "samples"), summary(parameters.values())):
            out[f"{name}.step{step}.{field}"] = value
        for field, value in zip(("buffer_sum", "buffer_norm", "buffer_samples"), summary(buffers.values())):
            out[f"{name}.step{step}.{field}"] = value
    out[f"{name}.loss"] = torch.stack(losses)


def deviation(name, group, f32, f64):
    """How far f32 is from f64 in a group ("gradient", "step1", ...): the largest of, over all parameters,
    |sample - sample64| / rms, |norm - norm64| / norm64 and |sum - sum64| / (norm64 * sqrt(numel)). rms = norm64 /
    sqrt(numel), but at least 1e-3 of the largest: the gradient of a bias before a batch norm is 0 but for rounding."""
    root = f64[f"{name}.numel"].double().sqrt()
    rms = f64[f"{name}.{group}.norm"] / root
    rms = torch.maximum(rms, 1e-3 * rms.max())
    delta = {k: (f32[f"{name}.{group}.{k}"] - f64[f"{name}.{group}.{k}"]).abs() for k in ("sum", "norm", "samples")}
    return max((delta["samples"] / rms[:, None]).max().item(), (delta["norm"] / (rms * root)).max().item(),
               (delta["sum"] / (rms * root * root)).max().item())


def f32_runs(name, network, f64):
    """The largest deviations of five f32 runs, by group; "loss": relative."""
    worst = {}
    for run in range(5):
        torch.manual_seed(run)
        f32 = {}
        train(name, network, torch.float32, f32, disturbance=1.2e-7 if run > 0 else 0.0)
        found = {g: deviation(name, g, f32, f64) for g in ["gradient"] + [f"step{t}" for t in range(1, STEPS + 1)]}
        found["loss"] = (f32[f"{name}.loss"] / f64[f"{name}.loss"] - 1).abs().max().item()
        worst = {g: max(v, worst.get(g, 0.0)) for g, v in found.items()}
    return worst


def main():
    parser = argparse.ArgumentParser(description="Makes or checks the golden values of whole networks.")
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    parser.add_argument("--f32", action="store_true", help="print how far f32 runs of PyTorch are from the f64 run")
    args = parser.parse_args()
    torch.set_num_threads(1)
    result = Result()
    for name, network in NETWORKS.items():
        train(name, network, torch.float64, result.tensors)
        print(name, len(result.tensors[f"{name}.numel"]), "parameters, loss", result.tensors[f"{name}.loss"].tolist())
        if args.f32:
            worst = f32_runs(name, network, result.tensors)
            print("    in f32:", ", ".join(f"{group} {value:.1e}" for group, value in worst.items()))
    path = os.path.join(HERE, "models.safetensors")
    faults = check(result, path) if args.check else []
    if not args.check:
        save_file(result.tensors, path, metadata={"cases": " ".join(result.cases)})
        os.chmod(path, 0o644)
    print(os.path.getsize(path), "bytes")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
