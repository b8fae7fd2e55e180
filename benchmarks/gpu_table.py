#!/usr/bin/env python3
"""What benchmarks/gpu_check.sh measured, beside what the performance model claims (docs/cuda.md).

Usage: gpu_table.py OUT              OUT: gpu_check's folder: model.log (gpu_model), bandwidth.log, train.log and
                                     *-train.json
       gpu_table.py --row FILE NAME  the line of one training's report: images/s and peak

One line per claim: predicted, measured, and their ratio; "not measured" where a part did not run.
"""
import json
import os
import re
import statistics
import sys

# Kernels by the share of a copy's bandwidth that the model gives them; all others are own kernels.
SHARES = [("own kernels, median", 0.88, None), ("max pooling's gradient", 0.45, "maxpool2d_backward"),
          ("batch norm's statistics", 0.82, "batchnorm2d_stats")]


def text(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def speed_of(folder, name):
    found = text(folder, name)
    return json.loads(found)["time"]["images_per_second"] if found else None


def predicted(folder):
    """gpu_model's middle column by its row's name: "| as it is | 256 | 51.9 | 5220 / 4940 / 4500 | 794 |"."""
    rows = re.findall(r"^\| ([^|]+) \| \d+ \| [\d.]+ \| [\d,]+ / ([\d,]+) / [\d,]+ \|", text(folder, "model.log"), re.M)
    return {name.strip(): float(speed.replace(",", "")) for name, speed in rows}


def shares(folder):
    rows = re.findall(r"^\| (\w+) \| [\d.]+ \| [\d.]+ \| [\d.]+ \| (\d+) % \|", text(folder, "bandwidth.log"), re.M)
    return [(name, float(percent) / 100) for name, percent in rows]


def lines(folder):
    model, measured = predicted(folder), shares(folder)
    for name in model:
        yield (f"ResNet-50 AMP, batch 256, {name}: images/s", model[name], speed_of(folder, "resnet-f16-train.json"))
    torch = re.findall(r"^PyTorch \S+ eager resnet f16 batch 256: (\d+) images/s", text(folder, "train.log"), re.M)
    yield "PyTorch eager, the same: images/s", 4530, float(torch[-1]) if torch else None
    for what, share, kernel in SHARES:
        found = [s for name, s in measured if kernel in (None, name)]
        yield f"{what}: share of a copy", share, statistics.median(found) if found else None


def row(path, name):
    found = text(*os.path.split(path))
    if found:
        report = json.loads(found)
        peak = report["memory"]["peak_allocated"]
        speed = report["time"]["images_per_second"]
        print(f"frugal {name}: {speed:.0f} images/s, peak {peak / 2**20:.0f} MiB allocated")
    else:
        print(f"frugal {name}: not measured")
    return 0


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--row":
        return row(*sys.argv[2:])
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    print(f"{'claim':58s} {'model':>8s} {'measured':>12s}  ratio")
    for what, claim, found in lines(sys.argv[1]):
        number = "%.2f" if claim < 10 else "%.0f"
        if found is None:
            print(f"{what:58s} {number % claim:>8s} {'not measured':>12s}")
        else:
            print(f"{what:58s} {number % claim:>8s} {number % found:>12s}  {found / claim:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
