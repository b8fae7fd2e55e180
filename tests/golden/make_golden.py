#!/usr/bin/env python3
"""Makes tests/golden/<op>.safetensors: what PyTorch computes for every op, forward and each gradient.

    python3 tests/golden/make_golden.py            # writes all files beside this script
    python3 tests/golden/make_golden.py --check    # computes all and compares with the files, writes nothing

Every case is a group of tensors "<case>.<field>"; the file's metadata has one key, "cases": the names of the cases,
separated by spaces. Layouts are frugal's: images [N, H, W, C], convolution weights [K, R, S, C / groups], linear
weights [out, in]. Inputs are f32 numbers from a generator seeded by "<op>.<case>"; PyTorch computes from them in f64
and the results are rounded to f32 once, so the files hold true values, not those of some f32 implementation. The loss
is sum(y * dy) with a random dy; "d" + name is its gradient for the input of that name. Parameters of a case (stride,
eps, ...) are i64 or f64 tensors of rank 1. README.md lists the fields of each op.
"""

import argparse
import functools
import importlib.util
import math
import os
import sys
import zlib

import numpy as np
import torch
import torch.nn.functional as F
import torchvision.ops
from safetensors import safe_open
from safetensors.torch import save_file

from strided import strided

HERE = os.path.dirname(os.path.abspath(__file__))
NAN, INF = math.nan, math.inf


class Op:
    """The file of one op: add() collects cases, save() writes them."""

    def __init__(self, name):
        self.name, self.tensors, self.cases = name, {}, []

    def rng(self, case):
        self.random = np.random.default_rng(zlib.crc32(f"{self.name}.{case}".encode()))

    def normal(self, *shape, mean=0.0, std=1.0):
        values = self.random.standard_normal(shape) * std + mean
        return torch.from_numpy(np.asarray(values, dtype=np.float32).reshape(shape))

    def add(self, case, **fields):
        assert case not in self.cases and "." not in case and " " not in case
        self.cases.append(case)
        for field, value in fields.items():
            if value is None:
                continue
            if isinstance(value, (bool, int)):
                value = torch.tensor([int(value)], dtype=torch.int64)
            elif isinstance(value, float):
                value = torch.tensor([value], dtype=torch.float64)
            elif isinstance(value, (tuple, list)):
                value = torch.tensor(value, dtype=torch.int64)
            elif value.dtype == torch.float64:
                value = value.to(torch.float32)
            self.tensors[f"{case}.{field}"] = value.detach().clone(memory_format=torch.contiguous_format)

    def add_exact(self, case, **fields):
        """Like add(), for tensors that keep their types."""
        assert case not in self.cases
        self.cases.append(case)
        self.tensors.update({f"{case}.{field}": value.clone() for field, value in fields.items()})

    def gradients(self, case, function, inputs, dy=None, images=(), **parameters):
        """Adds inputs, dy, y and gradients. Names in `images` are transposed to NCHW for `function`, and its result
        back; None inputs are left out. dy None: random in the shape of y."""
        given = {k: v for k, v in inputs.items() if v is not None}
        wide = {k: v.double().requires_grad_(True) for k, v in given.items()}
        args = {k: wide[k].permute(0, 3, 1, 2) if k in images else wide.get(k) for k in inputs}
        y = function(**args)
        y = y.permute(0, 2, 3, 1) if images and y.dim() == 4 else y
        dy = self.normal(*y.shape) if dy is None else dy
        grads = torch.autograd.grad(y, list(wide.values()), dy.double())
        self.add(case, **given, **parameters, dy=dy, y=y, **{"d" + k: g for k, g in zip(wide, grads)})

    def write(self, path):
        save_file(self.tensors, path, metadata={"cases": " ".join(self.cases)})
        os.chmod(path, 0o644)


def conv2d():
    op = Op("conv2d")
    #        case          n  h  w   c   k  r  s  stride  padding dilation groups bias
    cases = [("plain",         2, 5, 7, 3, 4, 3, 2, (1, 1), (0, 0), (1, 1), 1, True),
             ("no_bias",       2, 6, 5, 2, 5, 2, 3, (1, 1), (1, 2), (1, 1), 1, False),
             ("same_padding",  2, 4, 6, 5, 3, 3, 5, (1, 1), (1, 2), (1, 1), 1, True),
             ("stride",        1, 8, 9, 3, 5, 3, 2, (2, 3), (1, 0), (1, 1), 1, True),
             ("stem",          1, 11, 10, 3, 4, 7, 5, (2, 2), (3, 2), (1, 1), 1, False),
             ("pointwise",     2, 3, 4, 5, 7, 1, 1, (1, 1), (0, 0), (1, 1), 1, True),
             ("downsample",    2, 5, 4, 3, 6, 1, 1, (2, 2), (0, 0), (1, 1), 1, False),
             ("row_kernel",    1, 3, 7, 4, 2, 1, 5, (1, 2), (0, 2), (1, 1), 1, True),
             ("dilation",      1, 9, 8, 2, 3, 3, 2, (1, 1), (2, 1), (2, 3), 1, True),
             ("stride_dilation", 1, 10, 9, 3, 2, 2, 3, (2, 1), (1, 2), (3, 2), 1, True),
             ("groups",        2, 5, 4, 4, 6, 3, 2, (1, 1), (1, 1), (1, 1), 2, True),
             ("groups_stride", 1, 7, 6, 6, 9, 2, 3, (2, 1), (0, 1), (1, 2), 3, False),
             ("depthwise_x2",  2, 5, 6, 3, 6, 3, 2, (1, 1), (1, 0), (1, 1), 3, True),
             ("depthwise",     1, 6, 7, 5, 5, 3, 2, (2, 1), (1, 1), (1, 1), 5, True),
             ("whole_image",   2, 4, 3, 5, 6, 4, 3, (1, 1), (0, 0), (1, 1), 1, True),
             ("one_pixel",     3, 1, 1, 3, 4, 3, 5, (1, 1), (1, 2), (1, 1), 1, True),
             ("wide",          1, 4, 5, 17, 19, 3, 2, (1, 1), (1, 1), (1, 1), 1, True)]
    for case, n, h, w, c, k, r, s, stride, padding, dilation, groups, bias in cases:
        op.rng(case)
        inputs = {"x": op.normal(n, h, w, c), "w": op.normal(k, r, s, c // groups), "b": op.normal(k) if bias else None}
        op.gradients(case, lambda x, w, b: F.conv2d(x, w, b, stride, padding, dilation, groups), inputs,
                     images=("x", "w"), stride=stride, padding=padding, dilation=dilation, groups=groups)
    return op


def linear():
    op = Op("linear")
    for case, n, i, o, bias in [("bias", 4, 5, 3, True), ("no_bias", 3, 4, 7, False), ("one_row", 1, 6, 5, True),
                                ("one_output", 5, 3, 1, True), ("wide", 5, 19, 37, True)]:
        op.rng(case)
        op.gradients(case, lambda x, w, b: F.linear(x, w, b),
                     {"x": op.normal(n, i), "w": op.normal(o, i), "b": op.normal(o) if bias else None})
    return op


def conv_transpose2d():
    op = Op("conv_transpose2d")
    #        case          n  p  q   k   c  r  s  stride  padding output dilation groups bias
    cases = [("plain",         2, 4, 6, 3, 4, 3, 2, (1, 1), (0, 0), (0, 0), (1, 1), 1, True),
             ("double",        1, 3, 5, 6, 4, 2, 2, (2, 2), (0, 0), (0, 0), (1, 1), 1, True),
             ("stride",        2, 3, 4, 3, 5, 4, 3, (2, 3), (1, 0), (1, 2), (1, 1), 1, False),
             ("dilation",      1, 4, 3, 2, 3, 3, 2, (2, 1), (2, 1), (0, 0), (2, 3), 1, True),
             ("groups",        2, 3, 4, 4, 6, 3, 2, (2, 1), (1, 0), (1, 0), (1, 1), 2, True),
             ("depthwise",     1, 4, 3, 5, 5, 3, 3, (2, 2), (1, 1), (1, 1), (1, 1), 5, True),
             ("one_channel",   1, 3, 4, 3, 1, 3, 2, (2, 2), (1, 0), (0, 1), (1, 1), 1, True),
             ("pointwise",     2, 3, 4, 5, 7, 1, 1, (1, 1), (0, 0), (0, 0), (1, 1), 1, True)]
    for case, n, p, q, k, c, r, s, stride, padding, output, dilation, groups, bias in cases:
        op.rng(case)
        inputs = {"x": op.normal(n, p, q, k), "w": op.normal(k, r, s, c // groups), "b": op.normal(c) if bias else None}
        op.gradients(case, lambda x, w, b: F.conv_transpose2d(x, w, b, stride, padding, output, groups, dilation),
                     inputs, images=("x", "w"), stride=stride, padding=padding, output_padding=output,
                     dilation=dilation, groups=groups)
    return op


def matmul():
    op = Op("matmul")
    for case, a, n in [("plain", (4, 5), 3), ("one_row", (1, 6), 5), ("one_column", (5, 3), 1), ("wide", (5, 19), 37),
                       ("images", (2, 3, 4, 5), 6), ("vector", (7,), 4)]:
        op.rng(case)
        op.gradients(case, lambda a, b: a @ b, {"a": op.normal(*a), "b": op.normal(a[-1], n)})
    return op


def softmax(name, function):
    op = Op(name)
    masked = torch.tensor([[1.0, -INF, 2.0, -INF], [0.5, 0.25, -INF, 3.0]])
    for case, x, std in [("rows", (5, 4), 1.0), ("images", (2, 3, 4, 7), 1.0), ("wide", (3, 70), 2.0),
                         ("one_class", (4, 1), 1.0), ("vector", (9,), 1.0), ("large", (6, 5), 40.0),
                         ("long", (2, 1030), 1.0), ("masked", masked, 1.0)]:
        op.rng(case)
        op.gradients(case, lambda x: function(x, -1), {"x": x if case == "masked" else op.normal(*x, std=std)})
    return op


def batchnorm2d():
    op = Op("batchnorm2d")
    #        case          shape         train  eps   momentum affine running
    cases = [("train",          (2, 3, 4, 5), True, 1e-5, 0.1, True, True),
             ("train_momentum", (3, 4, 2, 3), True, 1e-3, 0.3, True, True),
             ("train_no_affine", (2, 2, 5, 3), True, 1e-5, 0.1, False, True),
             ("train_no_running", (2, 3, 2, 4), True, 1e-5, 0.1, True, False),
             ("train_constant", (2, 2, 4, 3), True, 1e-5, 0.1, True, True),
             ("train_one_pixel", (4, 1, 1, 5), True, 1e-5, 0.1, True, True),
             ("train_wide",     (2, 3, 2, 37), True, 1e-5, 0.1, True, True),
             ("eval",           (2, 3, 4, 5), False, 1e-5, 0.1, True, True),
             ("eval_eps",       (1, 4, 3, 2), False, 1e-2, 0.1, True, True),
             ("eval_no_affine", (2, 2, 3, 4), False, 1e-5, 0.1, False, True),
             ("eval_one_element", (1, 1, 1, 3), False, 1e-5, 0.1, True, True)]
    for case, shape, train, eps, momentum, affine, running in cases:
        op.rng(case)
        c = shape[3]
        x = op.normal(*shape, std=0.7) + op.normal(c)
        if case == "train_constant":
            x[..., 1] = 0.5  # variance 0: only eps keeps the result finite
        mean = op.normal(c) if running else None
        var = op.normal(c).abs() + 0.25 if running else None
        after = (mean.double(), var.double()) if running else (None, None)
        inputs = {"x": x, "gamma": op.normal(c, mean=1.0, std=0.3) if affine else None,
                  "beta": op.normal(c) if affine else None}
        op.gradients(case, lambda x, gamma, beta: F.batch_norm(x, *after, gamma, beta, train, momentum, eps), inputs,
                     images=("x",), train=train, eps=eps, momentum=momentum, running_mean=mean, running_var=var)
        if running:
            assert train or torch.equal(after[0], mean.double())
            op.tensors[f"{case}.running_mean_after"] = after[0].float()
            op.tensors[f"{case}.running_var_after"] = after[1].float()
    return op


def group_norm():
    """groups 0: layer norm over the last dimension."""
    op = Op("group_norm")
    cases = [("plain", (2, 3, 4, 6), 2, 1e-5), ("one_group", (2, 2, 3, 5), 1, 1e-3),
             ("instance", (3, 4, 2, 4), 4, 1e-5), ("one_pixel", (4, 1, 1, 8), 2, 1e-5),
             ("wide", (1, 3, 2, 40), 5, 1e-5), ("constant", (2, 2, 2, 4), 2, 1e-5),
             ("layer", (2, 3, 4, 7), 0, 1e-6), ("layer_rows", (5, 16), 0, 1e-5), ("layer_wide", (2, 37), 0, 1e-5)]
    for case, shape, groups, eps in cases:
        op.rng(case)
        c = shape[-1]
        x = op.normal(*shape, std=0.7) + op.normal(c)
        if case == "constant":
            x[0, ..., :2] = 0.5  # variance 0: only eps keeps the result finite
        inputs = {"x": x, "gamma": op.normal(c, mean=1.0, std=0.3), "beta": op.normal(c)}
        if groups > 0:
            function = lambda x, gamma, beta: F.group_norm(x, groups, gamma, beta, eps)
        else:
            function = lambda x, gamma, beta: F.layer_norm(x, (c,), gamma, beta, eps)
        op.gradients(case, function, inputs, images=("x",) if groups > 0 else (), groups=groups, eps=eps)
    return op


SPECIAL = torch.tensor([0.0, -0.0, NAN, INF, -INF, 1e-45, -1e-45, 3.0, -2.0, 65504.0, -1000.0])


def relu():
    op = Op("relu")
    op.rng("plain")
    op.gradients("plain", lambda x: F.relu(x), {"x": op.normal(2, 3, 5, 7)})
    op.rng("odd_length")
    op.gradients("odd_length", lambda x: F.relu(x), {"x": op.normal(37)})
    op.rng("special")
    op.gradients("special", lambda x: F.relu(x), {"x": SPECIAL})
    return op


def relu6():
    op = Op("relu6")
    for case, shape in [("plain", (2, 3, 5, 7)), ("odd_length", (37,)), ("special", None)]:
        op.rng(case)
        edge = torch.cat([SPECIAL, torch.tensor([6.0, 5.5, 6.5])])
        x = edge if shape is None else op.normal(*shape, mean=3.0, std=4.0)
        x = torch.where((x - 6).abs() < 0.05, x + 0.1, x) if shape else x  # half precision keeps the side of 6
        op.gradients(case, lambda x: F.relu6(x), {"x": x})
    return op


def leaky_relu():
    op = Op("leaky_relu")
    for case, slope, x in [("default", 0.01, None), ("slope", 0.2, None), ("special", 0.01, SPECIAL)]:
        op.rng(case)
        op.gradients(case, lambda x: F.leaky_relu(x, slope), {"x": op.normal(2, 3, 5, 4) if x is None else x},
                     slope=slope)
    return op


def activation(name, function):
    op = Op(name)
    special = torch.tensor([NAN, 0.0, -0.0, 3.0, -3.0, 2.5, -2.5, 1e-4, -1e-4, 5.0, -5.0, 80.0, -80.0])
    for case, x in [("plain", (2, 3, 5, 7)), ("odd_length", (37,)), ("one", (1,)), ("scalar", ()),
                    ("special", special)]:
        op.rng(case)
        op.gradients(case, lambda x: function(x), {"x": x if case == "special" else op.normal(*x, std=2.0)})
    return op


ACTIVATIONS = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "silu": F.silu, "hardsigmoid": F.hardsigmoid,
               "hardswish": F.hardswish, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
               "elu": F.elu, "softplus": F.softplus,
               "clamp": lambda x: torch.clamp(x, -2.5, 3)}


def maxpool2d():
    op = Op("maxpool2d")
    #        case            shape        kernel  stride  padding dilation values
    cases = [("plain",           (2, 4, 6, 3), (2, 2), (2, 2), (0, 0), (1, 1), "normal"),
             ("overlap",         (1, 7, 6, 2), (3, 2), (2, 1), (1, 0), (1, 1), "normal"),
             ("stem",            (1, 8, 7, 4), (3, 3), (2, 2), (1, 1), (1, 1), "normal"),
             ("dilation",        (2, 7, 9, 3), (2, 3), (1, 2), (1, 1), (3, 2), "normal"),
             ("remainder",       (1, 5, 8, 3), (2, 3), (2, 3), (0, 0), (1, 1), "normal"),
             ("ties",            (2, 6, 7, 3), (3, 2), (2, 1), (1, 1), (1, 1), "ties"),
             ("ties_dilation",   (1, 7, 6, 2), (2, 2), (1, 1), (0, 1), (2, 1), "ties"),
             ("all_negative",    (1, 4, 5, 2), (3, 2), (1, 1), (1, 1), (1, 1), "negative"),
             ("nan",             (1, 6, 5, 3), (2, 2), (2, 1), (0, 0), (1, 1), "nan"),
             ("nan_twice",       (1, 4, 3, 2), (3, 3), (1, 1), (1, 1), (1, 1), "nan_twice"),
             ("minus_infinity",  (1, 4, 5, 2), (2, 3), (2, 1), (1, 1), (1, 1), "minus_infinity"),
             ("window_over_255", (1, 17, 18, 2), (16, 17), (1, 1), (0, 0), (1, 1), "ties")]
    for case, shape, kernel, stride, padding, dilation, values in cases:
        op.rng(case)
        x = op.normal(*shape)
        if values == "ties":
            x = torch.from_numpy(op.random.integers(-1, 2, shape).astype(np.float32))
        elif values == "negative":
            x = -x.abs() - 0.5
        elif values == "nan":
            x[0, 1, 1, 0] = x[0, 3, 4, 2] = NAN
        elif values == "nan_twice":
            x[0, 0, 1, 0] = x[0, 1, 0, 0] = x[0, 3, 2, 0] = NAN
        elif values == "minus_infinity":
            x[..., 0] = -INF
            x[0, 0, :, 1] = -INF
        op.gradients(case, lambda x: F.max_pool2d(x, kernel, stride, padding, dilation), {"x": x}, images=("x",),
                     kernel=kernel, stride=stride, padding=padding, dilation=dilation)
        _, index = F.max_pool2d(x.permute(0, 3, 1, 2).contiguous(), kernel, stride, padding, dilation,
                                return_indices=True)
        op.tensors[f"{case}.index"] = index.permute(0, 2, 3, 1).contiguous()
    return op


def avgpool2d():
    op = Op("avgpool2d")
    for case, shape, kernel, stride, padding in [("plain", (2, 4, 6, 3), (2, 2), (2, 2), (0, 0)),
                                                 ("overlap", (1, 6, 7, 2), (3, 2), (2, 1), (0, 0)),
                                                 ("padding", (2, 5, 6, 3), (3, 2), (2, 2), (1, 1)),
                                                 ("padding_overlap", (1, 5, 7, 2), (4, 3), (1, 2), (2, 1)),
                                                 ("whole_image", (2, 3, 5, 4), (3, 5), (3, 5), (0, 0))]:
        for include in (True, False) if padding != (0, 0) else (True,):
            name = case if include else case + "_excluded"
            op.rng(name)
            op.gradients(name, lambda x: F.avg_pool2d(x, kernel, stride, padding, count_include_pad=include),
                         {"x": op.normal(*shape)}, images=("x",), kernel=kernel, stride=stride, padding=padding,
                         count_include_pad=include)
    return op


def adaptive_avgpool2d():
    op = Op("adaptive_avgpool2d")
    for case, shape, size in [("global", (2, 3, 5, 4), (1, 1)), ("divisible", (1, 4, 6, 3), (2, 3)),
                              ("non_divisible", (2, 5, 7, 3), (2, 3)), ("one_row", (1, 7, 5, 2), (1, 4)),
                              ("same", (1, 3, 4, 2), (3, 4)), ("larger", (1, 2, 3, 2), (5, 7))]:
        op.rng(case)
        op.gradients(case, lambda x: F.adaptive_avg_pool2d(x, size), {"x": op.normal(*shape)}, images=("x",),
                     output_size=size)
    return op


def binary(name, function):
    """b has a's shape, or 1 for a run of its dimensions."""
    op = Op(name)
    #        case          a             b
    cases = [("plain",       (2, 3, 5, 4), None), ("odd_length", (37,), None), ("one", (1,), None),
             ("scalar",      (), None),
             ("image",       (2, 3, 5, 4), (2, 1, 1, 4)), ("image_odd", (3, 4, 3, 7), (3, 1, 1, 7)),
             ("image_wide",  (2, 2, 3, 133), (2, 1, 1, 133)), ("image_row", (1, 1, 6, 8), (1, 1, 1, 8)),
             ("channels",    (2, 3, 5, 6), (6,)), ("channels_one", (3, 5, 2, 4), (1, 1, 1, 4)),
             ("pixels",      (2, 3, 4, 5), (2, 3, 4, 1)), ("images_alone", (3, 2, 4, 5), (3, 1, 1, 1)),
             ("batch",       (3, 2, 4, 5), (2, 4, 5)), ("batch_one", (3, 2, 4, 5), (1, 2, 4, 5)),
             ("number",      (3, 2, 4, 5), ()), ("number_one", (37,), (1,)), ("one_more", (4, 1, 3), (1, 3))]
    for case, a, b in cases:
        op.rng(case)
        inputs = {"a": op.normal(*a), "b": op.normal(*(a if b is None else b))}
        if name == "div":
            inputs["b"] = inputs["b"].sign() * (inputs["b"].abs() + 0.5)
        op.gradients(case, function, inputs)
    return op


BINARIES = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b}


def scale():
    op = Op("scale")
    for case, alpha, shape in [("plain", 0.7, (2, 3, 5)), ("negative", -3.0, (37,)), ("zero", 0.0, (4, 3)),
                               ("one", 1.0, (5,))]:
        op.rng(case)
        op.gradients(case, lambda x: x * alpha, {"x": op.normal(*shape)}, alpha=alpha)
    return op


def add_scalar():
    op = Op("add_scalar")
    for case, alpha, shape in [("plain", 0.7, (2, 3, 5)), ("negative", -3.0, (37,))]:
        op.rng(case)
        op.gradients(case, lambda x: x + alpha, {"x": op.normal(*shape)}, alpha=alpha)
    return op


def reduction(name, function):
    op = Op(name)
    for case, shape in [("plain", (2, 3, 5, 4)), ("odd_length", (37,)), ("one", (1,)), ("long", (1033,))]:
        op.rng(case)
        op.gradients(case, function, {"x": op.normal(*shape, mean=0.25)})
    return op


def sum_():
    return reduction("sum", lambda x: x.sum())


def mean():
    return reduction("mean", lambda x: x.mean())


def concat():
    op = Op("concat")
    for case, n, h, w, channels in [("two", 2, 3, 4, (2, 5)), ("three", 1, 4, 3, (3, 1, 6)), ("one", 2, 2, 3, (4,)),
                                    ("one_pixel", 3, 1, 1, (2, 3)), ("four", 1, 2, 3, (5, 2, 17, 1))]:
        op.rng(case)
        inputs = {f"x{i}": op.normal(n, h, w, c) for i, c in enumerate(channels)}
        op.gradients(case, lambda **x: torch.cat(list(x.values()), 1), inputs, images=tuple(inputs),
                     n_inputs=len(channels))
    return op


def embedding():
    op = Op("embedding")
    for case, index, vocabulary, dim in [("plain", [3, 0, 5], 7, 4), ("duplicates", [2, 4, 2, 0, 2, 4, 6, 2], 7, 5),
                                         ("all_equal", [1] * 9, 3, 4), ("rank2", [[0, 4, 2], [4, 4, 1]], 5, 3)]:
        op.rng(case)
        op.gradients(case, lambda w: F.embedding(torch.tensor(index), w), {"w": op.normal(vocabulary, dim)},
                     index=torch.tensor(index))
    return op


def places(random, shape, dim, extent, repeated):
    """An index tensor; without repetition no line along dim names a place twice."""
    if repeated:
        return torch.from_numpy(random.integers(0, extent, shape))
    lines = np.moveaxis(np.zeros(shape, dtype=np.int64), dim, -1)
    for line in np.ndindex(lines.shape[:-1]):
        lines[line] = random.permutation(extent)[:shape[dim]]
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(lines, -1, dim)))


#         case              x             index         dim
PLACES = [("vector",        (7,),         (5,),         0),
          ("rows",          (5, 4),       (3, 4),       0),
          ("columns",       (3, 6),       (3, 4),       1),
          ("smaller",       (5, 4),       (3, 2),       0),
          ("channels",      (2, 3, 4, 5), (2, 3, 4, 3), 3),
          ("height",        (2, 5, 3, 4), (1, 4, 3, 2), 1),
          ("batch",         (4, 2, 3, 2), (3, 2, 1, 2), -4),
          ("many",          (3, 9),       (3, 6),       1)]


def gather():
    op = Op("gather")
    for case, shape, size, dim in PLACES:
        op.rng(case)
        index = places(op.random, size, dim, shape[dim], True)
        op.gradients(case, lambda x: torch.gather(x, dim, index), {"x": op.normal(*shape)}, index=index, dim=dim)
    return op


def scatter():
    op = Op("scatter")
    for add in (0, 1):
        for case, shape, size, dim in PLACES:
            case = f"add_{case}" if add else case
            op.rng(case)
            index = places(op.random, size, dim, shape[dim], bool(add))
            function = torch.scatter_add if add else torch.scatter
            op.gradients(case, lambda x, src: function(x, dim, index, src),
                         {"x": op.normal(*shape), "src": op.normal(*size)}, index=index, dim=dim, add=add)
    return op


def upsample():
    op = Op("upsample")
    #        case                  shape        output   mode        align_corners
    cases = [("nearest_x2",         (2, 3, 4, 3), (6, 8), "nearest", None),
             ("nearest_ratio",      (1, 3, 4, 2), (7, 5), "nearest", None),
             ("nearest_smaller",    (1, 7, 5, 3), (4, 3), "nearest", None),
             ("nearest_from_one",   (2, 1, 1, 3), (3, 2), "nearest", None),
             ("bilinear_x2",        (2, 3, 4, 3), (6, 8), "bilinear", False),
             ("bilinear_ratio",     (1, 3, 4, 2), (7, 5), "bilinear", False),
             ("bilinear_smaller",   (1, 7, 5, 3), (4, 3), "bilinear", False),
             ("bilinear_same",      (1, 3, 4, 2), (3, 4), "bilinear", False),
             ("bilinear_from_one",  (2, 1, 1, 3), (3, 2), "bilinear", False),
             ("corners_x2",         (2, 3, 4, 3), (6, 8), "bilinear", True),
             ("corners_ratio",      (1, 3, 4, 2), (7, 5), "bilinear", True),
             ("corners_smaller",    (1, 7, 5, 3), (4, 3), "bilinear", True),
             ("corners_to_one",     (2, 3, 4, 2), (1, 5), "bilinear", True),
             ("corners_from_one",   (1, 1, 3, 2), (4, 1), "bilinear", True)]
    for case, shape, size, mode, corners in cases:
        op.rng(case)
        op.gradients(case, lambda x: F.interpolate(x, size=size, mode=mode, align_corners=corners),
                     {"x": op.normal(*shape)}, images=("x",), output_size=size, bilinear=mode == "bilinear",
                     align_corners=bool(corners))
        if mode == "nearest":  # PyTorch finds the source with an f32 factor; here that is floor(p * in / out) exactly
            x, y = op.tensors[f"{case}.x"], op.tensors[f"{case}.y"]
            rows = [p * shape[1] // size[0] for p in range(size[0])]
            columns = [q * shape[2] // size[1] for q in range(size[1])]
            assert torch.equal(y, x[:, rows][:, :, columns])
    return op


def cross_entropy():
    op = Op("cross_entropy")
    #        case            rows classes smoothing ignore ignored rows  std
    cases = [("plain",             5, 7, 0.0, -100, (), 1.0),
             ("one_row",           1, 4, 0.0, -100, (), 1.0),
             ("smoothing",         5, 7, 0.1, -100, (), 1.0),
             ("ignore",            6, 5, 0.0, -100, (1, 4), 1.0),
             ("ignore_class",      6, 5, 0.0, 2, (0, 3), 1.0),
             ("smoothing_ignore",  6, 5, 0.2, -100, (0, 5), 1.0),
             ("all_ignored",       3, 4, 0.0, -100, (0, 1, 2), 1.0),
             ("large",             4, 6, 0.0, -100, (), 60.0),
             ("large_smoothing",   4, 6, 0.1, -100, (), 60.0),
             ("many_classes",      3, 67, 0.1, -100, (1,), 2.0)]
    for case, rows, classes, smoothing, ignore, ignored, std in cases:
        op.rng(case)
        x = op.normal(rows, classes, std=std)
        target = torch.from_numpy(op.random.integers(0, classes, rows))
        if ignore >= 0:
            target[target == ignore] = ignore + 1
        target[list(ignored)] = ignore
        op.gradients(case, lambda x: F.cross_entropy(x, target, ignore_index=ignore, label_smoothing=smoothing),
                     {"x": x}, dy=torch.tensor(1.75), target=target, label_smoothing=smoothing, ignore_index=ignore)
    #        case               rows classes smoothing ignored shares weights
    cases = [("weights",           6, 5, 0.0, (), False, True),
             ("weights_smoothing", 6, 5, 0.2, (2,), False, True),
             ("shares",            5, 7, 0.0, (), True, False),
             ("shares_smoothing",  5, 7, 0.1, (), True, False),
             ("shares_weights",    4, 6, 0.1, (), True, True)]
    for case, rows, classes, smoothing, ignored, shares, weights in cases:
        op.rng(case)
        x = op.normal(rows, classes)
        target = torch.from_numpy(op.random.integers(0, classes, rows))
        target[list(ignored)] = -100
        if shares:
            target = op.normal(rows, classes).softmax(1)
            target[0] = F.one_hot(torch.tensor(1), classes)
        weight = op.normal(classes).double().exp().float() if weights else None

        def loss(x, target=target, weight=weight, smoothing=smoothing):
            return F.cross_entropy(x, target.double() if target.is_floating_point() else target,
                                   weight.double() if weight is not None else None, label_smoothing=smoothing)

        op.gradients(case, loss, {"x": x}, dy=torch.tensor(1.75), target=target, weight=weight,
                     label_smoothing=smoothing, ignore_index=-100)
    return op


def class_rows(op, case, rows, classes, ignored, std=1.0):
    op.rng(case)
    target = torch.from_numpy(op.random.integers(0, classes, rows))
    target[list(ignored)] = -100
    return op.normal(rows, classes, std=std), target


def bce():
    op = Op("bce")
    #        case           rows classes ignored shares weights gamma alpha std
    cases = [("plain",         5, 4, (), True, False, 0.0, -1.0, 1.0),
             ("classes",       5, 4, (2,), False, False, 0.0, -1.0, 1.0),
             ("pos_weight",    6, 3, (0,), False, True, 0.0, -1.0, 1.0),
             ("shares_weight", 6, 3, (), True, True, 0.0, -1.0, 1.0),
             ("one_class",     7, 1, (), True, False, 0.0, -1.0, 1.0),
             ("focal",         5, 4, (), False, False, 2.0, 0.25, 1.0),
             ("focal_ignore",  5, 4, (1, 4), False, False, 1.5, -1.0, 1.0),
             ("focal_low",     5, 4, (), False, False, 0.5, 0.75, 1.0),
             ("focal_shares",  4, 3, (), True, False, 2.0, 0.25, 1.0),
             ("large",         6, 4, (), False, False, 0.0, -1.0, 40.0),
             ("focal_large",   6, 4, (), False, False, 2.0, 0.25, 10.0)]
    for case, rows, classes, ignored, shares, weights, gamma, alpha, std in cases:
        x, target = class_rows(op, case, rows, classes, ignored, std)
        if shares:
            target = op.normal(rows, classes).sigmoid()
            target[0] = 1
        weight = op.normal(classes).double().exp().float() if weights else None

        def loss(x, target=target, weight=weight, gamma=gamma, alpha=alpha):
            rows = slice(None) if target.is_floating_point() else target >= 0
            t = target.double() if target.is_floating_point() else F.one_hot(target[rows], x.shape[1]).double()
            if gamma > 0:
                return torchvision.ops.sigmoid_focal_loss(x[rows], t, alpha, gamma, "mean")
            w = weight.double() if weight is not None else None
            return F.binary_cross_entropy_with_logits(x[rows], t, pos_weight=w)

        op.gradients(case, loss, {"x": x}, dy=torch.tensor(1.75), target=target, pos_weight=weight, gamma=gamma,
                     alpha=alpha, ignore_index=-100)
    return op


def dice_loss(x, target, smooth):
    """segmentation_models.pytorch's DiceLoss("multiclass", ignore_index=-100), in one formula; `--check` compares the
    two where that package is installed."""
    rows = target >= 0
    p, t = x[rows].softmax(1), F.one_hot(target[rows], x.shape[1]).to(x.dtype)
    score = ((p * t).sum(0) + smooth) / ((p + t).sum(0) / 2 + smooth).clamp_min(1e-7)
    loss = ((1 - score) * (t.sum(0) > 0)).mean()
    if importlib.util.find_spec("segmentation_models_pytorch"):
        from segmentation_models_pytorch.losses import DiceLoss
        theirs = DiceLoss("multiclass", smooth=smooth, ignore_index=-100)(x.T[None, :, :, None], target[None, :, None])
        assert torch.allclose(loss, theirs, rtol=1e-6, atol=0), (loss, theirs)
    return loss


def dice():
    op = Op("dice")
    cases = [("plain", 9, 4, (), 0.0, 1.0), ("smooth", 9, 4, (), 1.0, 1.0), ("ignore", 9, 4, (1, 7), 0.5, 1.0),
             ("absent", 3, 5, (), 1.0, 1.0), ("large", 7, 3, (), 0.0, 20.0), ("many_classes", 30, 67, (3,), 0.0, 2.0)]
    for case, rows, classes, ignored, smooth, std in cases:
        x, target = class_rows(op, case, rows, classes, ignored, std)
        op.gradients(case, functools.partial(dice_loss, target=target, smooth=smooth), {"x": x},
                     dy=torch.tensor(1.75), target=target, smooth=smooth)
    return op


def distance(name, function):
    op = Op(name)
    for case, shape, beta in [("plain", (2, 3, 5, 4), 1.0), ("odd_length", (37,), 0.5), ("one", (1,), 1.0),
                              ("wide", (40,), 2.5), ("no_beta", (9,), 0.0), ("equal", (12,), 1.0)]:
        if name != "smooth_l1" and (beta == 0 or (name == "mse" and case in ("wide", "equal"))):
            continue
        op.rng(case)
        x, t = op.normal(*shape), op.normal(*shape)
        if case == "equal":
            t[::2] = x[::2]
        more = {"beta": beta} if name == "smooth_l1" else {}
        op.gradients(case, lambda x, t: function(x, t, **more), {"x": x, "t": t}, **more)
    return op


DISTANCES = {"mse": F.mse_loss, "l1": F.l1_loss, "smooth_l1": F.smooth_l1_loss}


def cast():
    """y = x in another type; for float types also dx = dy in the type of x. No arithmetic: compare bit by bit
    (NaN: as NaN)."""
    op = Op("cast")
    types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
    bits = [0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,  # zeros, infinities, NaN
            0x00000001, 0x807fffff, 0x33000000, 0x33000001, 0x33800000,  # f32 subnormals; around f16's 2^-25, 2^-24
            0x387fc000, 0x387fe000, 0x387fffff, 0x38800000,              # f16: largest subnormal, smallest normal
            0x3f801000, 0x3f803000, 0x3f801001, 0x3f808000, 0x3f818000,  # ties of f16 and of bf16
            0x477fe000, 0x477fefff, 0x477ff000, 0x47800000,              # f16: largest, below the tie, tie, 2^16
            0x7f7f0000, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff]              # bf16: largest, below the tie, tie, f32 max
    special = torch.from_numpy(np.array(bits, dtype=np.uint32).view(np.float32).copy())
    for source, target in [("f32", "f16"), ("f32", "bf16"), ("f32", "f64"), ("f16", "f32"), ("bf16", "f32"),
                           ("f64", "f32")]:
        case = f"{source}_to_{target}"
        op.rng(case)
        x, dy = torch.cat([special, op.normal(38)]).to(types[source]), op.normal(len(bits) + 38).to(types[target])
        op.add_exact(case, x=x, y=x.to(types[target]), dy=dy, dx=dy.to(types[source]))
    whole = torch.tensor([0.0, 1.0, -1.0, 2.9, -2.9, 100.5, -100.5, 127.0])
    for target, dtype in [("i64", torch.int64), ("i32", torch.int32), ("i16", torch.int16), ("i8", torch.int8),
                          ("u8", torch.uint8), ("bool", torch.bool)]:
        x = whole.abs() if target == "u8" else whole
        op.add_exact(f"f32_to_{target}", x=x, y=x.to(dtype))
        back = x.to(dtype)
        op.add_exact(f"{target}_to_f32", x=back, y=back.to(torch.float32))
    large = torch.tensor([2**24 + 1, 2**24 + 3, -(2**53) - 1, 2**62 + 2**38 + 1, 7])
    op.add_exact("large_i64_to_f32", x=large, y=large.to(torch.float32))
    return op


OPS = [conv2d, conv_transpose2d, linear, matmul, batchnorm2d, group_norm, relu, relu6, leaky_relu,
       *(functools.partial(activation, *item) for item in ACTIVATIONS.items()), maxpool2d, avgpool2d,
       adaptive_avgpool2d, *(functools.partial(binary, *item) for item in BINARIES.items()), scale, add_scalar,
       functools.partial(softmax, "softmax", F.softmax), functools.partial(softmax, "log_softmax", F.log_softmax), sum_,
       mean, concat, embedding, gather, scatter, upsample, cross_entropy, bce, dice,
       *(functools.partial(distance, *item) for item in DISTANCES.items()), lambda: strided(Op("strided")), cast]


def same(a, b, name):
    """Whether two files agree: types, shapes and integers exactly, floats to the last bit but one."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{name}: {a.dtype} {list(a.shape)} in the file, {b.dtype} {list(b.shape)} computed"
    close = torch.allclose(a.double(), b.double(), rtol=1.2e-7, atol=1e-12, equal_nan=True)
    return None if close else f"{name}: other values in the file than computed"


def check(op, path):
    faults = []
    with safe_open(path, "pt") as f:
        if sorted(f.keys()) != sorted(op.tensors):
            faults.append(f"{op.name}: other tensors in the file than computed")
        else:
            faults += [same(f.get_tensor(k), v, f"{op.name}: {k}") for k, v in op.tensors.items()]
        if f.metadata() != {"cases": " ".join(op.cases)}:
            faults.append(f"{op.name}: other cases in the file than computed")
    return [fault for fault in faults if fault]


def main():
    parser = argparse.ArgumentParser(description="Makes or checks the golden values of all ops.")
    parser.add_argument("--check", action="store_true", help="compare with the files, write nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    faults, total = [], 0
    for make in OPS:
        op = make()
        path = os.path.join(HERE, op.name + ".safetensors")
        if args.check:
            faults += check(op, path)
        else:
            op.write(path)
        total += os.path.getsize(path)
        print(f"{op.name:20} {len(op.cases):3} cases {os.path.getsize(path):7} bytes")
    print(f"{'total':20} {total:17} bytes")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
