#!/usr/bin/env python3
"""Weights go to torchvision and come back: the same logits in both, in both directions.

Usage: test_torchvision.py LOGITS      the helper program (tests/io/logits.c)

For VGG-16-BN, ResNet-50, DenseNet-121, MobileNetV2 and V3, EfficientNet-B0, ConvNeXt-Tiny and SqueezeNet, and for those
that torchvision has in other widths: a model of
torchvision's with random weights and statistics is saved, loaded here and run on the same images; then a model made
here is saved, loaded by torchvision (strict) and run. Prints the largest absolute difference of the logits and the
largest absolute logit. The bound: 1e-5 of the largest logit, some 80 times the rounding of one f32 operation, for
sums in another order through up to 121 layers; 2e-5 where 3 x 3 convolutions are made by Winograd's minimal
filtering, which is the default. A permuted channel or column shows in the first digit. Needs PyTorch, torchvision and
safetensors; exits with 77 (skipped) without.
"""
import os
import subprocess
import sys
import tempfile

BOUNDS = {"exact": 1e-5, "default": 2e-5}  # relative
MODELS = ["vgg16_bn", "resnet50", "densenet121", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large",
          "efficientnet_b0", "convnext_tiny", "squeezenet1_1"]
# torchvision's width multiplier (_make_divisible); 0.35 * 24 and 0.35 * 32 are rounded up to keep 90 %
if not os.path.isdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/addons/zoo")):
    MODELS = MODELS[:4]
WIDTHS = {"mobilenet_v2": (0.35, 1.4), "mobilenet_v3_small": (0.75,), "mobilenet_v3_large": (0.35,),
          "efficientnet_b0": (0.5,)}
# Height and width differ, so that a transposed picture shows.
HEIGHT, WIDTH, IMAGES = 224, 192, 2


def main():
    try:
        import torch
        import torchvision
        from torchvision.models import efficientnet, mobilenetv3
        from safetensors.torch import load_file, save_file
    except ImportError as e:
        print(f"[SKIP] io::torchvision: {e}")
        return 77
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    program = os.path.abspath(sys.argv[1])
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    print(f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}, f32 on the CPU, "
          f"{IMAGES} images of {HEIGHT} x {WIDTH}")

    def randomize(model):
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.uniform_(-0.1, 0.1)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
            elif name.endswith("num_batches_tracked"):
                buffer.fill_(7)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.uniform_(-0.1, 0.1)
            elif name.endswith(("layer_scale", "gamma")):  # 1e-6 would hide the blocks
                parameter.uniform_(-1, 1)

    def ours(name, weights, images, folder):
        save_file({"images": images.permute(0, 2, 3, 1).contiguous()}, f"{folder}/images")
        logits = {}
        for setting in BOUNDS:
            words = ["exact"] if setting == "exact" else []
            subprocess.run([program, name, weights, f"{folder}/images", f"{folder}/logits"] + words, check=True)
            logits[setting] = load_file(f"{folder}/logits")["logits"]
        return logits

    def compare(name, theirs, to_us, direction):
        with tempfile.TemporaryDirectory() as folder:
            weights = f"{folder}/weights"
            images = torch.randn(IMAGES, 3, HEIGHT, WIDTH)
            if to_us:
                randomize(theirs)
                save_file({k: v.contiguous() for k, v in theirs.state_dict().items()}, weights)
            mine = ours(name, weights, images, folder)
            if not to_us:
                theirs.load_state_dict(load_file(weights), strict=True)
            expected = theirs.eval()(images)
            largest = expected.abs().max().item()
            for setting, bound in BOUNDS.items():
                difference = (mine[setting] - expected).abs().max().item()
                fine = difference <= bound * largest and largest > 0
                results.append(fine)
                print(f"{name:12} {direction}, {setting}: largest difference {difference:.3g} of logits up to "
                      f"{largest:.3g} ({difference / largest:.2g}), bound {bound * largest:.3g}: "
                      f"{'ok' if fine else 'FAILED'}", flush=True)

    def of_width(name, width):
        if name == "mobilenet_v2":
            return torchvision.models.mobilenet_v2(width_mult=width)
        if name == "efficientnet_b0":
            settings, last = efficientnet._efficientnet_conf(name, width_mult=width, depth_mult=1.0)
            return efficientnet.EfficientNet(settings, dropout=0.2, last_channel=last)
        settings, last = mobilenetv3._mobilenet_v3_conf(name, width_mult=width)
        return mobilenetv3.MobileNetV3(settings, last)

    results = []
    for name in MODELS:
        for to_us in (True, False):
            compare(name, getattr(torchvision.models, name)(weights=None), to_us,
                    "torchvision to frugal" if to_us else "frugal to torchvision")
    for name, width in [(name, width) for name in WIDTHS for width in WIDTHS[name]]:
        for to_us in (True, False):
            compare(f"{name}_w{width}", of_width(name, width), to_us,
                    "torchvision to frugal" if to_us else "frugal to torchvision")
    print(f"{len(results)} comparisons, {results.count(False)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
