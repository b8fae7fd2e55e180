#!/usr/bin/env python3
"""Makes tests/golden/empty.inc: what PyTorch computes for every op of ops.h with each dimension 0 in turn.

    python3 tests/golden/make_empty.py            # writes the file beside this script
    python3 tests/golden/make_empty.py --check    # computes all and compares with the file

An input is filled with one number (VALUE), dy with 1, so that a result and each gradient is one number, too: the bias,
0 or NaN, or it has no elements. A row of the table is

    {op, name of the dimension that is 0, refused by PyTorch, shapes of the inputs, shape and value of y, gradients}

A new op of ops.h needs a row in OPS; the script fails without it, and so does tests/ops/test_empty.c.
"""
import os
import re
import sys

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
VALUE = (2.0, 3.0, 0.5, 1.5)
SIZE = dict(N=2, H=4, W=5, C=4, K=6, R=3, S=2, I=3, O=5, P=2, V=7, D=3)


def nchw(x):
    return x.permute(0, 3, 1, 2)


def image(function):
    return lambda x, *rest: function(nchw(x), *rest).permute(0, 2, 3, 1)


def filters(function, of_x=1):
    """Of no channels PyTorch makes images of no channels; the sum over nothing is that over a channel of zeros."""
    def run(x, w, b):
        x, w = nchw(x), nchw(w)
        if x.shape[1] == 0:
            x = torch.cat([x, torch.zeros_like(x.sum(1, True))], 1)
            w = torch.cat([w, torch.zeros_like(w.sum(of_x, True))], of_x)
        return function(x, w, b).permute(0, 2, 3, 1)
    return run


def norm(train):
    def run(x, gamma, beta):
        mean, var = torch.zeros(x.shape[3]).double(), torch.ones(x.shape[3]).double()
        return image(lambda v: F.batch_norm(v, mean, var, gamma, beta, train))(x)
    return run


def rows(function):
    """Losses take the classes last, PyTorch has them second."""
    return lambda x: function(x.reshape(-1, x.shape[-1]), torch.zeros(x.shape[:-1], dtype=torch.int64).reshape(-1))


def bce(x, target):
    hot = F.one_hot(target, x.shape[1]).double() if x.numel() else torch.zeros_like(x)
    return F.binary_cross_entropy_with_logits(x, hot)


def dice(x, target):
    hot = F.one_hot(target, x.shape[1]).double() if x.numel() else torch.zeros_like(x)
    p = F.softmax(x, 1)
    some, sums = hot.sum(0) > 0, p.sum(0) + hot.sum(0)
    return torch.where(some, 1 - 2 * (p * hot).sum(0) / torch.where(some, sums, 1), 0 * p.sum(0)).mean()


def count(x, target):
    return (x.argmax(1) == target).sum()


def indexed(function):
    return lambda x, *src: function(x, torch.zeros(src[0].shape if src else x.shape, dtype=torch.int64), *src)


IMAGE, ROWS, SAME = ["NHWC"], ["NHWC"], ["NHC"]
UNARY = dict(relu=F.relu, relu6=F.relu6, sigmoid=torch.sigmoid, tanh=torch.tanh, silu=F.silu, hardsigmoid=F.hardsigmoid,
             hardswish=F.hardswish, gelu=F.gelu, gelu_tanh=lambda x: F.gelu(x, approximate="tanh"), elu=F.elu,
             softplus=F.softplus,
             leaky_relu=lambda x: F.leaky_relu(x, 0.25), clamp=lambda x: x.clamp(-1, 1),
             softmax=lambda x: F.softmax(x, -1), log_softmax=lambda x: F.log_softmax(x, -1), scale=lambda x: 3 * x,
             add_scalar=lambda x: x + 3, cast=lambda x: x * 1, sum=torch.sum, mean=torch.mean,
             reshape=lambda x: x.reshape(x.shape[::-1]), flatten=lambda x: x.flatten(1),
             narrow=lambda x: x.narrow(1, 0, x.shape[1] // 2), slice=lambda x: x[:, 1::2],
             permute=lambda x: x.permute(2, 0, 1), pad=lambda x: F.pad(x, (1, 0, 0, 2), value=7))
BINARY = dict(add=torch.add, sub=torch.sub, mul=torch.mul, div=torch.div)

# name of the case: shapes of the inputs by dimension ("NHC": 3 of them), function. A name before "." is the op's.
OPS = {
    "conv2d": (["NHWC", "KRSC", "K"], filters(lambda x, w, b: F.conv2d(x, w, b, padding=1))),
    "conv2d.pointwise": (["NHWC", "K11C", "K"], filters(F.conv2d)),
    "conv_transpose2d": (["NHWK", "KRSC", "C"], filters(lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2), 0)),
    "linear": (["NI", "OI", "O"], F.linear),
    "matmul": (["NHI", "IO"], torch.matmul),
    "batchnorm2d": (["NHWC", "C", "C"], norm(True)),
    "batchnorm2d.eval": (["NHWC", "C", "C"], norm(False)),
    "group_norm": (["NHWC", "C", "C"], lambda x, g, b: image(lambda v: F.group_norm(v, 2, g, b))(x)),
    "layer_norm": (["NHC", "C", "C"], lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b)),
    "inplace_abn": (["NHWC", "C", "C"], lambda x, g, b: F.leaky_relu(norm(True)(x, g.abs() + 1e-5, b), 0.01)),
    "maxpool2d": (IMAGE, image(lambda x: F.max_pool2d(x, 2))),
    "avgpool2d": (IMAGE, image(lambda x: F.avg_pool2d(x, 2))),
    "adaptive_avgpool2d": (IMAGE, image(lambda x: F.adaptive_avg_pool2d(x, 2))),
    "upsample": (IMAGE, image(lambda x: F.interpolate(x, size=(6, 7)))),
    "upsample.bilinear": (IMAGE, image(lambda x: F.interpolate(x, size=(6, 7), mode="bilinear"))),
    "pixel_shuffle": (IMAGE, image(lambda x: F.pixel_shuffle(x, 2))),
    "pixel_unshuffle": (["NHPC"], image(lambda x: F.pixel_unshuffle(x, 2))),
    "concat": (["NHC", "NHD"], lambda a, b: torch.cat([a, b], -1)),
    "dropout": (SAME, lambda x: F.dropout(x, 0.5, False)),
    "dropout2d": (IMAGE, lambda x: F.dropout2d(x, 0.5, False)),
    "stochastic_depth": (IMAGE, lambda x: x * 1),
    "dropout.all": (SAME, lambda x: F.dropout(x, 1.0, True)),
    "dropout2d.all": (IMAGE, lambda x: F.dropout2d(x, 1.0, True)),
    "stochastic_depth.all": (IMAGE, lambda x: x * 0),
    "embedding": (["VD", "NO"], lambda w, i: F.embedding(torch.zeros(i.shape, dtype=torch.int64), w)),
    "gather": (SAME, indexed(lambda x, i: x.gather(1, i))),
    "scatter": (["NHC", "NOC"], indexed(lambda x, i, src: x.scatter(1, i, src))),
    "scatter_add": (["NHC", "NOC"], indexed(lambda x, i, src: x.scatter_add(1, i, src))),
    "cross_entropy": (["NC"], rows(F.cross_entropy)),
    "cross_entropy.image": (ROWS, rows(F.cross_entropy)),
    "bce": (["NC"], rows(bce)),
    "dice": (["NC"], rows(dice)),
    "count_correct": (["NC"], rows(count)),
    "mse": (["NHC", "NHC"], F.mse_loss),
    "l1": (["NHC", "NHC"], F.l1_loss),
    "smooth_l1": (["NHC", "NHC"], F.smooth_l1_loss),
}
OPS |= {name: (SAME, function) for name, function in UNARY.items()}
for name, function in BINARY.items():
    OPS |= {name: (["NHC", "NHC"], function), name + ".vector": (["NHC", "C"], function),
            name + ".image": (["NHWC", "N11C"], function), name + ".pixel": (["NHWC", "NHW1"], function),
            name + ".fewer": (["1HC", "HC"], function), name + ".scalar": (["NHC", ""], function)}
for name in ("relu", "leaky_relu", "relu6", "scale", "add_scalar", "scatter", "scatter_add", *BINARY):
    OPS[name + "_inplace"] = OPS[name]


def number(t):
    """The value of all elements, which must be one."""
    if t is None or t.numel() == 0:
        return "0"
    v = t.flatten()[0].item()
    assert bool(((t == v) | t.isnan()).all()), t
    return "NAN" if v != v else "%.9g" % v


def shape(s):
    return "{%s}" % ", ".join(map(str, [len(s), *s]))


def row(name, zero, shapes, function):
    given = [torch.full([int(c) if c == "1" else 0 if c == zero else SIZE[c] for c in s], VALUE[i]).double()
             for i, s in enumerate(shapes)]
    for t in given:
        t.requires_grad_(True)
    inputs = ", ".join(shape(t.shape) for t in given)
    try:
        y = function(*given)
        grads = [None] * len(given)
        if y.requires_grad:
            grads = torch.autograd.grad(y, given, torch.ones_like(y), allow_unused=True)
    except (RuntimeError, ValueError, IndexError):
        return f'{{"{name}", "{zero}", true, {{{inputs}}}, {{{shape([])}, 0}}, {{0}}}},'
    return (f'{{"{name}", "{zero}", false, {{{inputs}}}, {{{shape(y.shape)}, {number(y)}}}, '
            f'{{{", ".join(map(number, grads))}}}}},')


def main():
    header = os.path.join(HERE, "..", "..", "include", "frugal", "ops.h")
    declared = re.findall(r"FR_API fr_status fr_(\w+)\(", open(header, encoding="utf-8").read())
    missing = [op for op in declared if op not in OPS]
    if missing:
        sys.exit("make_empty.py: no row for " + ", ".join(missing))
    table = ["/* Made by make_empty.py: do not edit. */"]
    for name, (shapes, function) in OPS.items():
        table += [row(name, zero, shapes, function) for zero in sorted(set("".join(shapes)) - {"1"})]
    text, path = "\n".join(table) + "\n", os.path.join(HERE, "empty.inc")
    if "--check" in sys.argv:
        sys.exit(text != open(path, encoding="utf-8").read())
    open(path, "w", encoding="utf-8").write(text)


main()
