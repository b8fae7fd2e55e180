#!/usr/bin/env python3
"""Networks of torchvision and timm by ONNX, beside PyTorch.

Usage: test_networks.py ONNX_RUN [NAME ...]     ONNX_RUN: the helper program (onnx_run.c)

Names: of torchvision's models, "timm:" names of timm's, or "torchvision", "timm" for all CNNs of torchvision and for 30
of timm; without a name, QUICK. Of each network, exported by PyTorch in evaluation with its normalizations: the logits
of 8 images, the gradients of one step in training mode, each beside PyTorch's in f64, and a session's step in the
planned bytes. Logits are within 3e-6 of their size, or as near to f64 as twice PyTorch's in f32. The gradients' error,
the norm of all differences to f64, is at most twice PyTorch's in the median of 3 draws of images; or, where rounding
moves values over the kinks of relus, so that both errors are jumps of any size, the median of 5 is at most twice
PyTorch's largest. A wrong gradient is neither.
Exits with 77 (skipped) without PyTorch, torchvision, onnx or safetensors.
"""
import copy
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
BOUND, RATIO, STEP, DRAWS, MORE = 3e-6, 2, 2.0 ** 20, 3, 5
QUICK = ["shufflenet_v2_x0_5", "inception_v3", "lraspp_mobilenet_v3_large", "timm:ghostnet_100"]
NO_CNN = ("vit_", "swin", "maxvit")
TIMM = ("resnet18d resnet50d regnetx_004 regnety_004 efficientnet_lite0 mobilenetv4_conv_small ghostnet_100 repvgg_a0 "
        "convnextv2_atto convnext_atto edgenext_xx_small fastvit_t8 mixnet_s tinynet_a hrnet_w18_small dla34 "
        "res2net50_26w_4s dm_nfnet_f0 xception41 rexnet_100 lcnet_050 mobilenetv3_large_100 mobilenetv2_100 "
        "efficientnet_b0 resnet26t seresnet18 cspresnet50 vovnet39a mobileone_s0 inception_next_tiny").split()


def run(*words):
    done = subprocess.run([sys.argv[1], *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"exit status {done.returncode}")


def build(torch, name):
    """A network whose result is one tensor; images of a size that it takes."""
    if name.startswith("timm:"):
        import timm
        return timm.create_model(name[5:], pretrained=False, num_classes=10), 64
    import torchvision
    options = {"weights_backbone": None} if name.startswith(("deeplab", "fcn", "lraspp")) else {}
    options |= {"init_weights": False, "transform_input": True} if name in ("googlenet", "inception_v3") else {}
    m = torchvision.models.get_model(name, weights=None, **options)
    if name in ("googlenet", "inception_v3"):  # auxiliary heads belong to a training of 299 pixels
        m.aux_logits = False
        m.AuxLogits = m.aux1 = m.aux2 = None
    # The exporter takes no pooling to 7 x 7 from a map that 7 does not divide.
    return m, 224 if name.startswith(("alexnet", "vgg")) else 96 if name == "inception_v3" else 64


def result(y):
    return y["out"] if isinstance(y, dict) else y[0] if isinstance(y, tuple) else y


def step(torch, m, x, target, dtype):
    """Gradients of one step in training mode, without random layers; the logits of an evaluation before it."""
    m = copy.deepcopy(m).to(dtype)
    for part in m.modules():
        if type(part).__name__ in ("Dropout", "StochasticDepth", "Dropout2d"):
            part.p = 0.0
        if type(part).__name__ == "DropPath":
            part.drop_prob = 0.0
    with torch.no_grad():
        logits = result(m.eval()(x.to(dtype)))
    torch.nn.functional.cross_entropy(result(m.train()(x.to(dtype))), target).backward()
    return logits.double(), {k: p.grad.double() for k, p in m.named_parameters() if p.grad is not None}


def compare(torch, make_onnx, name, scratch):
    from safetensors.torch import load_file, save_file

    torch.manual_seed(5)
    m, size = build(torch, name)
    m = make_onnx.randomize(m, 6).eval()
    path, given, got, weights = (f"{scratch}/{f}" for f in ("network.onnx", "in", "out", "weights"))
    x = torch.randn(8, 3, size, size)
    whole = torch.nn.Module()
    whole.forward = lambda images: result(m(images))
    whole.m = m
    torch.onnx.export(whole, x, path, dynamo=False, opset_version=17, training=torch.onnx.TrainingMode.PRESERVE,
                      do_constant_folding=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}})
    nhwc = make_nhwc(torch)
    with torch.no_grad():
        shape = result(m(x)).shape
    apart = lambda a, b: ((a - b).abs().max() / b.abs().max()).item()
    size = lambda g: sum(float((v ** 2).sum()) for v in g.values()) ** 0.5
    errors = []
    for draw in range(MORE):
        target = torch.randint(0, shape[1], (8, *shape[2:]))
        save_file({"images": nhwc(x), "target": target}, given)
        run(path, given, got, "exact", "plain", "softmax", "steps=1", f"lr={STEP}", f"weights={weights}",
            *["planned"][draw:])
        logits, after, before = load_file(got)["logits"].double(), load_file(weights), dict(m.named_parameters())
        f64, grad64 = step(torch, m, x, target, torch.float64)
        f32, grad32 = step(torch, m, x, target, torch.float32)
        mine, theirs = apart(logits, nhwc(f64)), apart(f32, f64)
        known = {k: (before[k].double() - after["m." + k].reshape(before[k].shape).double()) / STEP for k in grad64
                 if "m." + k in after and after["m." + k].numel() == before[k].numel()}
        off = [size({k: g[k] - grad64[k] for k in known}) / size({k: grad64[k] for k in known})
               for g in (known, grad32)]
        errors.append(off)
        said = (f"logits {mine:.1e} of f64, PyTorch {theirs:.1e}; {len(known)} of {len(grad64)} gradients, of f64 and "
                f"PyTorch's: {', '.join(f'{a:.1e} {b:.1e}' for a, b in errors)}; planned = run")
        if mine > max(BOUND, 2 * theirs) or len(known) < 0.9 * len(grad64):
            return False, said
        if draw < DRAWS and sum(a <= RATIO * b for a, b in errors) > DRAWS // 2:
            return True, said
        x = torch.randn_like(x)
    mine, theirs = zip(*errors)
    return sorted(mine)[MORE // 2] <= RATIO * max(theirs), said


def make_nhwc(torch):
    return lambda t: t.permute(0, 2, 3, 1).contiguous() if t.dim() == 4 else t


def main():
    try:
        import onnx  # noqa: F401
        import safetensors  # noqa: F401
        import torch
        import torchvision

        import make_onnx
    except ImportError as e:
        print(f"[SKIP] networks: {e}")
        return 77
    wanted = []
    for name in sys.argv[2:] or QUICK:
        if name == "timm":
            wanted += ["timm:" + n for n in TIMM]
        elif name == "torchvision":
            every = torchvision.models.list_models(module=torchvision.models)
            every += torchvision.models.list_models(module=torchvision.models.segmentation)
            size = lambda n: torchvision.models.get_model_weights(n).DEFAULT.meta["num_params"]
            wanted += sorted((n for n in every if not n.startswith(NO_CNN)), key=size)
        else:
            wanted.append(name)
    failed = skipped = 0
    for name in wanted:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                ok, said = compare(torch, make_onnx, name, scratch)
            except ImportError as e:
                skipped += 1
                print(f"{name}: [SKIP] {e}", flush=True)
                continue
            except Exception as e:
                ok, said = False, str(e).split("\n")[0].replace(scratch, "")[:300]
            failed += not ok
            print(f"{name}: {'ok' if ok else 'FAILED'}: {said}", flush=True)
    print(f"{len(wanted)} networks, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
