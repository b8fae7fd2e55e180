#!/usr/bin/env python3
"""saved.py - what a forward pass of ResNet-50 leaves for backward when parts of it are frozen, beside PyTorch.

    python3 benchmarks/saved.py [--build build]

Batch 64, 224 pixels, f32. PyTorch's bytes are what saved_tensors_hooks see, each storage once, without parameters,
statistics and images; frozen norms are torchvision's FrozenBatchNorm2d where the convolutions train, as fine-tuning of
detectors has them, else BatchNorm2d in eval mode. frugal's are `train_resnet summary`'s. Both sides run without data
(meta), in seconds. Needs PyTorch and torchvision; exits with 1 where frugal keeps more than 1 % above PyTorch."""
import argparse
import os
import re
import subprocess
import sys

ROWS = ("biases and fc", "convolutions and fc", "fc")


def theirs(row):
    import torch
    import torchvision
    norm = torchvision.ops.FrozenBatchNorm2d if row == "convolutions and fc" else torch.nn.BatchNorm2d
    with torch.device("meta"):
        m = torchvision.models.resnet50(norm_layer=norm)
        x = torch.empty(64, 3, 224, 224).to(memory_format=torch.channels_last)
        target = torch.empty(64, dtype=torch.int64)
    norms = [name for name, part in m.named_modules() if isinstance(part, norm)]
    for part in m.modules():
        if isinstance(part, norm):
            part.eval()
    for name, p in m.named_parameters():
        of_norm = name.rpartition(".")[0] in norms
        p.requires_grad_(name.startswith("fc.") or (name.endswith(".bias") if row == "biases and fc" else
                                                    row == "convolutions and fc" and not of_norm))
    known = {t.untyped_storage()._cdata for t in (*m.parameters(), *m.buffers(), x)}
    held = {}

    def pack(t):
        s = t.untyped_storage()
        held[s._cdata] = s  # alive, so that no identity is used twice
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = torch.nn.functional.cross_entropy(m(x), target)
    loss.detach_()
    return sum(s.nbytes() for at, s in held.items() if at not in known), norms


def ours(build, row, norms):
    flags = {"biases and fc": ["--train-only", "bias", "head"], "fc": ["--train-only", "head"],
             "convolutions and fc": ["--freeze", *norms]}[row]
    shape = "--depth 50 --device meta --dataset synthetic --classes 1000 --image-size 224 --batch-size 64".split()
    done = subprocess.run([os.path.join(build, "examples", "train_resnet"), "summary", *shape, *flags],
                          capture_output=True, text=True)
    found = re.search(r"kept when backward begins: (\d+) bytes", done.stdout)
    if found is None:
        sys.exit(f"saved.py: train_resnet ended with status {done.returncode}: {done.stderr.strip()}")
    return int(found.group(1))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build", help="the build folder")
    build = p.parse_args().build
    worse = 0
    print("| what trains | PyTorch | frugal | ratio |\n|---|---|---|---|")
    for row in ROWS:
        their, norms = theirs(row)
        our = ours(build, row, norms)
        worse += our > 1.01 * their
        print(f"| {row} | {their:,} | {our:,} | {our / their:.3f} |")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
