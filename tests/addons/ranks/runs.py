#!/usr/bin/env python3
"""Runs on several ranks beside those of one process: memory as planned, evaluations of any size, resumed on any number.

runs.py BUILD [PART...]   without parts: all. FRUGAL_DIST_SETS=all: more networks, flags and numbers of ranks. Skips
(exit 77) with a reason where no MPI is.
"""
import filecmp
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time

from faults import ENV, ranks_of
from law import RESNET, RUN, VGG, missing, newest, program, run
from parts import expect, main

EVERY = os.environ.get("FRUGAL_DIST_SETS") == "all"


def report(build, where, launcher, n, flags, more=()):
    name = os.path.join(where, "report.json")
    run((RUN[launcher] + [str(n)] if n > 1 else []) + program(build, flags) + [*more, "--report", name])
    with open(name) as f:
        return json.load(f)


def memory(build, where):
    """On each rank what was planned is what was reserved, and no allocation departed; of the first rank the plan tells
    it without the others. A step sends 2 (N - 1)/N of the gradients, rounded up to slices."""
    ways = (("openmpi", 2), ("mpich", 3))
    for i, flags in enumerate((VGG + ["--optimizer", "adam"], RESNET + ["--optimizer", "adam8", "--clip", "1"])):
        for launcher, n in ways if EVERY else ways[i:i + 1]:
            ran = report(build, where, launcher, n, flags + ["--steps", "3"])
            name = os.path.join(where, "plan.json")
            run(program(build, flags) + ["--steps", "3", "--plan", "--ranks", str(n), "--report", name])
            with open(name) as f:
                plan = json.load(f)
            for key in ("requested", "reserved", "allocated"):
                a, b = plan["memory"], ran["memory"]
                expect(a[f"peak_{key}"] == b[f"peak_{key}"],
                       f"{flags[0]} on {n}: peak_{key} {a[f'peak_{key}']} planned, {b[f'peak_{key}']} measured")
            gradients = 4 * ran["trained_parameters"]
            for i, rank in enumerate(ran["ranks"]):
                expect(rank["departures"] == 0, f"{flags[0]}, rank {i} of {n}: {rank['departures']} departures")
                expect(rank["planned"] == rank["peak_reserved"],
                       f"{flags[0]}, rank {i} of {n}: {rank['planned']} planned, {rank['peak_reserved']} reserved")
                formula = 2 * gradients * (n - 1) / n
                expect(abs(rank["step_bytes"] / formula - 1) < 0.04,
                       f"{flags[0]}, rank {i} of {n}: a step sent {rank['step_bytes']} bytes, {formula:.0f} expected")


def mnist(where, train, test):
    """A folder of MNIST's form with so many images of noise."""
    noise = random.Random(1)
    os.makedirs(where)
    for name, n in (("train", train), ("t10k", test)):
        with open(os.path.join(where, f"{name}-images-idx3-ubyte"), "wb") as f:
            f.write(struct.pack(">iiii", 2051, n, 28, 28) + noise.randbytes(n * 28 * 28))
        with open(os.path.join(where, f"{name}-labels-idx1-ubyte"), "wb") as f:
            f.write(struct.pack(">ii", 2049, n) + bytes(noise.randrange(10) for _ in range(n)))


def evaluation(build, where):
    """Test sets of 1, N + 1 and 297 images in batches of 1 and more: each image counts once, and the numbers
    are those of one process."""
    for images, batches in ((1, (1, 2)), (4, (2, 1)), (297, (75, 4))):
        data = os.path.join(where, str(images))
        mnist(data, 100, images)
        for batch in batches if EVERY else batches[:1]:
            flags = ["--steps", "1", "--accumulate", "1", "--batch-size", str(batch), "--dataset", "mnist",
                     "--data", data, "--image-size", "32" if batch > 1 else "64"]
            one = report(build, where, None, 1, RESNET, flags)
            three = report(build, where, "mpich" if batch % 2 else "openmpi", 3, RESNET, flags)
            for key in ("accuracy", "loss"):
                a, b = one[key], three[key]
                expect(a == b, f"{images} images by {batch}: {key} {a} on one process, {b} on three")
            right = one["accuracy"]["test"] * images
            expect(abs(right - round(right)) < 1e-9, f"{images} images: {right} of them are right")


def resume(build, where):
    """A training goes on wherever it was saved: M stays, N does not matter."""
    flags = RESNET + ["--optimizer", "adamw", "--schedule", "constant", "--warmup", "0"]
    one, many = os.path.join(where, "one"), os.path.join(where, "many")
    ways = (("openmpi", 3), ("mpich", 2), ("openmpi", 4), (None, 1))
    ways = ways if EVERY else ways[:2]
    run(program(build, flags) + ["--steps", str(len(ways)), "--accumulate", "3", "--save", one])
    for i, (launcher, n) in enumerate(ways):
        run((RUN[launcher] + [str(n)] if launcher else []) + program(build, flags) +
            ["--steps", str(i + 1), "--save", many, "--resume", "latest"])
    same = filecmp.cmp(newest(one), newest(many), shallow=False)
    expect(same, f"a training that was resumed on {[n for _, n in ways]} ranks differs")


def sync(build, where):
    """Synchronized batch norms: two or four ranks make the step of one large batch, up to rounding; planned as well."""
    for more in ([], ["--inplace-abn"]) if EVERY else ([],):
        flags = RESNET + more + ["--steps", "2", "--lr", "0.00002", "--warmup", "0", "--exact-convolutions",
                                 "--augment", "none", "--threads", "1"]
        whole = report(build, where, None, 1, flags, ["--batch-size", "8"])["loss"]["steps"]
        for launcher, n in (("openmpi", 2), ("mpich", 4)) if EVERY else (("mpich", 4),):
            part = ["--batch-size", str(8 // n)]
            got = report(build, where, launcher, n, flags, part + ["--sync-batch-norm"])
            far = max(abs(a / b - 1) for a, b in zip(got["loss"]["steps"], whole))
            expect(far < 2e-6, f"{more} on {n} ranks: losses {got['loss']['steps']}, of one batch {whole}")
            expect(got["flags"]["sync-batch-norm"], "the report does not say that norms are synchronized")
        apart = report(build, where, "openmpi", 2, flags, ["--batch-size", "4"])["loss"]["steps"]
        expect(abs(apart[0] / whole[0] - 1) > 1e-4, "norms that are not synchronized give the same loss")
        name = os.path.join(where, "plan.json")
        run(program(build, flags) + part + ["--sync-batch-norm", "--plan", "--ranks", "4", "--report", name])
        with open(name) as f:
            plan = json.load(f)["memory"]["peak_reserved"]
        expect(plan == got["memory"]["peak_reserved"],
               f"{plan} bytes planned, {got['memory']['peak_reserved']} measured")


def killed(build, where):
    """A rank is killed at some moment, and the training goes on on some number of ranks, until it is over: its weights
    are the undisturbed run's. FRUGAL_DIST_SETS=all: up to 50 kills, else 1."""
    wanted, steps = (50, "100") if EVERY else (1, "5")
    flags = RESNET + ["--accumulate", "3", "--steps", steps]
    kills, choice = 0, random.Random(5)
    once, again, states = (os.path.join(where, n) for n in ("once", "again", "states"))
    run(program(build, flags) + ["--export", once])
    saving = ["--save", states, "--save-every", "1", "--resume", "latest", "--export", again]
    while not os.path.exists(again):
        n, launcher = choice.randint(2, 4), choice.choice(list(RUN))
        command = RUN[launcher] + [str(n)] + program(build, flags) + saving
        process = subprocess.Popen(command, env=dict(ENV, FRUGAL_PEER_TIMEOUT="10", FRUGAL_TEST_RUN=str(os.getpid())),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(choice.uniform(0.3, 2.5))
        pids = ranks_of(launcher, command[len(RUN[launcher]) + 1])
        if pids and kills < wanted:
            os.kill(choice.choice(sorted(pids.values())), signal.SIGKILL)
            kills += 1
        process.wait()
    expect(kills > 0, "the training was over before anybody was killed")
    with open(once, "rb") as a, open(again, "rb") as b:
        expect(a.read() == b.read(), f"after {kills} kills the weights are others")
    print(f"  {kills} kills")


if __name__ == "__main__":
    sys.exit(main((memory, evaluation, resume, sync, killed), missing))
