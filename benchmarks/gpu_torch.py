#!/usr/bin/env python3
"""A training step of PyTorch on the GPU, beside benchmarks/gpu_check.sh's.

Usage: gpu_torch.py resnet|mobilenet|vgg BATCH

channels_last, cudnn.benchmark, SGD with momentum; in f16 and bf16 by autocast and in f32 (TF32 in convolutions, the
default of PyTorch), each eager and by torch.compile. Prints images/s and the peak of allocated memory.
"""
import sys
import time

import torch
import torchvision


NETWORKS = {"resnet": torchvision.models.resnet50, "mobilenet": torchvision.models.mobilenet_v2,
            "vgg": torchvision.models.vgg16}
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": None}
WARM, TIMED = 10, 20


def measure(name, batch, dtype, compiled):
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    model = NETWORKS[name]().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == "f16")
    forward = torch.compile(model) if compiled else model
    x = torch.rand(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    target = torch.randint(1000, (batch,), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    for step in range(WARM + TIMED):
        if step == WARM:
            torch.cuda.synchronize()
            began = time.perf_counter()
        with torch.autocast("cuda", dtype=TYPES[dtype], enabled=dtype != "f32"):
            loss = torch.nn.functional.cross_entropy(forward(x), target)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.cuda.synchronize()
    rate = TIMED * batch / (time.perf_counter() - began)
    peak = torch.cuda.max_memory_allocated() / 2**20
    print(f"PyTorch {torch.__version__} {'compiled' if compiled else 'eager'} {name} {dtype} batch {batch}: "
          f"{rate:.0f} images/s, peak {peak:.0f} MiB allocated", flush=True)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in NETWORKS or not sys.argv[2].isdigit():
        print(__doc__.strip(), file=sys.stderr)
        return 2
    for compiled in (False, True):
        for dtype in TYPES:
            try:
                measure(sys.argv[1], int(sys.argv[2]), dtype, compiled)
            except torch.cuda.OutOfMemoryError:
                print(f"PyTorch {sys.argv[1]} {dtype} batch {sys.argv[2]}: out of memory", flush=True)
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
