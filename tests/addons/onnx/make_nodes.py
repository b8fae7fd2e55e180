#!/usr/bin/env python3
"""Makes nodes.safetensors: ONNX files of a few nodes, and what ONNX Runtime makes of them.

    python3 make_nodes.py

Of each case CASE.onnx holds the file's bytes; CASE.x0, CASE.x1 ... are its inputs and CASE.y0 ... its results, images
as [N, H, W, C]. A refused case has CASE.refused instead, a part of the sentence. CASE.once: not to be saved again.
Needs onnx, onnxruntime, numpy, safetensors.
"""
import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
N = helper.make_node
tensors = {}


def const(name, value, dtype=np.float32):
    return numpy_helper.from_array(np.array(value, dtype), name)


def ints(name, value):
    return const(name, value, np.int64)


def wave(name, *shape, by=0.37, plus=0.0):
    v = plus + np.sin(by * (1 + np.arange(np.prod(shape))))
    return numpy_helper.from_array(v.reshape(shape).astype(np.float32), name)


def nhwc(a):
    return np.ascontiguousarray(a.transpose(0, 2, 3, 1) if a.ndim == 4 else a)


def case(name, nodes, inputs, outputs, init=(), opset=18, refused=None, once=False, dims=None):
    """inputs: name to shape; dims: shapes that the file says, if others."""
    said = {**inputs, **(dims or {})}
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info(n, TensorProto.FLOAT, s) for n, s in said.items()],
                              [info(n, TensorProto.FLOAT, None) for n in outputs], list(init))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    data = model.SerializeToString()
    tensors[name + ".onnx"] = np.frombuffer(data, np.uint8).copy()
    if refused is not None:
        tensors[name + ".refused"] = np.frombuffer(refused.encode(), np.uint8).copy()
        return
    if once:
        tensors[name + ".once"] = np.zeros(1, np.uint8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    feeds = {n: np.sin(1.0 + np.arange(np.prod(s))).reshape(s).astype(np.float32) for n, s in inputs.items()}
    for i, x in enumerate(feeds.values()):
        tensors[f"{name}.x{i}"] = nhwc(x)
    for i, y in enumerate(session.run(None, feeds)):
        tensors[f"{name}.y{i}"] = nhwc(y)


def gemm(x, y, name="g"):
    return N("Gemm", [x, name + ".weight", name + ".bias"], [y], transB=1)


def linear(features, out=4, name="g"):
    return [wave(name + ".weight", out, features), wave(name + ".bias", out)]


def pads_and_windows():
    ones = ints("pads", [0, 0, 1, 1, 0, 0, 1, 1])
    image = {"x": [1, 2, 5, 5]}
    case("pad_before_ceil_pool", [N("Pad", ["x", "pads"], ["p"]),
                                  N("AveragePool", ["p"], ["y"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)],
         image, ["y"], [ones])
    case("pad_of_2_before_pool", [N("Pad", ["x", "two"], ["p"]), N("AveragePool", ["p"], ["y"], kernel_shape=[3, 3])],
         image, ["y"], [ints("two", [0, 0, 2, 2, 0, 0, 2, 2])])
    case("pad_before_padded_pool", [N("Pad", ["x", "pads"], ["p"]),
                                    N("AveragePool", ["p"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])],
         image, ["y"], [ones])
    case("pad_before_one_of_two_convs",
         [N("Pad", ["x", "pads"], ["p"]), N("Conv", ["p", "c.weight"], ["y"]), N("Conv", ["x", "c.weight"], ["z"])],
         image, ["y", "z"], [ones, wave("c.weight", 3, 2, 3, 3)])
    case("pad_with_one", [N("Pad", ["x", "pads", "v"], ["y"])], image, ["y"], [ones, const("v", 1)],
         refused="node of 'y' (Pad, 1 of 1): it pads with 1; frugal pads with zeros")
    case("pad_by_reflection", [N("Pad", ["x", "pads"], ["y"], mode="reflect")], image, ["y"], [ones],
         refused="mode 'reflect', 8 pads; frugal pads with zeros")
    case("kernel_shape_of_another_weight", [N("Conv", ["x", "w"], ["y"], kernel_shape=[5, 5])], image, ["y"],
         [wave("w", 3, 2, 3, 3)], refused="its kernel_shape has 2 numbers, from 5; its weight is 3 x 3")
    case("kernel_shape_of_one_number", [N("Conv", ["x", "w"], ["y"], kernel_shape=[3])], image, ["y"],
         [wave("w", 3, 2, 3, 3)], refused="its kernel_shape has 1 numbers, from 3; its weight is 3 x 3")
    case("group_as_float", [N("Conv", ["x", "w"], ["y"], group=1.5)], image, ["y"], [wave("w", 3, 2, 3, 3)],
         refused="its attribute 'group' is no integer")
    beside = wave("w", 4, 2, 1, 1)
    onnx.external_data_helper.set_external_data(beside, "data.bin")
    beside.ClearField("raw_data")
    case("data_beside", [N("Conv", ["x", "w"], ["y"])], image, ["y"], [beside], refused="data.bin': cannot be opened")
    case("mode_as_integer", [N("DepthToSpace", ["x"], ["y"], mode=1, blocksize=1)], image, ["y"],
         refused="its attribute 'mode' is no text")


def resizing():
    half = dict(mode="linear", coordinate_transformation_mode="half_pixel")
    floor = dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    case("scale_keeps_the_size", [N("Resize", ["x", "", "s"], ["y"], **floor)], {"x": [1, 1, 20, 20]}, ["y"],
         [const("s", [1, 1, 1.05, 1.05])], refused="to 21 x 21, which is not 20 x 20 by one whole factor")
    case("scale_of_another_ratio", [N("Relu", ["e"], ["r"]), N("Resize", ["x", "", "s"], ["y"], **half)],
         {"x": [1, 1, 3, 3], "e": [1, 1, 7, 7]}, ["y", "r"], [const("s", [1, 1, 2.5, 2.5])],
         refused="its scale 2.5 makes 7 pixels of 3; frugal resizes by the ratio 2.33333")
    case("scale_below_one", [N("Relu", ["e"], ["r"]), N("Resize", ["x", "", "s"], ["y"], **floor)],
         {"x": [1, 1, 10, 10], "e": [1, 1, 7, 7]}, ["y", "r"], [const("s", [1, 1, 0.7, 0.7])], once=True)
    case("aspect_ratio_kept", [N("Resize", ["x", "", "", "z"], ["y"], keep_aspect_ratio_policy="not_larger", **half)],
         {"x": [1, 1, 3, 3]}, ["y"], [ints("z", [1, 1, 6, 6])], refused="keep_aspect_ratio_policy 'not_larger'")
    case("resize_by_default", [N("Resize", ["x", "", "s"], ["y"], coordinate_transformation_mode="tf_crop_and_resize")],
         {"x": [1, 1, 3, 3]}, ["y"], [const("s", [1, 1, 2, 2])],
         refused="mode 'nearest', coordinates 'tf_crop_and_resize', nearest_mode 'round_prefer_floor'")


def operands():
    relus = [N("Relu", ["a"], ["ra"]), N("Relu", ["b"], ["rb"])]
    case("row_and_images", relus + [N("Add", ["ra", "rb"], ["y"])], {"a": [2, 4, 4, 4], "b": [1, 4]}, ["y"],
         refused="node of 'y' (Add, 3 of 3): its inputs have rank 4 and 2; frugal needs equal ranks")
    for op in "Add", "Mul":
        case("smaller_first_" + op, relus + [N(op, ["rb", "ra"], ["y"])], {"a": [2, 3, 4, 4], "b": [2, 3, 1, 1]}, ["y"])
    case("two_matmuls_of_one_weight_with_a_bias",
         [N("MatMul", ["a", "f.weight"], ["m"]), N("Add", ["m", "c"], ["y"]), N("MatMul", ["b", "f.weight"], ["k"]),
          N("Add", ["k", "c"], ["z"])], {"a": [2, 5], "b": [2, 5]}, ["y", "z"],
         [wave("f.weight", 5, 4), const("c", [10, 20, 30, 40])])


def flattened():
    """Features of flattened images, whose order is another in memory."""
    x = {"x": [2, 3, 2, 2]}
    norm = [wave("n.weight", 12, plus=1), wave("n.bias", 12, by=0.9)]
    flat = N("Flatten", ["x"], ["f"])
    case("flatten_norm", [flat, N("LayerNormalization", ["f", "n.weight", "n.bias"], ["l"]), gemm("l", "y")], x, ["y"],
         norm + linear(12))
    case("flatten_scale", [flat, N("Mul", ["f", "s"], ["l"]), gemm("l", "y")], x, ["y"],
         [wave("s", 12, plus=1)] + linear(12))
    case("flatten_sum", [flat, gemm("f", "q", "q"), N("Add", ["f", "q"], ["l"]), gemm("l", "y")], x, ["y"],
         linear(12, 12, "q") + linear(12))
    case("flatten_gate", [flat, gemm("f", "q", "q"), N("Sigmoid", ["q"], ["s"]), N("Mul", ["f", "s"], ["l"]),
                          gemm("l", "y")], x, ["y"], linear(12, 12, "q") + linear(12))
    case("flatten_and_rows_in_one_linear", [flat, gemm("f", "y"), N("Relu", ["r"], ["s"]), gemm("s", "z")],
         {**x, "r": [2, 12]}, ["y", "z"], linear(12))
    case("flatten_as_result", [flat], x, ["f"])
    case("flatten_relu_linear", [flat, N("Relu", ["f"], ["r"]), gemm("r", "y")], x, ["y"], linear(12))
    case("flattened_side_by_side", [flat, N("Flatten", ["z"], ["k"]), N("Concat", ["f", "k"], ["c"], axis=1),
                                    gemm("c", "y")], {**x, "z": [2, 2, 3, 1]}, ["y"], linear(18))


if __name__ == "__main__":
    for make in pads_and_windows, resizing, operands, flattened:
        make()
    save_file(tensors, os.path.join(HERE, "tiny", "nodes.safetensors"))
    print(sum(name.endswith(".onnx") for name in tensors), "cases")
