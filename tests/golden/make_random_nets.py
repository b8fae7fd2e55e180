#!/usr/bin/env python3
"""Makes tests/golden/random_nets.txt: PyTorch's losses and gradients of the networks of tests/net/test_random_nets.c.

    FRUGAL_RANDOM_NETS_OUT=nets.txt build/tests/test_net --filter 'random_nets/gradients*'
    python3 tests/golden/make_random_nets.py nets.txt            # --check: compares instead of writing

A line is the network's seed, its loss, the norm of all gradients, and their sum with pseudo-random factors. PyTorch
computes in f64 from the f32 numbers that the test makes.
"""
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES = 4


class Numbers:
    """The test's generator."""

    def __init__(self, state):
        self.state = state

    def take(self, n):
        values = np.empty(n, dtype=np.float32)
        for i in range(n):
            self.state = (self.state * 1664525 + 1013904223) & 0xffffffff
            values[i] = np.float32(self.state >> 8) / np.float32(1 << 23) - np.float32(1)
        return values


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


class Network:
    """Values are images [N, H, W, C]. Parameters are in frugal's layout and order: scales, which belong to the network
    itself, then those of its layers. `numbers` gives the values; without, all are 0."""

    def __init__(self, numbers=None):
        self.numbers, self.scales, self.others, self.values, self.read = numbers, [], [], [], set()
        self.shared = None

    def parameters(self):
        return self.scales + self.others

    def parameter(self, *shape, scale=False):
        n = math.prod(shape)
        v = self.numbers[scale].take(n) if self.numbers else np.zeros(n, dtype=np.float32)
        if len(shape) > 1:
            v = v * np.sqrt(np.float32(3) / np.float32(n // shape[0]), dtype=np.float32)
        else:
            v = np.float32(0.5) + np.float32(0.25) * v
        p = torch.from_numpy(v.reshape(shape)).double().requires_grad_(True)
        (self.scales if scale else self.others).append(p)
        return p

    def conv(self, x, out, kernel, stride, padding, dilation, groups, bias):
        w = self.parameter(out, kernel, kernel, x.shape[3] // groups)
        b = self.parameter(out) if bias else None
        self.shared = lambda v: nhwc(F.conv2d(nchw(v), nchw(w), b, stride, padding, dilation, groups))
        return self.shared(x)

    def transposed(self, x, out, kernel, stride, extra):
        w, b = self.parameter(x.shape[3], kernel, kernel, out), self.parameter(out)
        return nhwc(F.conv_transpose2d(nchw(x), nchw(w), b, stride, 0, extra))

    def linear(self, x, out):
        w = self.parameter(out, x.shape[-1])
        return F.linear(x, w, self.parameter(out))

    def norm(self, name, x, *numbers):
        gamma, beta = self.parameter(x.shape[3]), self.parameter(x.shape[3])
        if name == "batchnorm2d":
            return nhwc(F.batch_norm(nchw(x), None, None, gamma, beta, True))
        if name == "inplace_abn":
            return F.leaky_relu(nhwc(F.batch_norm(nchw(x), None, None, gamma.abs() + 1e-5, beta, True)), numbers[0])
        if name == "group_norm":
            return nhwc(F.group_norm(nchw(x), int(numbers[0]), gamma, beta))
        return F.layer_norm(x, x.shape[3:], gamma, beta)

    def pool(self, name, x, size, padding, ceil):
        if name == "adaptive_avgpool2d":
            return nhwc(F.adaptive_avg_pool2d(nchw(x), size))
        pool = F.max_pool2d if name == "maxpool2d" else F.avg_pool2d
        return nhwc(pool(nchw(x), size, 2, padding, ceil_mode=bool(ceil)))

    def layer(self, name, a, b, numbers):
        x, y, whole = self.values[a], self.values[b], [int(v) for v in numbers]
        self.read.add(a)
        if name in ("add", "sub", "mul", "concat", "upsample_to"):
            self.read.add(b)
        if name == "conv2d":
            return self.conv(x, *whole)
        if name == "conv_transpose2d":
            return self.transposed(x, whole[0], whole[1], whole[2], whole[3])
        if name in ("batchnorm2d", "inplace_abn", "group_norm", "layer_norm"):
            return self.norm(name, x, *numbers)
        if name in ("maxpool2d", "avgpool2d", "adaptive_avgpool2d"):
            return self.pool(name, x, *whole)
        if name == "upsample":
            return nhwc(F.interpolate(nchw(x), scale_factor=2, mode="bilinear" if whole[0] else "nearest"))
        one = {
            "again": lambda: self.shared(x), "linear": lambda: self.linear(x, whole[0]),
            "layer_scale": lambda: x * self.parameter(x.shape[3], 1, 1, scale=True).reshape(-1),
            "div_clamped": lambda: x / torch.sigmoid(x).clamp(0.25, 2),
            "upsample_to": lambda: nhwc(F.interpolate(nchw(x), size=y.shape[1:3])),
            "zero_pad2d": lambda: nhwc(F.pad(nchw(x), whole)),
            "pixel_shuffle": lambda: nhwc(F.pixel_shuffle(nchw(x), 2)),
            "pixel_unshuffle": lambda: nhwc(F.pixel_unshuffle(nchw(x), 2)),
            "concat": lambda: torch.cat([x, y], 3), "add": lambda: x + y, "sub": lambda: x - y, "mul": lambda: x * y,
            "leaky_relu": lambda: F.leaky_relu(x, 0.125), "clamp": lambda: x.clamp(-0.75, 1.5),
            "softmax": lambda: F.softmax(x, 3), "log_softmax": lambda: F.log_softmax(x, 3), "identity": lambda: x,
            "gelu_tanh": lambda: F.gelu(x, approximate="tanh"), "sigmoid": lambda: torch.sigmoid(x),
            "tanh": lambda: torch.tanh(x),
        }
        return one[name]() if name in one else getattr(F, name)(x)


def description(path):
    """Yields the line that begins a network, and its layers."""
    head, layers = None, []
    for line in open(path, encoding="utf-8"):
        words = line.split()
        if words[0] == "net":
            head, layers = [int(w) for w in words[1:]], []
        elif words[0] == "end":
            yield head, layers
        else:
            layers.append((words[0], int(words[1]), int(words[2]), [float(w) for w in words[4:]]))


def run(head, layers):
    seed, index, n, h, w, c = head
    size = n * h * w * (1 if index else c)
    # The network runs first without values, to know how many numbers come before those of its layers and the input.
    shapes = Network()
    build(shapes, layers, index, np.zeros(size, np.float32), (n, h, w, c))
    streams = [Numbers(seed + 1) for _ in range(3)]
    for stream, before in zip(streams[1:], (shapes.scales, shapes.parameters())):
        stream.take(sum(p.numel() for p in before))
    net = Network({True: streams[0], False: streams[1]})
    y = build(net, layers, index, streams[2].take(size), (n, h, w, c))
    loss = F.cross_entropy(y, torch.zeros(n, dtype=torch.int64))
    grads = torch.autograd.grad(loss, net.parameters(), allow_unused=True)
    signs, squares, total = Numbers(5), 0.0, 0.0
    for g in (g for g in grads if g is not None):
        g = g.reshape(-1).numpy()
        squares += float((g * g).sum())
        total += float((signs.take(g.size).astype(np.float64) * g).sum())
    return f"{seed} {loss.item():.9g} {math.sqrt(squares):.9g} {total:.9g}"


def build(net, layers, index, values, shape):
    if index:
        rows = torch.from_numpy(((values + np.float32(1)) * np.float32(2.5)).astype(np.int64)).reshape(shape[:3])
        x = F.embedding(rows, net.parameter(5, shape[3]))
    else:
        x = torch.from_numpy(values.reshape(shape)).double()
    net.values.append(x)
    for name, a, b, numbers in layers:
        net.values.append(net.layer(name, a, b, numbers))
    parts = [v.mean((1, 2)) for i, v in enumerate(net.values) if i not in net.read]
    return net.linear(torch.cat(parts, 1), CLASSES)


def main():
    lines = [run(head, layers) for head, layers in description(sys.argv[1])]
    path = os.path.join(HERE, "random_nets.txt")
    text = "\n".join(lines) + "\n"
    if "--check" in sys.argv:
        sys.exit(text != open(path, encoding="utf-8").read())
    open(path, "w", encoding="utf-8").write(text)


main()
