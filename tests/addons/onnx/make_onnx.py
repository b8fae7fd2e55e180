#!/usr/bin/env python3
"""Makes the ONNX files of the tests with PyTorch.

    python3 make_onnx.py                  tiny/*.onnx and tiny.safetensors beside it, which are committed
    python3 make_onnx.py --large FOLDER   torchvision's networks, for test_onnx.py

tiny.safetensors has for each file NAME.x, images [N, H, W, C], and NAME.y, what PyTorch makes of them in evaluation,
computed in f64, images as [N, H, W, C]; for what is exported in training mode also NAME.loss, of three steps of SGD
(lr 0.05, momentum 0.9) in f64 on classes n % 3. Weights and statistics are random, so that a mixed-up channel shows.
Needs torch, torchvision, onnx, onnxscript, safetensors.
"""
import copy
import os
import sys
import warnings

import numpy as np
import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save_file

warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
LARGE = ["resnet18", "resnet50", "densenet121", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "unet",
         "convnext_tiny"]


def ways(name):
    """The newer exporter writes ConvNeXt's average of a permuted tensor as a gather with a computed index."""
    return ["train", "eval"] if name == "convnext_tiny" else ["train", "eval", "dynamo"]


class Residual(nn.Module):
    """Normalization, sum, pooling, a linear layer: exported in training mode it keeps all names."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4, momentum=0.2)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4, eps=1e-3)
        self.pool, self.fc = nn.MaxPool2d(3, 2, 1), nn.Linear(4, 3)

    def forward(self, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        x = F.relu(self.bn2(self.conv2(x)) + x)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Mobile(nn.Module):
    """Depthwise convolutions, squeeze and excitation, all smooth activations."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.SiLU())
        self.deep = nn.Sequential(nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=6), nn.Hardswish())
        self.down, self.up = nn.Conv2d(6, 2, 1), nn.Conv2d(2, 6, 1)
        self.acts = nn.ModuleList([nn.ReLU6(), nn.LeakyReLU(0.1), nn.Tanh(), nn.GELU(), nn.Sigmoid()])
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = self.deep(self.stem(x))
        x = F.hardsigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True))))) * x
        for act in self.acts:
            x = act(x)
        return self.fc(x.mean((2, 3)))


class UNet(nn.Module):
    """Both ways to resize; the size of a skip connection. As published, a block has two convolutions."""

    def __init__(self, width=2, classes=3, convolutions=1):
        super().__init__()

        def block(a, b):
            layers = []
            for i in range(convolutions):
                layers += [nn.Conv2d(b if i else a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
            return nn.Sequential(*layers)

        self.down1, self.down2, self.middle = block(3, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.up2, self.up1 = block(6 * width, 2 * width), block(3 * width, width)
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        d = self.up2(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        size = a.shape[2:]
        return self.out(self.up1(torch.cat([F.interpolate(d, size=size, mode="bilinear", align_corners=False), a], 1)))


class Wide(nn.Module):
    """Columns of a Linear behind a Flatten of 2 x 3 pixels, padding of its own, a shape that the graph computes."""

    def __init__(self):
        super().__init__()
        self.conv, self.shared = nn.Conv2d(3, 4, 3, stride=2), nn.Conv2d(4, 4, 3, padding=1)
        self.drop, self.fc1, self.fc2 = nn.Dropout(0.25), nn.Linear(24, 5), nn.Linear(5, 3)

    def forward(self, x):
        x = F.avg_pool2d(self.conv(F.pad(x, (1, 1, 1, 1))), 2, ceil_mode=False)
        x = self.shared(F.relu(self.shared(x)))
        return self.fc2(F.relu(self.fc1(self.drop(x.view(x.size(0), -1)))))


class Shapes(nn.Module):
    """Transposed convolution, pixel shuffle, padding of one side, softmax inside, bounds, difference and quotient."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 8, 3, stride=2, padding=1, output_padding=1, groups=1)
        self.group = nn.ConvTranspose2d(8, 8, 2, stride=2, groups=2, bias=False)
        self.shuffle, self.conv, self.fc = nn.PixelShuffle(2), nn.Conv2d(2, 4, 3), nn.Linear(4, 3)

    def forward(self, x):
        x = self.group(self.up(x))
        x = self.shuffle(F.softmax(x, 1) - torch.clamp(x, -0.3, 0.4))
        x = self.conv(F.pad(x, (1, 0, 0, 2)))
        x = F.log_softmax(torch.clamp(x, min=-0.5) / torch.sigmoid(x), dim=1)
        return self.fc(x.mean((2, 3)))


def convnext():
    """torchvision's, with two blocks of few channels."""
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    torch.manual_seed(2)
    return ConvNeXt([CNBlockConfig(4, 8, 1), CNBlockConfig(8, None, 1)], layer_scale=0.7, num_classes=3)


def randomize(m, seed):
    torch.manual_seed(seed)
    for name, t in list(m.named_parameters()) + list(m.named_buffers()):
        if name.endswith(("bias", "running_mean")):
            t.data.uniform_(-0.1, 0.1)
        elif name.endswith("running_var"):
            t.data.uniform_(0.5, 1.5)
    return m


def export(m, path, way, x):
    """train: batch norms and dropout stay. eval: folded. static: of one batch. dynamo: PyTorch's newer exporter."""
    kept = copy.deepcopy(m.state_dict())
    m.train(way == "train")
    if way == "dynamo":
        batch = torch.export.Dim("batch", min=2, max=256)
        torch.onnx.export(m, (x,), path, dynamo=True, opset_version=18, input_names=["x"], dynamic_shapes=[{0: batch}],
                          verbose=False, external_data=False)
    else:
        mode = torch.onnx.TrainingMode.TRAINING if way == "train" else torch.onnx.TrainingMode.EVAL
        torch.onnx.export(m, x, path, dynamo=False, opset_version=13 if way == "train" else 17, training=mode,
                          do_constant_folding=way != "train", input_names=["x"],
                          dynamic_axes=None if way == "static" else {"x": {0: "batch"}})
    m.load_state_dict(kept)  # an exporter runs the network: in training mode the statistics move
    if way == "train":
        model = onnx.load(path)
        for t in model.graph.initializer:
            if t.name in kept:
                t.CopyFrom(numpy_helper.from_array(kept[t.name].numpy(), t.name))
        onnx.save(model, path)
    return m.eval()


def strip(path):
    """Files are compared in reviews: no version of the exporter."""
    model = onnx.load(path)
    model.producer_version = ""
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    del model.graph.value_info[:]
    del model.metadata_props[:]
    onnx.save(model, path)


def losses(m, x):
    m = copy.deepcopy(m).double().train()
    target = torch.arange(x.shape[0]) % 3
    sgd = torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9)
    out = []
    for _ in range(3):
        sgd.zero_grad()
        loss = F.cross_entropy(m(x.double()), target)
        loss.backward()
        sgd.step()
        out.append(loss.item())
    return torch.tensor(out, dtype=torch.float64)


def by_hand(folder, golden):
    """What PyTorch no longer writes: MatMul and Add, Gemm without transB, typed data; a softmax; an unknown node."""
    torch.manual_seed(9)
    w, b, v = torch.randn(4, 5), torch.randn(5), torch.randn(5, 3)
    x = torch.randn(2, 4)
    images = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])
    constants = [helper.make_tensor("w", TensorProto.FLOAT, [4, 5], w.flatten().tolist()),
                 numpy_helper.from_array(b.numpy(), "b"),
                 numpy_helper.from_array(v.double().numpy(), "second.weight")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="/first/MatMul"),
             helper.make_node("Add", ["b", "m"], ["a"], name="/first/Add"),
             helper.make_node("Gemm", ["a", "second.weight"], ["g"]),
             helper.make_node("Softmax", ["g"], ["y"], name="last", axis=-1)]
    opset = [helper.make_opsetid("", 17)]
    graph = helper.make_graph(nodes, "g", [images], [y], constants)
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), f"{folder}/softmax.onnx")
    golden["softmax.x"], golden["softmax.y"] = x, ((x.double() @ w.double() + b) @ v.double()).float()
    pixels = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])
    up = helper.make_node("GridSample", ["x", "k"], ["y"], name="/decoder/up")
    kernel = numpy_helper.from_array(torch.randn(3, 2, 2, 2).numpy(), "k")
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([up], "g", [pixels], [out], [kernel])
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), f"{folder}/unknown.onnx")
    for name, scale in (("depth", 0.8), ("depth_unscaled", 1.0)):
        stochastic_depth(f"{folder}/{name}.onnx", scale)
    cast(f"{folder}/cast.onnx")
    bare = helper.make_graph([helper.make_node("Identity", [], ["y"], name="bare")], "g", [pixels], [out], [])
    onnx.save(helper.make_model(bare, opset_imports=opset, ir_version=8), f"{folder}/bare.onnx")


def stochastic_depth(path, scale):
    """A block's branch as torchvision's exports it in training mode, kept with probability 0.8."""
    images = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    kernel = numpy_helper.from_array(torch.randn(3, 3, 1, 1).numpy(), "block.weight")
    constant = {k: numpy_helper.from_array(np.array(v), k) for k, v in
                (("shape", np.array([2, 1, 1, 1])), ("keep", np.float32(0.8)), ("scale", np.float32(scale)))}
    nodes = [helper.make_node("Conv", ["x", "block.weight"], ["branch"], name="/block/Conv"),
             helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
             helper.make_node("RandomUniformLike", ["zeros"], ["random"], name="/depth/RandomUniformLike", dtype=1),
             helper.make_node("Less", ["random", "keep"], ["kept"]),
             helper.make_node("Cast", ["kept"], ["mask"], to=TensorProto.FLOAT),
             helper.make_node("Div", ["mask", "scale"], ["factor"]),
             helper.make_node("Mul", ["branch", "factor"], ["scaled"]),
             helper.make_node("Add", ["scaled", "x"], ["y"], name="/Add")]
    graph = helper.make_graph(nodes, "g", [images], [out], [kernel, *constant.values()])
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def cast(path):
    """Sizes computed as floats: [0.9, -1.9] becomes [0, -1], the shape of Reshape."""
    images = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 2, 2])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = [numpy_helper.from_array(np.array([0.9, -1.9], dtype=np.float32), "sizes"),
                 numpy_helper.from_array(torch.randn(5, 12).numpy(), "fc.weight"),
                 numpy_helper.from_array(torch.randn(5).numpy(), "fc.bias")]
    nodes = [helper.make_node("Cast", ["sizes"], ["shape"], name="/Cast", to=TensorProto.INT64),
             helper.make_node("Reshape", ["x", "shape"], ["flat"]),
             helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["y"], name="/fc/Gemm", transB=1)]
    graph = helper.make_graph(nodes, "g", [images], [out], constants)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def tiny(folder):
    golden = {}
    os.makedirs(folder, exist_ok=True)
    for name, make, way, shape in [
            ("residual", Residual, "train", (6, 3, 13, 11)), ("residual_folded", Residual, "eval", (2, 3, 13, 11)),
            ("residual_dynamo", Residual, "dynamo", (2, 3, 13, 11)), ("mobile", Mobile, "eval", (2, 3, 9, 7)),
            ("mobile_train", Mobile, "train", (6, 3, 9, 7)), ("mobile_dynamo", Mobile, "dynamo", (2, 3, 9, 7)),
            ("unet", UNet, "eval", (2, 3, 12, 8)), ("unet_static", UNet, "static", (2, 3, 13, 9)),
            ("unet_dynamo", UNet, "dynamo", (2, 3, 12, 8)), ("wide", Wide, "eval", (2, 3, 9, 13)),
            ("wide_static", Wide, "static", (2, 3, 9, 13)), ("wide_dynamo", Wide, "dynamo", (2, 3, 9, 13)),
            ("shapes", Shapes, "eval", (2, 3, 4, 5)), ("shapes_dynamo", Shapes, "dynamo", (2, 3, 4, 5)),
            ("convnext", convnext, "eval", (2, 3, 16, 24)), ("convnext_train", convnext, "train", (6, 3, 16, 24))]:
        m = randomize(make(), 1 if name != "wide" else 3)
        x = torch.randn(shape)
        m = export(m, f"{folder}/{name}.onnx", way, x)
        strip(f"{folder}/{name}.onnx")
        with torch.no_grad():
            y = copy.deepcopy(m).double()(x.double()).float()
        golden[f"{name}.x"] = x.permute(0, 2, 3, 1).contiguous()
        golden[f"{name}.y"] = y.permute(0, 2, 3, 1).contiguous() if y.dim() == 4 else y
        if way == "train":
            golden[f"{name}.loss"] = losses(m, x)
    by_hand(folder, golden)
    save_file(golden, f"{folder}/tiny.safetensors")
    print(f"{len(golden)} tensors; the files hold {sum(os.path.getsize(f'{folder}/{f}') for f in os.listdir(folder))} "
          "bytes")


def network(name):
    """One of LARGE with its random weights; the same in every process."""
    import torchvision

    torch.manual_seed(5)
    m = UNet(16, 10, 2) if name == "unet" else getattr(torchvision.models, name)(weights=None)
    return randomize(m, 6)


def large(folder):
    os.makedirs(folder, exist_ok=True)
    for name in LARGE:
        for way in ways(name):
            export(network(name), f"{folder}/{name}_{way}.onnx", way, torch.randn(2, 3, 64, 64))
            print(f"{name}_{way}.onnx", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--large":
        large(sys.argv[2])
    elif len(sys.argv) == 1:
        tiny(os.path.join(HERE, "tiny"))
    else:
        sys.exit(__doc__)
