#!/usr/bin/env python3
"""Trains the digits with Adam in f32, in pure f16 (--half), and with f32 masters, three seeds each: the guides warn
that f16 may fail.

Usage: half_adam.py FOLDER_OF_THE_TRAINERS      exit status 1 if the mean accuracies differ by more than a point
"""
import json
import os
import subprocess
import sys
import tempfile

COMMAND = "--depth 11 --epochs 5 --optimizer adam --lr 0.001 --schedule cosine --quiet".split()
SEEDS = (1, 2, 3)


def accuracy(folder, seed, flags):
    with tempfile.TemporaryDirectory() as at:
        report = os.path.join(at, "r.json")
        subprocess.run([os.path.join(folder, "train_vgg"), *COMMAND, *flags, "--seed", str(seed), "--report", report],
                       check=True, stdout=subprocess.DEVNULL)
        with open(report, encoding="utf-8") as file:
            return 100 * json.load(file)["accuracy"]["test"]


def main():
    mean = {}
    for name, flags in (("f32", []), ("f16", ["--half"]), ("f16 with masters", ["--half", "--master-weights"])):
        got = [accuracy(sys.argv[1], seed, flags) for seed in SEEDS]
        mean[name] = sum(got) / len(got)
        print(f"{name}: {', '.join(f'{a:.2f}' for a in got)}; mean {mean[name]:.2f} %")
    return 0 if all(abs(mean["f32"] - mean[name]) <= 1 for name in mean) else 1


if __name__ == "__main__":
    sys.exit(main())
