#!/usr/bin/env python3
"""A training step of PyTorch on the GPU, beside benchmarks/gpu_check.sh's.

Usage: gpu_torch.py vgg|resnet       channels_last, cudnn.benchmark, autocast to f16 and f32 (TF32 in convolutions, its
                                     default); prints images/s and peak
"""
import sys
import time

import torch
import torchvision


def measure(name, batch, half):
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    model = {"vgg": torchvision.models.vgg16, "resnet": torchvision.models.resnet50}[name]()
    model = model.cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=half)
    x = torch.rand(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    target = torch.randint(1000, (batch,), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    for step in range(30):
        if step == 10:
            torch.cuda.synchronize()
            began = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.float16, enabled=half):
            loss = torch.nn.functional.cross_entropy(model(x), target)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.cuda.synchronize()
    rate = 20 * batch / (time.perf_counter() - began)
    peak = torch.cuda.max_memory_allocated() / 2**20
    print(f"PyTorch {torch.__version__} {name} {'f16' if half else 'f32'} batch {batch}: {rate:.0f} images/s, "
          f"peak {peak:.0f} MiB allocated")


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in ("vgg", "resnet"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    for half in (True, False):
        measure(sys.argv[1], 64 if sys.argv[1] == "vgg" else 256, half)
    return 0


if __name__ == "__main__":
    sys.exit(main())
