#!/usr/bin/env python3
"""examples/08_own_loop.c beside the same loop in PyTorch: the weights that the program starts from, ten steps, and the
averages' loss on the test images. docs/loop.md shows both.

Usage: own_loop.py PROGRAM DATA     DATA: examples/data; exit status 77 without PyTorch
"""
import gzip
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function
    from torch.utils.checkpoint import checkpoint_sequential
except ImportError as e:
    print(f"[SKIP] tutorials::own_loop: {e}")
    sys.exit(77)

STEPS, ACCUMULATE, BATCH = 10, 2, 50
# f16: the libraries round halves in other places, and ten steps at this rate make 3e-5 of the first loss 1e-2.
BOUND = {"f32": 1e-5, "f16": 2e-2}


def network():
    layers = []
    for i in range(4):
        layers += [torch.nn.Conv2d(16 if i else 1, 16, 3, padding=1), torch.nn.GroupNorm(4, 16),
                   torch.nn.ReLU(inplace=False)]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(256, 10))


def weights(path):
    """A safetensors file of f32 tensors."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(bytearray(data[slice(*t["data_offsets"])]), dtype=torch.float32).view(t["shape"])
            for name, t in header.items()}


def digits(data, split):
    pixels = gzip.open(f"{data}/{split}-images-idx3-ubyte.gz").read()[16:]
    labels = gzip.open(f"{data}/{split}-labels-idx1-ubyte.gz").read()[8:]
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(-1, 1, 8, 8)
    return images / 255, torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()


def rate(step, lr=0.1, warmup=3):
    if step < warmup:
        return lr * (step + 1) / warmup
    return lr * (1 + math.cos(math.pi * (step - warmup) / (STEPS - warmup))) / 2


def train(model, images, labels, half):
    """The losses of the steps, and the averages."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    averages = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.8))
    scaler = torch.amp.GradScaler("cpu", enabled=half)
    losses, at = [], 0
    for step in range(STEPS):
        total = 0
        for _ in range(ACCUMULATE):
            x, target = images[at:at + BATCH].clone(), labels[at:at + BATCH]
            at = (at + BATCH) % len(images)
            with torch.autocast("cpu", torch.float16, enabled=half):
                y = checkpoint_sequential(model, 2, x, use_reentrant=False)
                loss = torch.nn.functional.cross_entropy(y, target) / ACCUMULATE
            total += loss.item()
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        scaler.step(optimizer)
        scaler.update()
        averages.update_parameters(model)
        optimizer.zero_grad()
        losses.append(total)
    return losses, averages


def peak_of(run):
    """Largest total of the CPU allocator while run() runs, with what is alive before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        run()
    total = peak = 0
    for event in sorted(prof.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            total += event.nbytes()
            peak = max(peak, total)
    return peak


def compare(program, data, kind):
    images, labels = digits(data, "train")
    with tempfile.TemporaryDirectory() as folder:
        said = subprocess.run([program, kind, folder], check=True, stdout=subprocess.PIPE, text=True).stdout
        first = weights(f"{folder}/first.safetensors")
    ours = [float(x) for x in re.findall(r"^step \d+ loss (\S+)$", said, re.M)]
    ours.append(float(re.search(r"^test loss of the averages (\S+)$", said, re.M).group(1)))
    peak = int(re.search(r"^peak memory (\d+) bytes$", said, re.M).group(1))
    model = network()
    model.load_state_dict(first)
    theirs, averages = train(model, images, labels, kind == "f16")
    with torch.no_grad():
        test, targets = digits(data, "test")
        theirs.append(torch.nn.functional.cross_entropy(averages.module(test), targets).item())

    def again():  # the profiler sees what is made inside
        model = network()
        train(model, images, labels, kind == "f16")
    far = max(abs(a - b) for a, b in zip(ours, theirs))
    print(f"{kind}: {STEPS} losses and the averages' loss on the test images: largest difference {far:.3g} (bound "
          f"{BOUND[kind]:g}); last loss {ours[STEPS - 1]:.6f} and {theirs[STEPS - 1]:.6f}; peak: frugal {peak} bytes, "
          f"PyTorch {peak_of(again)}")
    return len(ours) == len(theirs) == STEPS + 1 and far <= BOUND[kind]


def main():
    torch.set_num_threads(2)
    return 0 if all([compare(sys.argv[1], sys.argv[2], kind) for kind in BOUND]) else 1


if __name__ == "__main__":
    sys.exit(main())
