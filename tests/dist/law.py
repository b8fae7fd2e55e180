#!/usr/bin/env python3
"""The law of ranks: a training's states on N ranks are those of one process, byte for byte.

law.py BUILD [CASE...]   without cases: those of CI; FRUGAL_DIST_SETS=all: all. Skips (exit 77) with a reason where no
MPI is. A state's number of the run (chosen at random, so that folders are not mixed up) and the checksum behind it are
left out of the comparison.
"""
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
DENSENET = ["train_densenet", "--depth", "22"]
UNET = ["train_unet"]
# name: program and flags, batches of a step, (launcher, ranks)
CASES = {
    "vgg_sgd": (VGG + ["--steps", "3"], 4, [("openmpi", 2), ("mpich", 3), ("mpich", 4)]),
    "vgg_adamw_clip": (VGG + ["--steps", "3", "--optimizer", "adamw", "--clip", "0.5"], 4,
                       [("mpich", 2), ("openmpi", 3)]),
    "resnet_adam8": (RESNET + ["--steps", "3", "--optimizer", "adam8", "--check-replicas"], 3,
                     [("openmpi", 3), ("mpich", 2)]),
    "resnet_amp": (RESNET + ["--steps", "3", "--amp", "--clip", "1"], 4, [("openmpi", 4), ("mpich", 2)]),
    "densenet_checkpoint": (DENSENET + ["--steps", "4", "--optimizer", "adam", "--checkpoint-segments", "sqrt",
                                        "--no-rebuild"], 5, [("mpich", 2), ("openmpi", 4)]),
    "resnet_masters": (RESNET + ["--steps", "3", "--half", "--master-weights", "--clip", "1", "--optimizer", "adamw"],
                       4, [("openmpi", 2), ("mpich", 3)]),
    "unet_half": (UNET + ["--steps", "3", "--half=bf16"], 2, [("openmpi", 2), ("mpich", 3)]),
}
CI = ["vgg_adamw_clip", "resnet_amp", "densenet_checkpoint", "unet_half"]


def program(build, flags):
    return [os.path.join(build, "examples", flags[0])] + flags[1:] + TINY


def normal(path):
    """The bytes of a state without the number of its run, and without the checksum at the end."""
    import json
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    meta = header.pop("__metadata__")
    for key in meta:
        record = json.loads(meta[key])
        record.pop("run", None)
        meta[key] = record
    return json.dumps([header, meta], sort_keys=True).encode() + data[8 + n:-4]


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
        if not os.path.exists(os.path.join(build, "src", "mpi", f"libfrugal-mpi-{name}.so")):
            return f"the build has no engine for {name}"
    return None


def main():
    every = list(CASES) if os.environ.get("FRUGAL_DIST_SETS") == "all" else CI
    build, wanted = sys.argv[1], sys.argv[2:] or every
    reason = missing(build)
    if reason:
        print(f"law: skipped, {reason}")
        return 77
    failures = 0
    for name in wanted:
        flags, batches, ranks = CASES[name]
        with tempfile.TemporaryDirectory() as where:
            one = os.path.join(where, "one")
            said = run(program(build, flags) + ["--accumulate", str(batches), "--save", one])
            for launcher, n in ranks:
                there = os.path.join(where, f"{launcher}{n}")
                heard = run(RUN[launcher] + [str(n)] + program(build, flags) +
                            ["--accumulate", str(batches), "--save", there])
                same = normal(newest(one)) == normal(newest(there))
                failures += not same
                print(f"{name}: {batches} batches, {n} ranks, {launcher}: {'the same' if same else 'DIFFERENT'}",
                      flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
