#!/usr/bin/env python3
"""The law of ranks: a training's states on N ranks are those of one process, byte for byte, also where ranks have other
instructions.

law.py BUILD [CASE...]   without cases: CI's, three steps on some number of ranks; FRUGAL_DIST_SETS=all: four networks
in five ways, 20 steps on 2, 3 and 4 ranks. A case is NETWORK.WAY. Skips (exit 77) with a reason where no MPI is.
"""
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile

RUN = {
    "openmpi": ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n"],
    "mpich": ["mpiexec.mpich", "-n"],
}
TINY = ["--image-size", "32", "--batch-size", "4", "--dataset", "digits", "--eval-every", "0", "--seed", "3",
        "--workers", "0", "--quiet"]
VGG = ["train_vgg", "--depth", "11"]
RESNET = ["train_resnet", "--depth", "18"]
NETWORKS = {"vgg": "vgg11_bn", "resnet": "resnet18", "densenet": "densenet_bc22_k12", "unet": "unet3"}
# Every second rank has AVX2 alone: its bits are those of AVX-512.
MIXED = ["sh", "-c", '[ $((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} % 2)) = 0 ] || export FRUGAL_ISA=avx2; exec "$@"', "sh"]
# Batches of a step, flags, and those that only ranks can have. All have dropout and batch norm, and rebuild what they
# can unless they say no; in some steps of `amp` one batch overflows (planted.c).
WAYS = {
    "amp": (4, ["--amp", "--clip", "1", "--optimizer", "adamw"], []),
    "adam8": (5, ["--optimizer", "adam8", "--checkpoint-segments", "sqrt", "--no-rebuild", "--clip", "0.5"],
              []),
    "fused": (4, ["--optimizer", "adamw"], ["--fused-step"]),
    "masters": (5, ["--half", "--master-weights", "--clip", "1", "--optimizer", "adamw"], []),
    "half": (2, ["--half=bf16"], ["--no-fused-step"]),
    "rmsprop": (3, ["--optimizer", "rmsprop", "--half", "--master-weights"], []),
}
RECIPE = (4, ["--eval-every", "1"], [])
# Fields without a flag, which planted.c sets as its environment says.
FIELDS = {
    "adam8": "check",
    "fused": "groups ema=0.9",
    "masters": "ema=0.5",
    "recipe": "recipe",
}
CI = ["vgg.recipe", "vgg.fused", "densenet.amp", "resnet.adam8", "unet.masters"]


def program(build, flags):
    return [os.path.join(build, "examples", flags[0])] + flags[1:] + TINY


def newest(folder):
    names = sorted(n for n in os.listdir(folder) if n.endswith(".safetensors"))
    return os.path.join(folder, names[-1])


def run(command, **more):
    env = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **more)
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, text=True)
    if done.returncode != 0:
        sys.exit(f"law: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def missing(build):
    for name in RUN:
        if shutil.which(RUN[name][0]) is None:
            return f"{RUN[name][0]} is not installed"
        if not os.path.exists(os.path.join(build, "src", "addons", "ranks", f"libfrugal-mpi-{name}.so")):
            return f"the build has no engine for {name}"
    return None


def skipped(command, report):
    """How many steps the run skipped."""
    run(command + ["--report", report])
    with open(report) as f:
        return json.load(f).get("loss_scale", {}).get("skipped", 0)


def differences(build, case, steps, ranks, where):
    """On how many of (launcher, N) the training's state is another."""
    network, way = case.split(".")
    batches, flags, more = WAYS.get(way, RECIPE)
    os.environ["PLANTED_MODEL"] = NETWORKS[network]
    planted = [os.path.join(build, "tests", "addons", "ranks", "planted")] + TINY
    os.environ["PLANTED_FIELDS"] = FIELDS.get(way, "")
    command = planted + flags
    command += ["--steps", str(steps), "--accumulate", str(batches)]
    one, report, count = os.path.join(where, "one"), os.path.join(where, "report.json"), 0
    lost = skipped(command + ["--save", one], report)
    if way == "amp" and not 0 < lost < steps:
        sys.exit(f"law: {case}: {lost} of {steps} steps overflowed")
    for launcher, n in ranks:
        there = os.path.join(where, f"{launcher}{n}")
        mixed = [] if "--half=bf16" in flags else MIXED
        heard = skipped(RUN[launcher] + [str(n)] + mixed + command + more + ["--save", there], report)
        same = filecmp.cmp(newest(one), newest(there), shallow=False) and heard == lost
        count += not same
        print(f"{case}: {batches} batches, {steps} steps ({lost} overflowed), {n} ranks, {launcher}: "
              f"{'the same' if same else 'DIFFERENT'}", flush=True)
    return count


def main():
    every = os.environ.get("FRUGAL_DIST_SETS") == "all"
    build, cases = sys.argv[1], sys.argv[2:] or ([f"{n}.{w}" for n in NETWORKS for w in WAYS] + CI[:1] if every else CI)
    reason = missing(build)
    if reason:
        print(f"law: skipped, {reason}")
        return 77
    failures = 0
    for i, case in enumerate(cases):
        a, b = (list(RUN)[(i + k) % len(RUN)] for k in range(len(RUN)))
        ranks = [(a, 2), (b, 3), (a, 4)] if every else [(a, 4 - i % 3)]
        with tempfile.TemporaryDirectory() as where:
            failures += differences(build, case, 20 if every else 3, ranks, where)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
