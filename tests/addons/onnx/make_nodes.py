#!/usr/bin/env python3
"""Makes nodes.safetensors: ONNX files of a few nodes, and what ONNX Runtime makes of them.

    python3 make_nodes.py

Of each case CASE.onnx holds the file's bytes; CASE.x0, CASE.x1 ... are its inputs and CASE.y0 ... its results, images
as [N, H, W, C]. A refused case has CASE.refused instead, a part of the sentence. CASE.once: not to be saved again.
CASE.layers: the network has as many layers as the tensor has numbers.
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


def case(name, nodes, inputs, outputs, init=(), opset=18, refused=None, once=False, dims=None, last=False, layers=0):
    """inputs: name to shape; dims: shapes that the file says, if others; last: the inputs have their channels last."""
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
    if layers:
        tensors[name + ".layers"] = np.zeros(layers, np.uint8)
    if once:
        tensors[name + ".once"] = np.zeros(1, np.uint8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    feeds = {n: np.sin(1.0 + np.arange(np.prod(s))).reshape(s).astype(np.float32) for n, s in inputs.items()}
    for i, x in enumerate(feeds.values()):
        tensors[f"{name}.x{i}"] = x if last else nhwc(x)
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
    case("pad_by_reflection", [N("Pad", ["x", "pads"], ["y"], mode="reflect")], image, ["y"], [ones],
         refused="mode 'reflect', 8 pads; frugal pads with a constant")
    case("kernel_shape_of_another_weight", [N("Conv", ["x", "w"], ["y"], kernel_shape=[5, 5])], image, ["y"],
         [wave("w", 3, 2, 3, 3)], refused="its kernel_shape has 2 numbers, from 5; its weight is 3 x 3")
    case("kernel_shape_of_one_number", [N("Conv", ["x", "w"], ["y"], kernel_shape=[3])], image, ["y"],
         [wave("w", 3, 2, 3, 3)], refused="its kernel_shape has 1 numbers, from 3; its weight is 3 x 3")
    case("group_as_float", [N("Conv", ["x", "w"], ["y"], group=1.5)], image, ["y"], [wave("w", 3, 2, 3, 3)],
         refused="its attribute 'group' is no integer")
    case("auto_pad_of_a_far_dilation", [N("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", dilations=[2 ** 62, 1])],
         image, ["y"], [wave("w", 3, 2, 3, 3)], refused=f"kernel 3, stride 1 and dilation {2 ** 62} are impossible")
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
         [const("s", [1, 1, 1.05, 1.05])])
    case("scale_of_another_ratio", [N("Relu", ["e"], ["r"]), N("Resize", ["x", "", "s"], ["y"], **half)],
         {"x": [1, 1, 3, 3], "e": [1, 1, 7, 7]}, ["y", "r"], [const("s", [1, 1, 2.5, 2.5])],
         refused="3 pixels become 7 by the scale 2.5; frugal resizes by the ratio")
    case("scale_below_one", [N("Relu", ["e"], ["r"]), N("Resize", ["x", "", "s"], ["y"], **floor)],
         {"x": [1, 1, 10, 10], "e": [1, 1, 7, 7]}, ["y", "r"], [const("s", [1, 1, 0.7, 0.7])], once=True)
    for policy in "not_larger", "not_smaller":
        case(policy, [N("Resize", ["x", "", "", "z"], ["y"], keep_aspect_ratio_policy=policy, axes=[2, 3], **half)],
             {"x": [1, 2, 3, 4]}, ["y"], [ints("z", [6, 12])])
    case("resize_without_an_end", [N("Resize", ["x", "", "", "z"], ["y"])], {"x": [1, 1, 3, 3]}, ["y"],
         [ints("z", [1, 1, 3 * 2 ** 29, 3])], refused="dimension 2 becomes 1.61061e+09")
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


def constant_operands():
    """Numbers, a number per channel, and hard swish written out, on either side."""
    images, rows = {"x": [2, 3, 4, 5]}, {"x": [2, 6]}
    for op in "Add", "Sub", "Mul", "Div":
        second = [N("Relu", ["x"], ["r"]), N(op, ["r", "c"], ["y"])]
        case(f"number_{op}", second, images, ["y"], [const("c", 2.5)])
        case(f"number_of_rank_1_{op}", second, images, ["y"], [const("c", [2.5])])
        case(f"channels_{op}", second, images, ["y"], [wave("c", 3, 1, 1, plus=2)])
        case(f"channels_of_rank_4_{op}", second, images, ["y"], [wave("c", 1, 3, 1, 1, plus=2)])
        case(f"features_{op}", second, rows, ["y"], [wave("c", 6, plus=2)])
        if op != "Div":
            case(f"first_{op}", [N("Relu", ["x"], ["r"]), N(op, ["c", "r"], ["y"])], images, ["y"],
                 [wave("c", 3, 1, 1, plus=2)])
            case(f"first_number_{op}", [N("Relu", ["x"], ["r"]), N(op, ["c", "r"], ["y"])], images, ["y"],
                 [const("c", 2.5)])
        case(f"rows_of_rank_3_{op}", second, rows, ["y"], [wave("c", 1, 1, 6, plus=2)],
             refused="a constant of rank 3, 6 numbers; frugal takes a single number, one per channel, 6, or one per "
                     "element of an image, of rank 2 at most")
        case(f"images_of_rank_5_{op}", second, images, ["y"], [wave("c", 1, 1, 3, 1, 1, plus=2)],
             refused="a constant of rank 5, 3 numbers")
        case(f"number_of_rank_5_{op}", second, images, ["y"], [wave("c", 1, 1, 1, 1, 1, plus=2)],
             refused="a constant of rank 5, 1 numbers")
        case(f"row_of_rank_2_{op}", second, rows, ["y"], [wave("c", 1, 6, plus=2)])
    case("one_over_x", [N("Div", ["c", "x"], ["y"])], images, ["y"], [const("c", 1)])
    case("reciprocal", [N("Reciprocal", ["x"], ["y"])], images, ["y"])
    case("three_over_x", [N("Div", ["c", "x"], ["y"])], images, ["y"], [wave("c", 3, 1, 1)])
    case("pixels_Add", [N("Add", ["x", "c"], ["y"])], images, ["y"], [wave("c", 4, 5)],
         refused="a constant of rank 2, 20 numbers; frugal takes a single number, one per channel, 3, or one per")
    for op in "Add", "Sub", "Mul", "Div", "PRelu":
        case("elements_" + op, [N("Relu" if op != "PRelu" else "Tanh", ["x"], ["r"]), N(op, ["r", "c"], ["y"])],
             images, ["y"], [wave("c", 3, 4, 5, plus=2)])
    case("elements_first", [N("Sub", ["c", "x"], ["y"])], images, ["y"], [wave("c", 1, 3, 4, 5)])
    case("sum", [N("Sum", ["x", "e", "x"], ["s"]), N("Neg", ["s"], ["n"]), N("Mean", ["x", "n"], ["m"]),
                 N("Sum", ["m"], ["y"])], {**images, "e": images["x"]}, ["y"])
    case("sum_of_shapes", [N("Sum", ["x", "e"], ["y"])], {**images, "e": [2, 3, 1, 1]}, ["y"],
         refused="input 1 has another shape than input 0")
    factor = [wave("w", 5, 6)]
    case("gemm_of_one_output", [N("Gemm", ["x", "w", "b"], ["y"], transB=1, alpha=0.5, beta=-2.0)], rows, ["y"],
         [wave("w", 1, 6), wave("b", 1, 1)])
    case("gemm_by_numbers", [N("Gemm", ["x", "w", "b"], ["y"], transB=1, alpha=0.5, beta=-2.0)], rows, ["y"],
         factor + [wave("b", 1, 5)])
    case("gemm_plus_a_number_of_rank_3", [N("Gemm", ["x", "w", "b"], ["y"], transB=1)], rows, ["y"],
         factor + [wave("b", 1, 1, 1)], refused="its bias has rank 3, 1 values")
    case("gemm_plus_a_number", [N("Gemm", ["x", "w", "b"], ["y"], transB=1, beta=0.25)], rows, ["y"],
         factor + [const("b", [3])])
    three, six, zero = const("three", 3), const("six", 6), const("zero", 0)
    for name, by, high, layers in (("of_paddle", "six", "six", 1), ("by_3", "three", "six", 4),
                                   ("to_3", "six", "three", 4)):
        case("hard_swish_" + name, [N("Add", ["x", "three"], ["a"]), N("Clip", ["a", "zero", high], ["b"]),
                                    N("Mul", ["x", "b"], ["c"]), N("Div", ["c", by], ["y"])], images, ["y"],
             [three, six, zero], layers=layers)
    numbers = [const("one", 1), const("half", 0.5), const("up", 2 ** 0.5), const("down", 0.5 ** 0.5)]
    for head, by in ("Div", "up"), ("Mul", "down"):
        for first, second in ("x", "half"), ("half", "x"):
            case(f"gelu_{head}_{first}", [N(head, ["x", by], ["a"]), N("Erf", ["a"], ["b"]),
                                          N("Add", ["b", "one"], ["c"]), N("Mul", ["c", first], ["d"]),
                                          N("Mul", ["d", second], ["y"])], images, ["y"], numbers, layers=1)
    case("silu", [N("Sigmoid", ["x"], ["s"]), N("Mul", ["x", "s"], ["y"])], images, ["y"], layers=1)
    case("sigmoid_of_others", [N("Sigmoid", ["x"], ["s"]), N("Mul", ["e", "s"], ["y"])], {**images, "e": images["x"]},
         ["y"], layers=2)
    case("hard_sigmoid", [N("HardSigmoid", ["x"], ["y"])], images, ["y"])
    case("hard_sigmoid_gate", [N("HardSigmoid", ["x"], ["h"], alpha=0.3, beta=0.4), N("Mul", ["x", "h"], ["y"])],
         images, ["y"])


def channels():
    x = {"x": [2, 6, 4, 6]}
    case("split", [N("Split", ["x"], ["a", "b"], axis=1, num_outputs=2), N("Relu", ["a"], ["y"])], x, ["y", "b"])
    case("split_by_sizes", [N("Split", ["x", "s"], ["a", "b", "c"], axis=1), N("Concat", ["c", "a"], ["y"], axis=1)],
         x, ["y", "b"], [ints("s", [1, 2, 3])])
    case("split_rows", [N("Split", ["x", "s"], ["a", "b"], axis=-1)], {"x": [2, 6]}, ["a", "b"], [ints("s", [4, 2])])
    case("split_height", [N("Split", ["x"], ["a", "b"], axis=2, num_outputs=2)], x, ["a", "b"],
         refused="axis 2; frugal splits channels")
    one = [ints("b", [1]), ints("e", [4]), ints("a", [1])]
    case("slice", [N("Slice", ["x", "b", "e", "a"], ["y"])], x, ["y"], one)
    case("slice_from_the_end", [N("Slice", ["x", "b", "e", "a"], ["y"])], x, ["y"],
         [ints("b", [-3]), ints("e", [2 ** 62]), ints("a", [-3])])
    case("focus", [N("Slice", ["x", "z", "m", "h", "t"], ["a"]), N("Slice", ["a", "o", "m", "w", "t"], ["c"]),
                   N("Concat", ["c", "c"], ["y"], axis=1)], x, ["y"],
         [ints("z", [0]), ints("o", [1]), ints("m", [2 ** 62]), ints("h", [2]), ints("w", [3]), ints("t", [2])])
    case("crop", [N("Slice", ["x", "b", "e", "a"], ["y"])], x, ["y"],
         [ints("b", [1, 1]), ints("e", [-1, 4]), ints("a", [2, 3])])
    case("every_second_channel", [N("Slice", ["x", "b", "e", "a", "t"], ["y"])], x, ["y"], one + [ints("t", [2])],
         refused="axis 1, step 2; frugal takes contiguous channels, and steps of height and width")
    case("gather_a_run", [N("Gather", ["x", "i"], ["y"], axis=1)], x, ["y"], [ints("i", [2, 3, 4])])
    case("gather_one", [N("Gather", ["x", "i"], ["g"], axis=1), N("Unsqueeze", ["g", "a"], ["y"])], x, ["y"],
         [ints("i", 4), ints("a", [1])])
    case("gather_others", [N("Gather", ["x", "i"], ["y"], axis=1)], x, ["y"], [ints("i", [4, 2, 3, -1, 0])])
    case("gather_rows", [N("Gather", ["x", "i"], ["y"], axis=2)], x, ["y"], [ints("i", [1, 2])],
         refused="frugal gathers channels, and one with an Unsqueeze of its axis")
    case("gather_outside", [N("Gather", ["x", "i"], ["y"], axis=1)], x, ["y"], [ints("i", [5, 6])],
         refused="index 6 of 6 channels")
    for mode in "DCR", "CRD":
        case("depth_to_space_" + mode, [N("DepthToSpace", ["d"], ["y"], blocksize=2, mode=mode)], {"d": [2, 12, 3, 2]},
             ["y"])
    case("space_to_depth", [N("SpaceToDepth", ["x"], ["y"], blocksize=2)], x, ["y"])
    turn = lambda apart, perm, back: [N("Reshape", ["x", "a"], ["b"]), N("Transpose", ["b"], ["c"], perm=perm),
                                      N("Reshape", ["c", "z"], ["y"])]
    for name, apart, perm, back in (("channel_shuffle", [2, 3, 2, 4, 6], [0, 2, 1, 3, 4], [2, 6, 4, 6]),
                                    ("channel_shuffle_of_rank_4", [2, 2, 3, 24], [0, 2, 1, 3], [2, 6, 4, 6]),
                                    ("space_to_depth_written", [2, 6, 2, 2, 3, 2], [0, 3, 5, 1, 2, 4], [2, 24, 2, 3]),
                                    ("pixel_unshuffle", [2, 6, 2, 2, 3, 2], [0, 1, 3, 5, 2, 4], [2, 24, 2, 3])):
        case(name, turn(apart, perm, back), x, ["y"], [ints("a", apart), ints("z", back)])
    case("pixel_shuffle_written_out", turn(0, [0, 1, 4, 2, 5, 3], 0), {"x": [2, 8, 3, 2]}, ["y"],
         [ints("a", [2, 2, 2, 2, 3, 2]), ints("z", [2, 2, 6, 4])])
    case("pooled_channels_last", [N("GlobalAveragePool", ["x"], ["p"]), N("Reshape", ["p", "l"], ["q"]),
                                  N("Reshape", ["q", "s"], ["r"]), gemm("r", "y")], x, ["y"],
         [ints("l", [-1, 1, 1, 6]), ints("s", [0, -1])] + linear(6))
    case("images_channels_last", [N("Transpose", ["x"], ["p"], perm=[0, 2, 3, 1]), N("Reshape", ["p", "s"], ["y"])], x,
         ["y"], [ints("s", [2, -1])], refused="input 0 has its channels last; frugal takes [N, C, H, W] there")
    case("rows_as_large_images", [gemm("r", "g"), N("Reshape", ["g", "s"], ["i"]), N("Mul", ["x", "i"], ["y"])],
         {"x": [2, 2, 3, 4], "r": [2, 6]}, ["y"], [ints("s", [0, 2, 3, 4])] + linear(6, 24))
    case("rows_as_images_with_last_channels",
         [gemm("r", "g"), N("Reshape", ["g", "s"], ["h"]), N("Transpose", ["h"], ["i"], perm=[0, 3, 1, 2]),
          N("Mul", ["x", "i"], ["y"])], {"x": [2, 2, 3, 4], "r": [2, 6]}, ["y"],
         [ints("s", [-1, 3, 4, 2])] + linear(6, 24))
    case("rows_as_images", [N("Reshape", ["r", "s"], ["i"]), N("Mul", ["x", "i"], ["y"])],
         {**x, "r": [2, 6]}, ["y"], [ints("s", [2, 6, 1, 1])])
    case("rows_unsqueezed", [N("Unsqueeze", ["r", "a"], ["i"]), N("Mul", ["x", "i"], ["y"])],
         {**x, "r": [2, 6]}, ["y"], [ints("a", [2, 3])])
    case("rows_unsqueezed_twice", [N("Unsqueeze", ["r", "a"], ["j"]), N("Unsqueeze", ["j", "b"], ["i"]),
                                   N("Mul", ["x", "i"], ["y"])],
         {**x, "r": [2, 6]}, ["y"], [ints("a", [2]), ints("b", [3])])


def activations():
    x, rows = {"x": [2, 4, 3, 5]}, {"x": [6, 4]}
    for op, more in ("Elu", {}), ("Elu", dict(alpha=1.5)), ("Selu", {}), ("Softplus", {}), ("Mish", {}):
        case("_".join([op.lower(), *more]), [N(op, ["x"], ["y"], **more)], x, ["y"])
    for op, more in (("Elu", dict(alpha=1.5)), ("Selu", {}), ("Softplus", {}), ("PRelu", {}), ("LeakyRelu", {}),
                     ("HardSigmoid", dict(alpha=0.3)), ("Sigmoid", {}), ("Tanh", {})):
        case("infinite_" + op.lower(), [N("Mul", ["x", "far"], ["z"]),
                                        N(op, ["z", "a"][:1 + (op == "PRelu")], ["y"], **more)], rows, ["y"],
             [const("far", [np.inf, -np.inf, 1, 1e38])] + [const("a", [0.5, 2, 1, 3])][:op == "PRelu"])
    case("prelu", [N("PRelu", ["x", "a"], ["y"])], x, ["y"], [wave("a", 4, 1, 1)])
    case("prelu_of_one_slope", [N("PRelu", ["x", "a"], ["y"])], rows, ["y"], [const("a", [0.25])])
    case("prelu_per_pixel", [N("PRelu", ["x", "a"], ["y"])], x, ["y"], [wave("a", 4, 3, 5)])
    case("prelu_per_column", [N("PRelu", ["x", "a"], ["y"])], x, ["y"], [wave("a", 5)],
         refused="a constant of rank 1, 5 numbers; frugal takes a single number, one per channel, 4")
    numbers = {"c": 0.044715, "r": (2 / np.pi) ** 0.5, "one": 1, "half": 0.5}
    case("gelu_tanh", [N("Mul", ["x", "x"], ["s"]), N("Mul", ["x", "s"], ["t"]), N("Mul", ["c", "t"], ["u"]),
                       N("Add", ["x", "u"], ["v"]), N("Mul", ["r", "v"], ["w"]), N("Tanh", ["w"], ["z"]),
                       N("Add", ["one", "z"], ["p"]), N("Mul", ["x", "p"], ["q"]), N("Mul", ["half", "q"], ["y"])],
         x, ["y"], [const(*i) for i in numbers.items()])
    case("square_cube", [N("Mul", ["x", "x"], ["s"]), N("Mul", ["x", "s"], ["t"]), N("Tanh", ["t"], ["y"])], x, ["y"])


def norms():
    x = {"x": [2, 6, 4, 5]}
    per_group = [const("one", [1, 1, 1]), const("zero", [0, 0, 0])]
    weights = [wave("n.weight", 6, plus=1), wave("n.bias", 6, by=0.9)]
    written = [N("Reshape", ["x", "s"], ["a"]), N("InstanceNormalization", ["a", "one", "zero"], ["b"], epsilon=1e-3),
               N("Shape", ["x"], ["t"]), N("Reshape", ["b", "t"], ["c"]), N("Unsqueeze", ["n.weight", "axes"], ["w"]),
               N("Mul", ["c", "w"], ["d"]), N("Unsqueeze", ["n.bias", "axes"], ["v"]), N("Add", ["d", "v"], ["y"])]
    case("group_norm_written_out", written, x, ["y"],
         per_group + weights + [ints("s", [0, 3, -1]), ints("axes", [1, 2])], opset=17)
    case("group_norm_by_2", written, x, ["y"],
         [const("one", [1, 2, 1])] + per_group[1:] + weights + [ints("s", [0, 3, -1]), ints("axes", [1, 2])], opset=17,
         refused="from rank 4 to rank 3")
    case("group_norm", [N("GroupNormalization", ["x", "n.weight", "n.bias"], ["y"], num_groups=2)], x, ["y"], weights,
         opset=21)
    case("instance_norm", [N("InstanceNormalization", ["x", "n.weight", "n.bias"], ["y"])], x, ["y"], weights)
    case("batch_norm_of_rows", [N("BatchNormalization", ["x", "n.weight", "n.bias", "m", "v"], ["b"]), gemm("b", "y")],
         {"x": [4, 6]}, ["y"], weights + [wave("m", 6), wave("v", 6, plus=2)] + linear(6))


def computed():
    """Constants by ONNX's rules: a standardized weight, a transposed vector, shapes that follow later."""
    x = {"x": [2, 3, 5, 4]}
    case("standardized_weight",
         [N("ReduceMean", ["w", "axes"], ["m"]), N("Sub", ["w", "m"], ["c"]), N("Pow", ["c", "two"], ["s"]),
          N("ReduceMean", ["s", "axes"], ["v"]), N("Add", ["v", "eps"], ["e"]), N("Sqrt", ["e"], ["d"]),
          N("Div", ["c", "d"], ["q"]), N("Mul", ["q", "gain"], ["g"]), N("Clip", ["g", "low", "high"], ["k"]),
          N("Conv", ["x", "k"], ["y"])], x, ["y"],
         [wave("w", 4, 3, 3, 3), wave("gain", 4, 1, 1, 1, plus=1), ints("axes", [1, 2, 3]), const("two", 2),
          const("eps", 1e-4), const("low", -1.2), const("high", 1.3)])
    case("unsqueezed_factor", [N("Unsqueeze", ["f", "a"], ["g"]), N("Mul", ["x", "g"], ["y"])], x, ["y"],
         [wave("f", 3, plus=1), ints("a", [1, -1])])
    case("squeezed_factor", [N("Squeeze", ["f", "a"], ["g"]), N("Mul", ["x", "g"], ["y"])], x, ["y"],
         [wave("f", 1, 3, 1, 1, plus=1), ints("a", [0])])
    case("shuffle_by_later_shapes",
         [N("Reshape", ["x", "s"], ["a"]), N("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3, 4]), N("Shape", ["x"], ["t"]),
          N("Slice", ["t", "zero", "one"], ["n"]), N("Concat", ["n", "rest"], ["z"], axis=0),
          N("Reshape", ["b", "z"], ["y"])], {"x": [2, 6, 4, 5]}, ["y"],
         [ints("s", [2, 2, 3, 4, 5]), ints("zero", [0]), ints("one", [1]), ints("rest", [-1, 4, 5])])


def windows():
    x, w = {"x": [2, 3, 7, 9]}, wave("w", 4, 3, 1, 5)
    case("conv_1x5", [N("Conv", ["x", "w"], ["y"], pads=[0, 2, 0, 2])], x, ["y"], [w])
    case("conv_5x1_grouped", [N("Conv", ["x", "v"], ["y"], pads=[2, 0, 2, 0], group=3, strides=[2, 1])], x, ["y"],
         [wave("v", 3, 1, 5, 1)])
    for how in "SAME_UPPER", "SAME_LOWER", "VALID":
        case("conv_" + how, [N("Conv", ["x", "k"], ["y"], auto_pad=how, strides=[2, 2])], x, ["y"],
             [wave("k", 4, 3, 3, 4)])
        case("max_pool_" + how, [N("MaxPool", ["x"], ["y"], auto_pad=how, kernel_shape=[2, 3], strides=[2, 2])], x,
             ["y"])
    for op in "MaxPool", "AveragePool":
        for pads in [2, 2, 2, 2], [0, 0, 0, 2], [2, 0, 0, 0]:
            case(f"{op}_pads_{pads[0]}_{pads[1]}", [N(op, ["x"], ["y"], kernel_shape=[2, 2], pads=pads)], x, ["y"],
                 refused="its pad 2 is not smaller than its kernel, 2")
    case("max_pool_of_one_side", [N("MaxPool", ["x"], ["y"], pads=[0, 0, 1, 1], kernel_shape=[3, 3], strides=[2, 2])],
         x, ["y"])
    case("average_of_one_side", [N("AveragePool", ["x"], ["y"], pads=[0, 0, 1, 1], kernel_shape=[3, 3], strides=[2, 2],
                                   count_include_pad=1)], x, ["y"])
    case("average_of_fewer_pixels", [N("AveragePool", ["x"], ["y"], pads=[0, 0, 1, 1], kernel_shape=[3, 3])], x, ["y"],
         refused="averages over fewer pixels at the border")
    for op in "MaxPool", "AveragePool":
        more = dict(count_include_pad=1) if op[0] == "A" else {}
        case("padded_widely_" + op, [N(op, ["x"], ["y"], pads=[2, 2, 2, 1], kernel_shape=[3, 3], **more)], x, ["y"])
    for axis in 2, 3:
        case(f"mean_of_axis_{axis}", [N("ReduceMean", ["x", "a"], ["y"])], x, ["y"], [ints("a", [axis])])
    up = [wave("k", 3, 2, 3, 3)]
    for name, more in (("same_upper", dict(auto_pad="SAME_UPPER")), ("same_lower", dict(auto_pad="SAME_LOWER")),
                       ("of_shape", dict(output_shape=[15, 18])), ("of_less", dict(output_shape=[13, 16])),
                       ("end_padded", dict(pads=[0, 1, 1, 2])), ("begin_padded", dict(pads=[1, 1, 0, 0]))):
        case("transposed_" + name, [N("ConvTranspose", ["x", "k"], ["y"], strides=[2, 2], **more)], x, ["y"], up)
    case("global_max_pool", [N("GlobalMaxPool", ["x"], ["y"])], x, ["y"])
    case("global_max_pool_of_rows", [N("GlobalMaxPool", ["r"], ["y"])], {"r": [2, 5]}, ["y"],
         refused="its input has rank 2; images are needed")
    case("pad_with_a_number", [N("Pad", ["x", "p", "c"], ["y"])], x, ["y"],
         [ints("p", [0, 0, 1, 0, 0, 0, 2, 1]), const("c", -1.5)])
    case("gemm_bias_of_rank_2", [N("Gemm", ["r", "g.weight", "b"], ["y"], transB=1)], {"r": [2, 5]}, ["y"],
         [wave("g.weight", 4, 5), wave("b", 1, 4)])


def sizes():
    x = {"x": [1, 2, 3, 4]}
    for name, more in (("half", dict(coordinate_transformation_mode="half_pixel", mode="linear")),
                       ("corners", dict(coordinate_transformation_mode="align_corners", mode="linear")),
                       ("floor", dict(coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
                       ("default", {})):
        case("resize_unequal_" + name, [N("Resize", ["x", "", "s"], ["y"], **more)], x, ["y"],
             [const("s", [1, 1, 2, 3])])
    case("corners_of_another_ratio", [N("Resize", ["x", "", "s"], ["y"], mode="linear",
                                        coordinate_transformation_mode="align_corners")], x, ["y"],
         [const("s", [1, 1, 1.5, 1])], refused="3 pixels become 4 by the scale 1.5")
    case("one_pixel_of_pytorch", [N("Resize", ["x", "", "", "z"], ["y"], mode="linear",
                                    coordinate_transformation_mode="pytorch_half_pixel")], x, ["y"],
         [ints("z", [1, 2, 3, 1])], refused="4 pixels become 1 by the scale 0.25")
    case("resize_to_a_size", [N("Resize", ["x", "", "", "z"], ["y"], mode="linear")], x, ["y"],
         [ints("z", [1, 2, 5, 9])])
    case("resize_by_axes", [N("Resize", ["x", "", "s"], ["y"], axes=[2, 3])], x, ["y"], [const("s", [2, 2])])


def opsets():
    """What older and newer opsets write otherwise."""
    x = {"x": [2, 3, 4, 6]}
    case("opset_9", [N("Clip", ["x"], ["a"], min=-0.5, max=0.25), N("Pad", ["a"], ["b"], pads=[0, 0, 1, 0, 0, 0, 0, 2]),
                     N("Slice", ["b"], ["c"], starts=[1], ends=[3], axes=[1]),
                     N("Upsample", ["c", "s"], ["d"], mode="nearest"), N("Dropout", ["d"], ["e"], ratio=0.3),
                     N("GlobalAveragePool", ["e"], ["f"]), N("Squeeze", ["f"], ["y"], axes=[2, 3])], x, ["y"],
         [const("s", [1, 1, 2, 2])], opset=9)
    case("opset_10", [N("Resize", ["x", "s"], ["y"], mode="nearest")], x, ["y"], [const("s", [1, 1, 2, 2])], opset=10)
    case("opset_11", [N("Split", ["x"], ["a", "b"], axis=1, split=[1, 2]), N("Unsqueeze", ["r"], ["i"], axes=[2, 3]),
                      N("Mul", ["b", "i"], ["y"])], {**x, "r": [2, 2]}, ["a", "y"], opset=11)
    case("opset_12_softmax", [N("Softmax", ["r"], ["s"]), N("Relu", ["s"], ["y"])], {"r": [2, 5]}, ["y"], opset=12)
    case("opset_12_softmax_of_images", [N("Softmax", ["x"], ["s"], axis=1), N("Relu", ["s"], ["y"])], x, ["y"],
         opset=12, refused="axis 1; frugal's runs over the channels")
    case("opset_22", [N("Conv", ["x", "w"], ["a"]), N("MaxPool", ["a"], ["y"], kernel_shape=[2, 2])], x, ["y"],
         [wave("w", 2, 3, 1, 1)], opset=22)
    case("open_dimensions", [N("Relu", ["x"], ["y"])], {"x": [2, 3, 8, 8]}, ["y"], dims={"x": [-1, 3, "h", "w"]})
    case("channels_last_input", [N("Transpose", ["x"], ["a"], perm=[0, 3, 1, 2]), N("Conv", ["a", "w"], ["y"])],
         {"x": [2, 4, 5, 3]}, ["y"], [wave("w", 2, 3, 1, 1)], last=True)
    names = [f"x{i}" for i in range(65)]
    case("65_inputs", [N("Concat", names, ["y"], axis=1)], {n: [1, 1, 2, 2] for n in names}, ["y"],
         refused="input 'x64' is number 65; a network has 64 at most")
    case("identity", [N("Identity", ["x"], ["y"])], x, ["y"])
    case("nobody_reads_it", [N("Relu", ["x"], ["y"]), N("TopK", ["x", "k"], ["d", "e"])], x, ["y"], [ints("k", [1])])


if __name__ == "__main__":
    for make in (pads_and_windows, resizing, operands, flattened, constant_operands, channels, activations, norms,
                 computed, windows, sizes, opsets):
        make()
    save_file(tensors, os.path.join(HERE, "tiny", "nodes.safetensors"))
    print(sum(name.endswith(".onnx") for name in tensors), "cases")
