#!/usr/bin/env python3
"""ONNX's own tests of its operators (onnx.backend.test), those of the operators that are read.

Usage: test_backend.py ONNX_RUN [-v]     ONNX_RUN: the helper program (onnx_run.c)

A case counts if its nodes are of the types that are read, and its first input holds f32 images [N, C, H, W] or rows
[N, C]; one image [C, H, W] or row [C] for elementwise operators, and for those whose axes move by one when a batch of 1
comes first (AXIS). The further inputs of all but sums, products and concatenations become constants. Each case passes,
or is refused with node and reason; results beyond the tolerances of the case are wrong. At least LEAST pass, none is
wrong. -v prints all refusals, else the reasons are counted. Exits with 77 (skipped) without onnx.
"""
import collections
import os
import re
import subprocess
import sys
import tempfile

LEAST = 170
ELEMENTWISE = set("Add Sub Mul Div Relu Tanh Sigmoid LeakyRelu HardSigmoid HardSwish Gelu Clip Dropout Identity Elu "
                  "Selu Softplus Mish PRelu Neg Reciprocal Sum Mean".split())
SEVERAL = {"Add", "Sub", "Mul", "Div", "Concat", "Sum", "Mean"}
AXIS = {"Split": 0, "Concat": 0, "Softmax": -1, "LogSoftmax": -1, "Gather": 0}  # and their default
AXES = {"Slice": 3, "ReduceMean": 1}  # the input that holds them


def types_read():
    """The types of the tables of layers.c and fold_constants.c, by which a network is read."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../src/addons/onnx")
    types = lambda name: re.findall(r'^ {4,8}\{"([A-Z]\w+)",', open(f"{source}/{name}").read(), re.M)
    return set(types("layers.c")), set(types("fold_constants.c"))


def lift(onnx, np, graph, inputs, outputs):
    """Puts a batch of 1 before all dimensions; False if the case has none for it."""
    node, rank = graph.node[0], inputs[0].ndim
    if len(graph.node) == 1 and node.op_type in AXIS:
        axis = next((a for a in node.attribute if a.name == "axis"), None)
        if axis is None:
            node.attribute.append(onnx.helper.make_attribute("axis", AXIS[node.op_type]))
            axis = node.attribute[-1]
        axis.i += axis.i >= 0
        moved = len(inputs) if node.op_type == "Concat" else 1
    elif len(graph.node) == 1 and node.op_type in AXES:
        at, moved = AXES[node.op_type], 1
        if node.op_type == "Slice" and len(inputs) == at:
            axes = np.arange(len(inputs[1]))
            inputs.append(axes)
            graph.input.append(onnx.helper.make_tensor_value_info("axes", onnx.TensorProto.INT64, [len(axes)]))
            node.input.append("axes")
        if len(inputs) <= at or inputs[at].size == 0:
            return False
        inputs[at] = np.where(inputs[at] >= 0, inputs[at] + 1, inputs[at])
        if outputs[0].ndim != rank:
            return False
    elif all(n.op_type in ELEMENTWISE for n in graph.node) and all(a.ndim in (0, rank) for a in inputs):
        moved = len(inputs)
    else:
        return False
    for values, arrays, n in (graph.input, inputs, moved), (graph.output, outputs, len(outputs)):
        for i in range(n):
            if arrays[i].ndim > 0:
                arrays[i] = arrays[i][None]
                values[i].type.tensor_type.shape.dim.insert(0, onnx.TensorShapeProto.Dimension(dim_value=1))
    return True


def main():
    try:
        import numpy as np
        import onnx
        from onnx import numpy_helper
        from onnx.backend.test.loader import load_model_tests
        from safetensors.numpy import load_file, save_file
    except ImportError as e:
        print(f"[SKIP] backend: {e}")
        return 77
    (known, folded), count, refusals, wrong = types_read(), collections.Counter(), collections.Counter(), []
    nhwc = lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1) if a.ndim == 4 else a)
    for case in load_model_tests(kind="node"):
        model, sets = case.model, case.data_sets
        if model is None:
            model = onnx.load(os.path.join(case.model_dir, "model.onnx"))
        graph = model.graph
        types = {n.op_type for n in graph.node}
        if not types <= known | folded or not types & known or len(graph.input) == 0:
            continue
        first = graph.input[0].type.tensor_type
        lifted = len(first.shape.dim) in (1, 3)
        if first.elem_type != onnx.TensorProto.FLOAT or (len(first.shape.dim) not in (2, 4) and not lifted):
            continue
        if sets is None:
            read = lambda name, kind, i: onnx.numpy_helper.to_array(onnx.load_tensor(
                os.path.join(case.model_dir, "test_data_set_0", f"{kind}_{i}.pb")))
            inputs = [read(case.name, "input", i) for i in range(len(graph.input))]
            outputs = [read(case.name, "output", i) for i in range(len(graph.output))]
        else:
            inputs, outputs = sets[0]
        if any(not isinstance(a, np.ndarray) for a in [*inputs, *outputs]):
            continue
        inputs, outputs = [np.asarray(a) for a in inputs], [np.asarray(a) for a in outputs]
        if lifted and not lift(onnx, np, graph, inputs, outputs):
            continue
        for o in model.opset_import:  # later opsets than those read add types to these operators
            o.version = min(o.version, 22)
        count["cases"] += 1
        type_ = graph.node[-1].op_type
        if len(graph.node) > 1 or type_ not in SEVERAL:
            graph.initializer.extend(numpy_helper.from_array(a, v.name) for a, v in zip(inputs[1:], graph.input[1:]))
            del graph.input[1:]
            inputs = inputs[:1]
        if type_ in ("Softmax", "LogSoftmax"):
            graph.node.append(onnx.helper.make_node("Identity", [graph.output[0].name], ["behind"]))
            graph.output[0].name = "behind"
        with tempfile.TemporaryDirectory() as scratch:
            path, given, got = (f"{scratch}/{f}" for f in ("case.onnx", "in", "out"))
            onnx.save(model, path)
            save_file({f"images{i or ''}": nhwc(a) for i, a in enumerate(inputs)}, given)
            done = subprocess.run([sys.argv[1], path, given, got, f"results={len(outputs)}"], capture_output=True,
                                  text=True)
            if done.returncode not in (0, 1):
                wrong.append(f"{case.name}: exit status {done.returncode}")
                continue
            if done.returncode == 1:
                count["refused"] += 1
                said = done.stderr.strip().replace(path, "")
                if not re.search(r"FR_E(UNSUPPORTED|SHAPE|INVAL|FORMAT): .*(node|input|result|constant|opset) ?", said):
                    wrong.append(f"{case.name}: refused without node or value: {said}")
                refusals[f"{type_}: " + re.sub(r"^.*?\d+ of \d+\): ", "", said)] += 1
                if "-v" in sys.argv:
                    print(f"{case.name}: {said}")
                continue
            have = load_file(got)
            for i, want in enumerate(outputs):
                y, want = have[f"logits{i or ''}"], nhwc(want)
                if y.shape != want.shape or not np.allclose(y, want, rtol=case.rtol, atol=case.atol):
                    wrong.append(f"{case.name}: result {i} {y.shape} {y.flat[:3]}, not {want.shape} {want.flat[:3]}")
                    break
            else:
                count["passed"] += 1
    for reason, n in refusals.most_common():
        print(f"{n} refused: {reason[:220]}")
    for w in wrong:
        print(f"WRONG {w}")
    print(f"{count['cases']} cases, {count['passed']} pass, {count['refused']} refused, {len(wrong)} wrong")
    return 1 if wrong or count["passed"] < LEAST else 0


if __name__ == "__main__":
    sys.exit(main())
