#!/usr/bin/env python3
"""Networks with norms, scales and gates after a Flatten, beside PyTorch: safetensors and ONNX, both ways.

Usage: test_flatten.py ONNX_RUN     the helper program (onnx_run.c)

Seven networks flatten images of 3 x 2 pixels with 4 channels, which lie in another order here. Of each: the file that
PyTorch exports gives PyTorch's results; other weights, loaded from PyTorch's safetensors, give PyTorch's results; saved
again they are PyTorch's tensors, and the ONNX file that is saved gives PyTorch's results in ONNX Runtime. Exits with 77
(skipped) without PyTorch, onnx, ONNX Runtime or safetensors.
"""
import os
import subprocess
import sys
import tempfile
import warnings

BOUND = 3e-6


def networks(torch):
    nn, features = torch.nn, 24

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.randn(features))

        def forward(self, x):
            return x * self.factor

    class Net(nn.Module):
        def __init__(self, forward, **parts):
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)
            self.conv, self.run = nn.Conv2d(3, 4, 1), forward

        def forward(self, x):
            x = self.conv(x)
            return self.run(self, x, torch.flatten(x, 1))

    linear = lambda out=features: nn.Linear(features, out)
    norm = nn.LayerNorm(features)
    return {
        "norm": Net(lambda m, x, f: m.fc(m.norm(f)), norm=norm, fc=linear(5)),
        "scale": Net(lambda m, x, f: m.fc(m.scale(f)), scale=Scale(), fc=linear(5)),
        "sum": Net(lambda m, x, f: m.fc(f + m.inner(f)), inner=linear(), fc=linear(5)),
        "gate": Net(lambda m, x, f: m.fc(f * torch.sigmoid(m.inner(f))), inner=linear(), fc=linear(5)),
        "both uses": Net(lambda m, x, f: m.fc(torch.relu(m.fc(f))), fc=linear()),
        "result": Net(lambda m, x, f: m.norm(f), norm=nn.LayerNorm(features)),
        "all": Net(lambda m, x, f: m.fc(m.scale(m.norm(torch.relu(f))) * torch.sigmoid(m.inner(f)) + f), scale=Scale(),
                   norm=nn.LayerNorm(features), inner=linear(), fc=linear(5)),
    }


def main():
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import torch
        from safetensors.torch import load_file, save_file
    except ImportError as e:
        print(f"[SKIP] flatten: {e}")
        return 77
    warnings.filterwarnings("ignore")
    torch.manual_seed(4)
    failed = 0
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path, given, got, weights, back, saved = (
            f"{folder}/{f}" for f in ("a.onnx", "in", "out", "weights", "back", "saved.onnx"))
        for name, m in networks(torch).items():
            x = torch.randn(2, 3, 3, 2)
            torch.onnx.export(m.eval(), x, path, dynamo=False, opset_version=17, do_constant_folding=False,
                              training=torch.onnx.TrainingMode.PRESERVE, input_names=["x"],
                              dynamic_axes={"x": {0: "batch"}})
            save_file({"images": x.permute(0, 2, 3, 1).contiguous()}, given)
            run = lambda *words: subprocess.run([sys.argv[1], path, given, got, "exact", *words], check=True)
            apart = lambda a: ((a - m(x)).abs().max() / m(x).abs().max()).item()
            run()
            said = {"read": apart(load_file(got)["logits"])}
            for p in m.parameters():
                p.normal_()
            # A scale's tensor has the name of its layer here, and PyTorch's shape of a factor per channel.
            torch_tensors = {k[:-7] if k.endswith(".factor") else k: v.reshape(-1, 1, 1) if k.endswith(".factor") else v
                             for k, v in m.state_dict().items()}
            save_file({k: v.contiguous() for k, v in torch_tensors.items()}, weights)
            run(f"load={weights}", f"weights={back}", f"save={saved}")
            said["weights"] = apart(load_file(got)["logits"])
            tensors = load_file(back)
            equal = all(torch.equal(tensors[k], v) for k, v in torch_tensors.items())
            session = onnxruntime.InferenceSession(saved, providers=["CPUExecutionProvider"])
            said["saved"] = apart(torch.tensor(session.run(None, {"input": x.numpy()})[0]))
            fine = equal and max(said.values()) <= BOUND
            failed += not fine
            print(f"{name}: {', '.join(f'{k} {v:.1e}' for k, v in said.items())}, tensors "
                  f"{'equal' if equal else 'DIFFER'}: {'ok' if fine else 'FAILED'}", flush=True)
    print(f"7 networks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
