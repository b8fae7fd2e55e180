#!/usr/bin/env python3
"""Ranks on devices, each on a fake one (tests/cuda/fake.h): states are those of one process, byte for byte; planned
bytes are measured; nothing on the devices is out of order (planted_cuda ends with 3).

device.py BUILD [PART...]   FRUGAL_DIST_SETS=all: every case through host memory and through NCCL. Skips (exit 77) with
a reason where no MPI or no CUDA is.
"""
import filecmp
import json
import os
import re
import signal
import subprocess
import sys

import law
from faults import ENV, LIMIT, Run, own_errors, told
from parts import expect, main

# As law.py's; none is of two passes, and batches overflow in some. A part of VGG's parameters is larger than what one
# other rank has of the landing zone.
CASES = {
    "scaled": ("densenet_bc22_k12", 4, ["--amp=fp16", "--clip", "1", "--optimizer", "adamw"], []),
    "adam8": ("resnet18", 5, ["--optimizer", "adam8", "--checkpoint-segments", "sqrt", "--clip", "0.5"], []),
    "fused": ("vgg11_bn", 4, ["--optimizer", "adamw"], ["--fused-step"]),
    "masters": ("unet3", 5, ["--half", "--master-weights", "--optimizer", "adamw", "--device-prefetch"], []),
}
RANKS = {"scaled": ("openmpi", 3), "adam8": ("mpich", 2), "fused": ("openmpi", 3), "masters": ("mpich", 3)}


PATIENT = dict(ENV, FRUGAL_PEER_TIMEOUT="120", PLANTED_MODEL=CASES["scaled"][0])
FIELDS = {"scaled": "check", "fused": "ema=0.9"}  # without a flag (planted.c)


def missing(build):
    if not os.path.exists(os.path.join(build, "tests", "addons", "ranks", "planted_cuda")):
        return "the build is without CUDA"
    return law.missing(build)


def program(build, name, *more):
    network, batches, flags, _ = CASES[name]
    os.environ["PLANTED_MODEL"] = network
    os.environ["PLANTED_FIELDS"] = FIELDS.get(name, "")
    return [os.path.join(build, "tests", "addons", "ranks", "planted_cuda")] + law.TINY + flags + [
        "--device", "cuda", "--steps", "3", "--accumulate", str(batches)] + list(more)


def case(build, where, name):
    launcher, n = RANKS[name]
    only_ranks = CASES[name][3]
    one, many, report = (os.path.join(where, f) for f in ("one", "many", "report.json"))
    law.run(program(build, name, "--save", one, "--report", report))
    with open(report) as f:
        lost = json.load(f).get("loss_scale", {}).get("skipped", 0)
    law.run(law.RUN[launcher] + [str(n)] + program(build, name, *only_ranks, "--save", many, "--report", report))
    with open(report) as f:
        got = json.load(f)
    same = filecmp.cmp(law.newest(one), law.newest(many), shallow=False)
    expect(same, f"{name}: {n} ranks have another state than one process")
    expect(name != "scaled" or 0 < lost < 3, f"{name}: {lost} of 3 steps overflowed")
    expect(got.get("loss_scale", {}).get("skipped", 0) == lost, f"{name}: ranks skipped other steps")
    for i, r in enumerate(got["ranks"]):
        expect(r["departures"] == 0, f"{name}: rank {i} departs from its plan {r['departures']} times")
        expect(r["planned"] == r["peak_reserved"] > 0, f"{name}: rank {i} was planned {r['planned']} bytes")


def each(build, where, some):
    for name in CASES if os.environ.get("FRUGAL_DIST_SETS") == "all" else some:
        folder = os.path.join(where, name)
        os.mkdir(folder)
        case(build, folder, name)


def staged(build, where):
    """Through host memory, by MPI."""
    each(build, where, ["scaled", "masters"])


def linked(build, where):
    """From device to device, by a fake NCCL."""
    os.environ["PLANTED_NCCL"] = "1"
    each(build, where, ["adam8", "fused"])
    del os.environ["PLANTED_NCCL"]


def quiet(build, where):
    """The host waits for a stream twice in a step: for the norms' counters, and for the norm that clips. The planted
    program's own loss waits once more in each of a rank's two micro-batches."""
    def waits(steps):
        done = subprocess.run(law.RUN["openmpi"] + ["2"] + program(build, "scaled") + ["--steps", str(steps)],
                              env=dict(PATIENT, PLANTED_NCCL="1", PLANTED_WAITS="1"),
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
        return [int(n) for n in re.findall(r"waits for a stream: (\d+)", done.stderr)]
    few, many = waits(2), waits(5)
    expect(len(few) == len(many) == 2, f"two ranks printed {few} and {many}")
    expect(sum(many) - sum(few) <= (2 + 2) * 2 * 3, f"three steps of two ranks more: waits {few} became {many}")


def rooms(build, where):
    """The rank with the least free memory decides what all ranks keep, and no choice changes a bit."""
    def ran(name, memory, *more):
        state, report = os.path.join(where, name), os.path.join(where, name + ".json")
        little = f'test "$OMPI_COMM_WORLD_RANK" = 1 && export PLANTED_MEMORY={memory}; exec "$@"'
        law.run(law.RUN["openmpi"] + ["2", "sh", "-c", little, "sh"] +
                program(build, "scaled", "--save", state, "--report", report, *more))
        with open(report) as f:
            return law.newest(state), json.load(f)
    libraries = 256 << 20
    kept, all_kept = ran("kept", 1 << 30, "--no-rebuild")
    needed = max(r["planned"] for r in all_kept["ranks"])
    for name, memory, choice in (("much", 1 << 30, "kept"), ("little", libraries + needed - 512, "fitted")):
        state, got = ran(name, memory)
        room = got.get("room", {})
        expect(room.get("choice") == choice and room["bytes"] <= memory - libraries,
               f"rank 1 has {memory} bytes: rank 0 says {room}, not {choice}")
        expect(all(r["departures"] == 0 for r in got["ranks"]), f"{name}: a rank departs from its plan")
        expect(filecmp.cmp(kept, state, shallow=False), f"{name}: another state than with --no-rebuild")


def mixed(build, where):
    """Ranks whose drivers differ are refused: the same plan might not be the same code there."""
    other = 'test "$OMPI_COMM_WORLD_RANK" = 1 && export PLANTED_DRIVER=12080; exec "$@"'
    errors = os.path.join(where, "errors")
    os.mkdir(errors)
    command = law.RUN["openmpi"] + ["2"] + own_errors("openmpi", errors) + ["sh", "-c", other, "sh"]
    done = subprocess.run(command + program(build, "scaled"), env=PATIENT,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    said = told(errors)
    expect(done.returncode != 0 and "rank 1 (" in said and "driver 13.0" in said and "driver 12.8" in said,
           f"ranks with two drivers: status {done.returncode}, {said}")


def gone(build, where):
    """A rank that stands still, or is killed, while devices wait for it: what waits is aborted, and all end."""
    env = {"PLANTED_NCCL": "1", "PLANTED_MODEL": "densenet_bc22_k12"}
    for number, sentences in ((signal.SIGSTOP, ["no word from rank 1 (", f"for {LIMIT} s"]), (signal.SIGKILL, [])):
        run = Run(build, "mpich", ["--device", "cuda"], env, program=program(build, "scaled")[0])
        os.kill(run.pids[1], number)
        wrong = run.ended(LIMIT + 5, sentences)
        expect(wrong is None, wrong)
    run = Run(build, "openmpi", ["--device", "cuda"], dict(env, PLANTED_NCCL="stalls"),
              program=program(build, "scaled")[0])
    wrong = run.ended(LIMIT + 5, [f"NCCL 2.28.9 has moved no data between the ranks for {LIMIT} s"])
    expect(wrong is None, wrong)


if __name__ == "__main__":
    sys.exit(main((staged, linked, quiet, rooms, mixed, gone), missing))
