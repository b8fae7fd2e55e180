#!/usr/bin/env python3
"""ONNX files both ways, beside PyTorch and ONNX Runtime.

Usage: test_onnx.py ONNX_RUN [NETWORK ...]     the helper program (onnx_run.c); networks: of make_onnx.py

torchvision's networks and a U-Net with random weights and statistics are exported by PyTorch (make_onnx.py) in three
ways: in training mode, folded, and by its newer exporter. Of each:
  logits    2 images of 64 x 64, of the largest: below 1e-5 with exact convolutions, 2e-5 with the default ones
  again     saved here, and folded here and saved: valid (onnx.checker), ONNX Runtime's logits below 1e-5
  steps     20 of SGD (momentum 0.9, no dropout, no stochastic depth) on one batch of 8; only in training mode: losses
            and the logits behind them have the bits of our own network of that kind (fr_model) with the same weights;
            their distance from PyTorch's steps in f64 is printed, and that of PyTorch's f32
  budget    three steps of a session, batch 128, within half of its peak with all switches off, at the same loss
FRUGAL_ONNX_FOLDER names a folder with the files (make_onnx.py --large); else they are made, which takes minutes, for
resnet18 and the U-Net alone, and the others are counted as skipped. Exits with 77 (skipped) without PyTorch, onnx or
ONNX Runtime.
"""
import copy
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
STEPS, BATCH, SIZE = 20, 8, 64
OWN = ["resnet18", "resnet50", "densenet121", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny"]
BOUND, DEFAULT_BOUND = 1e-5, 2e-5
QUICK = ["resnet18", "unet"]


def relative(a, b):
    return ((a.double() - b.double()).abs().max() / b.double().abs().max()).item()


def nhwc(t):
    return t.permute(0, 2, 3, 1).contiguous() if t.dim() == 4 else t


def run(*words):
    done = subprocess.run([sys.argv[1], *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"exit status {done.returncode}")
    return done.stdout.strip()


def theirs(torch, m, images, target, dtype):
    """Losses of the steps, and the logits behind them."""
    m = copy.deepcopy(m).to(dtype).train()
    for part in m.modules():
        if type(part).__name__ in ("Dropout", "StochasticDepth"):
            part.p = 0.0
    sgd = torch.optim.SGD(m.parameters(), lr=0.001, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        sgd.zero_grad()
        loss = torch.nn.functional.cross_entropy(m(images.to(dtype)), target)
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    with torch.no_grad():
        return torch.tensor(losses), nhwc(m.eval()(images.to(dtype))).float()


def main():
    try:
        import onnx
        import onnxruntime
        import torch
        from safetensors.torch import load_file, save_file

        import make_onnx
    except ImportError as e:
        print(f"[SKIP] onnx: {e}")
        return 77
    folder = os.environ.get("FRUGAL_ONNX_FOLDER")
    wanted = sys.argv[2:] or (make_onnx.LARGE if folder else QUICK)
    failures = comparisons = 0
    skipped = len(make_onnx.LARGE) - len(wanted)

    def judge(what, value, bound):
        nonlocal failures, comparisons
        comparisons += 1
        failures += not value <= bound
        print(f"  {what}: {value:.2g}, bound {bound:.2g}: {'ok' if value <= bound else 'FAILED'}", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        if not folder:
            folder = scratch
            make_onnx.LARGE = wanted
            make_onnx.large(folder)
        given, got, saved = f"{scratch}/in", f"{scratch}/out", f"{scratch}/saved.onnx"
        for name in wanted:
            torch.manual_seed(3)
            m, images = make_onnx.network(name).eval(), torch.randn(BATCH, 3, SIZE, SIZE)
            with torch.no_grad():
                expected = nhwc(m(images[:2]))
            target = torch.randint(0, expected.shape[-1], (BATCH,) + tuple(expected.shape[1:-1]))
            for way in make_onnx.ways(name):
                path = f"{folder}/{name}_{way}.onnx"
                print(f"{name}, {way}, {os.path.getsize(path)} bytes", flush=True)
                save_file({"images": nhwc(images[:2])}, given)
                run(path, given, got)
                judge("logits, default", relative(load_file(got)["logits"], expected), DEFAULT_BOUND)
                for fold in ([], ["fold"]):
                    run(path, given, got, "exact", f"save={saved}", *fold)
                    logits = load_file(got)["logits"]
                    if not fold:
                        judge("logits, exact", relative(logits, expected), BOUND)
                    onnx.checker.check_model(saved, full_check=True)
                    session = onnxruntime.InferenceSession(saved, providers=["CPUExecutionProvider"])
                    out = nhwc(torch.tensor(session.run(None, {"input": images[:2].numpy()})[0]))
                    judge(f"ONNX Runtime{' of the folded' if fold else ''}", relative(out, logits), BOUND)
                if way != "train":
                    continue
                print("  " + run(path, given, got, "budget"))
                save_file({"images": nhwc(images), "target": target}, given)
                words = ["exact", "plain", "lr=0.001", f"steps={STEPS}"]
                run(path, given, got, *words)
                mine = load_file(got)
                if name in OWN:
                    save_file({k: v.contiguous() for k, v in m.state_dict().items()}, f"{scratch}/weights")
                    run(f"{scratch}/weights", given, got, f"own={name}", *words)
                    ours = load_file(got)
                    for what in ("loss", "after"):
                        judge(f"{STEPS} steps, {what}, from our own network's", relative(mine[what], ours[what]), 0)
                exact = theirs(torch, m, images, target, torch.float64)
                single = theirs(torch, m, images, target, torch.float32)
                for what, i in (("loss", 0), ("after", 1)):
                    print(f"  {STEPS} steps, {what}, from PyTorch's in f64: {relative(mine[what], exact[i]):.2g}; "
                          f"PyTorch in f32: {relative(single[i], exact[i]):.2g}", flush=True)
    print(f"{comparisons} comparisons, {failures} failed, {skipped} networks skipped: no FRUGAL_ONNX_FOLDER")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
