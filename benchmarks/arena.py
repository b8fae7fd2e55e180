#!/usr/bin/env python3
"""The arena against the caching allocator: what each reserves, and how long placing the blocks takes.

Usage: arena.py [FOLDER OF THE TRAINERS] [FLAGS ...]      default: build/examples, no more flags

Each network is planned twice (`--plan`, nothing runs) at batch 64, 224 pixels, 1,000 classes. The placement time is
the median of 5. Prints a table in Markdown.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

COMMON = "--dataset synthetic --classes 1000 --image-size 224 --batch-size 64 --plan --quiet".split()
NETWORKS = [
    ("VGG-16", ["train_vgg", "--no-batch-norm"]),
    ("ResNet-50", ["train_resnet", "--depth", "50"]),
    ("ResNet-152", ["train_resnet", "--depth", "152"]),
    ("DenseNet-121", ["train_densenet", "--depth", "121"]),
    ("U-Net, 4 levels", ["train_unet", "--depth", "4"]),
]


def plan(folder, command, flags):
    with tempfile.TemporaryDirectory() as at:
        path = os.path.join(at, "r.json")
        subprocess.run([os.path.join(folder, command[0]), *command[1:], *COMMON, *flags, "--report", path], check=True,
                       stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "build/examples"
    flags = sys.argv[2:]
    print("| network | largest live set | arena reserves | / live set | placed in | caching allocator reserves |"
          " / live set |")
    print("|---|---|---|---|---|---|---|")
    for name, command in NETWORKS:
        arenas = [plan(folder, command, flags) for _ in range(5)]
        caching = plan(folder, command, [*flags, "--no-arena"])
        arena = arenas[0]["arena"]
        live, extent = arena["largest_live_set"], arena["reserved"]
        reserved = max(caching["memory"]["peak_reserved"], caching["memory"]["evaluation"]["peak_reserved"])
        ms = statistics.median(a["arena"]["placement_ms"] for a in arenas)
        print(f"| {name} | {live:,} | {extent:,} | {extent / live:.4f} | {ms:.1f} ms, {arena['blocks']:,.0f} blocks | "
              f"{reserved:,} | {reserved / live:.4f} |")


if __name__ == "__main__":
    main()
