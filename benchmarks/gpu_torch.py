#!/usr/bin/env python3
"""Training steps of PyTorch on the GPU, beside benchmarks/gpu_check.sh's.

Usage: gpu_torch.py eager|compiled NETWORK:TYPE:BATCH...

NETWORK: resnet, mobilenet, densenet, unet or vgg; TYPE: f16 and bf16 by autocast, f32 (TF32 in convolutions, the
default of PyTorch). channels_last, cudnn.benchmark, SGD with momentum. Prints images/s, by the median of the steps and
by their mean, and the peak of allocated memory of each, the moment they are known. A row that fails is printed with its
error, and the next one follows; exit status 1 then, but not for a lack of memory.
"""
import statistics
import sys
import time

import torch
import torchvision

import compare


NETWORKS = {"resnet": torchvision.models.resnet50, "mobilenet": torchvision.models.mobilenet_v2,
            "densenet": torchvision.models.densenet121, "unet": lambda: compare.torch_unet(4, 11),
            "vgg": torchvision.models.vgg16}
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": None}
WARM, TIMED = 5, 25


def measure(name, batch, dtype, mode):
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    model = NETWORKS[name]().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == "f16")
    forward = torch.compile(model) if mode == "compiled" else model
    x = torch.rand(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    shape, classes = ((batch, 224, 224), 11) if name == "unet" else ((batch,), 1000)
    target = torch.randint(classes, shape, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(TIMED + 1)]
    for step in range(WARM + TIMED):
        if step == WARM:
            torch.cuda.synchronize()
            began = time.perf_counter()
        if step >= WARM:
            marks[step - WARM].record()
        with torch.autocast("cuda", dtype=TYPES[dtype], enabled=dtype != "f32"):
            loss = torch.nn.functional.cross_entropy(forward(x), target)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    marks[TIMED].record()
    torch.cuda.synchronize()
    mean = TIMED * batch / (time.perf_counter() - began)
    median = statistics.median(marks[i].elapsed_time(marks[i + 1]) for i in range(TIMED))
    peak = torch.cuda.max_memory_allocated() / 2**20
    print(f"PyTorch {torch.__version__} {mode} {name} {dtype} batch {batch}: "
          f"{1000 * batch / median:.0f} images/s, peak {peak:.0f} MiB allocated, mean {mean:.0f} images/s", flush=True)


def main():
    runs = [word.split(":") for word in sys.argv[2:]]
    if not runs or sys.argv[1] not in ("eager", "compiled") or any(
            len(r) != 3 or r[0] not in NETWORKS or r[1] not in TYPES or not r[2].isdigit() for r in runs):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    failed = 0
    for name, dtype, batch in runs:
        try:
            measure(name, int(batch), dtype, sys.argv[1])
            torch.cuda.empty_cache()
        except torch.cuda.OutOfMemoryError:
            print(f"PyTorch {name} {dtype} batch {batch}: out of memory", flush=True)
        except Exception as e:  # no engine, no compiler for inductor: the next row may go
            print(f"PyTorch {name} {dtype} batch {batch}: {type(e).__name__}: {e}", flush=True)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
