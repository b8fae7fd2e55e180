#!/usr/bin/env python3
"""Records what a build computes and allocates, and compares two records.

    benchmarks/same_bits.py BUILD > before.json      5 networks x 13 sets of flags trained, 60 plans
    benchmarks/same_bits.py --compare before.json after.json
    benchmarks/same_bits.py --exact BUILD            planned peaks of 10 networks x 13 sets of flags on the CPU, with
                                                     and without --exact-convolutions; ends with 1 above 8 MiB

A record holds, per training, the losses of all steps, a hash of the exported weights and the report's numbers of
memory; per plan (for cpu and, where the build has it, cuda) the numbers of memory. The comparison names each cell that
differs and how, and ends with 1 if there is one. What is compared does not depend on the machine's speed; bits depend
on its instruction set, so both records belong to one machine. Needs nothing but Python.
"""
import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile

NETWORKS = {
    "vgg11": ("train_vgg", "--depth 11 --image-size 32 --batch-size 8"),
    "resnet18": ("train_resnet", "--depth 18 --image-size 32 --batch-size 4"),
    "resnet50": ("train_resnet", "--depth 50 --image-size 32 --batch-size 4"),
    "densenet": ("train_densenet", "--depth 22 --growth 6 --image-size 16 --batch-size 8"),
    "unet": ("train_unet", "--depth 2 --image-size 16 --batch-size 4"),
}
FLAGS = [
    "",
    "--all-off",
    "--all-off --inplace",
    "--no-rebuild",
    "--checkpoint-segments sqrt --no-arena",
    "--checkpoint-segments 1 --no-rebuild",
    "--amp",
    "--amp=bf16 --no-rebuild",
    "--half=bf16",
    "--fused-step --optimizer adam",
    "--offload --no-arena",
    "--accumulate 2 --split-batch 2 --clip 1",
    "--inplace-abn --optimizer adamw",
]
PLANS = {
    "vgg16": ("train_vgg", "--depth 16 --image-size 224 --batch-size 64 --classes 1000"),
    "resnet50": ("train_resnet", "--depth 50 --image-size 224 --batch-size 64 --classes 1000"),
    "resnet152": ("train_resnet", "--depth 152 --image-size 224 --batch-size 16 --classes 1000"),
    "densenet121": ("train_densenet", "--depth 121 --image-size 224 --batch-size 32 --classes 1000"),
    "unet4": ("train_unet", "--depth 4 --image-size 224 --batch-size 16"),
}
PLAN_FLAGS = ["", "--all-off", "--no-rebuild", "--checkpoint-segments 1", "--amp", "--optimizer adam --fused-step"]


def run(build, program, arguments):
    command = [os.path.join(build, "examples", program)] + arguments.split()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, done.stderr.strip().split("\n")[0]
    return done, None


def training(build, program, flags, folder):
    report, weights, log = (os.path.join(folder, n) for n in ("r.json", "w.safetensors", "l.jsonl"))
    for path in (report, weights, log):
        if os.path.exists(path):
            os.unlink(path)
    _, error = run(build, program, f"{flags} --device cpu --threads 2 --steps 3 --quiet --report {report} "
                                   f"--export {weights} --log {log}")
    if error is not None:
        return {"refused": error}
    with open(report) as f:
        memory = json.load(f)["memory"]
    with open(weights, "rb") as f: # the data behind the header: its text may change
        size = int.from_bytes(f.read(8), "little")
        f.seek(8 + size)
        data = hashlib.sha256(f.read()).hexdigest()
    with open(log) as f:
        lines = [json.loads(line) for line in f]
    losses = [line["loss"] for line in lines if "loss" in line]
    return {"losses": losses, "weights": data, "memory": memory}


def plan(build, program, flags, device, folder):
    report = os.path.join(folder, "p.json")
    _, error = run(build, program, f"{flags} --dataset synthetic --device {device} --plan --quiet --report {report}")
    if error is not None:
        return {"refused": error}
    with open(report) as f:
        return {"memory": json.load(f)["memory"]}


def record(build):
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        for network, (program, base) in NETWORKS.items():
            for flags in FLAGS:
                result[f"train {network} {flags}"] = training(build, program, f"{base} {flags}", folder)
        for network, (program, base) in PLANS.items():
            for flags in PLAN_FLAGS:
                for device in ("cpu", "cuda"):
                    result[f"plan {device} {network} {flags}"] = plan(build, program, f"{base} {flags}", device, folder)
    return result


def differences(path, a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(set(a) | set(b)):
            yield from differences(f"{path} {key}", a.get(key), b.get(key))
    elif a != b:
        yield f"{path}: {a} -> {b}"


def compare(before, after):
    cells = bad = 0
    for cell in before:
        cells += 1
        found = list(differences("", before[cell], after.get(cell, {})))
        bad += bool(found)
        for line in found:
            print(f"{cell}:{line}")
    print(f"{cells} cells compared, {bad} differ")
    return bad > 0 or cells == 0


def beside_exact(build):
    """Winograd's convolutions have up to 8 MiB of workspace of their own."""
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        for network, (program, base) in (NETWORKS | {f"{n} 224": p for n, p in PLANS.items()}).items():
            for flags in FLAGS:
                both = [plan(build, program, f"{base} {flags} {exact}", "cpu", folder)
                        for exact in ("", "--exact-convolutions")]
                if all("memory" in p for p in both):
                    usual, exact = (p["memory"]["peak_allocated"] for p in both)
                    cells.append((usual - exact, f"{network} {flags}"))
                else:
                    print(f"{network} {flags}: {both[0].get('refused')}")
    cells.sort(reverse=True)
    for more, cell in cells[:5] + cells[-1:]:
        print(f"{more / 2 ** 20:+.2f} MiB {cell}")
    print(f"{len(cells)} cells")
    return not cells or cells[0][0] > 8 << 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?")
    parser.add_argument("--exact", metavar="BUILD")
    parser.add_argument("--compare", nargs=2, metavar=("BEFORE", "AFTER"))
    arguments = parser.parse_args()
    if arguments.compare is not None:
        with open(arguments.compare[0]) as a, open(arguments.compare[1]) as b:
            return compare(json.load(a), json.load(b))
    if arguments.exact is not None:
        return beside_exact(arguments.exact)
    if arguments.build is None:
        parser.error("a build folder is needed")
    json.dump(record(arguments.build), sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
