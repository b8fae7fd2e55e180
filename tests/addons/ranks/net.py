#!/usr/bin/env python3
"""Ranks on two hosts (hosts.py): what is on the wire, whose states they make, and what a cut cable ends.

net.py BUILD [PART...]   without parts: all. FRUGAL_DIST_SETS=all: more launchers and ranks. Skips (exit 77) with a
reason where MPI or namespaces are missing.
"""
import filecmp
import json
import os
import signal
import subprocess
import sys
import time

from faults import LIMIT, RANK, ranks_of
from hosts import Hosts, lacking
from law import RESNET, RUN, missing, newest, program, run
from parts import expect, main

EVERY = os.environ.get("FRUGAL_DIST_SETS") == "all"


def start(hosts, launcher, each, words):
    env = dict(hosts.env(launcher), FRUGAL_TEST_RUN=str(os.getpid()))
    return subprocess.Popen(hosts.command(launcher, each, words), env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, start_new_session=True)


def finished(process):
    try:
        text = process.communicate(timeout=120)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode != 0:
        sys.exit(f"net: a run ended with {process.returncode}:\n{text}")


def wire(build, where):
    """A step sends at most 2 G (N - 1)/N bytes per rank and 4 %, as the card counts them: the difference of a longer
    and a shorter training, by its steps. On two ranks per host half of the peers are beyond the cable, and 2/3 of what
    is sent."""
    name = os.path.join(where, "report.json")
    with Hosts() as hosts:
        for launcher in RUN if EVERY else ["openmpi"]:
            for each in (1, 2) if EVERY else (2,):
                sent = []
                for steps in (2, 6):
                    before = hosts.sent(0)
                    words = program(build, RESNET) + ["--steps", str(steps), "--report", name]
                    finished(start(hosts, launcher, each, words))
                    sent.append(hosts.sent(0) - before)
                with open(name) as f:
                    parameters = json.load(f)["trained_parameters"]
                ranks = 2 * each
                formula = each * 2 * 4 * parameters * (ranks - 1) / ranks * each / (ranks - 1)
                ratio = (sent[1] - sent[0]) / 4 / formula
                print(f"  {launcher}, {each} + {each} ranks: {ratio:.4f} of 2 G (N - 1)/N on the wire", flush=True)
                expect(0.9 < ratio <= 1.04, f"{launcher}, {each} + {each} ranks: {sent} bytes, {formula:.0f} per step")


def law(build, where):
    """The states of one process."""
    one = os.path.join(where, "one")
    flags = ["--optimizer", "adamw", "--clip", "1", "--steps", "3", "--accumulate", "4"]
    run(program(build, RESNET) + flags + ["--save", one])
    with Hosts() as hosts:
        for launcher in RUN if EVERY else ["mpich"]:
            there = os.path.join(where, launcher)
            finished(start(hosts, launcher, 2, program(build, RESNET) + flags + ["--save", there]))
            expect(filecmp.cmp(newest(one), newest(there), shallow=False), f"{launcher}: the state is another")


def cut(build, where):
    """Every rank ends within the limit and 5 s, and says whom it has not heard; what becomes of the launcher is its own
    matter (Open MPI 4.1's mpirun hangs)."""
    for launcher in RUN:
        with Hosts() as hosts:
            log = os.path.join(where, launcher)
            said = [os.path.join(where, f"{launcher}.{rank}") for rank in range(2)]
            script = f'export FRUGAL_PEER_TIMEOUT={LIMIT}; exec "$@" 2> {where}/{launcher}.${RANK[launcher]}'
            words = ["sh", "-c", script, "sh"] + program(build, RESNET)
            process = start(hosts, launcher, 1, words + ["--steps", "100000", "--log", log])
            began = time.monotonic()
            while time.monotonic() - began < 60 and not (os.path.exists(log) and os.path.getsize(log) > 300):
                time.sleep(0.1)
            expect(len(ranks_of(launcher, words[4])) == 2, f"{launcher}: two ranks did not start")
            hosts.cut()
            began = time.monotonic()
            while ranks_of(launcher, words[4]) and time.monotonic() - began < LIMIT + 5:
                time.sleep(0.05)
            took, left = time.monotonic() - began, ranks_of(launcher, words[4])
            expect(not left, f"{launcher}: ranks {sorted(left)} were there {took:.1f} s after the cut")
            hosts.end()
            process.communicate()
            for rank, name in enumerate(said):
                with open(name) as f:
                    text = f.read()
                other = f"no word from rank {1 - rank} (frugal-{'ba'[rank]}) for {LIMIT} s"
                whole = f"rank {rank} (frugal-{'ab'[rank]}) ended in step "
                expect(other in text and whole in text, f"{launcher}: rank {rank} said '{text}'")
            print(f"  {launcher}: {took:.1f} s")


if __name__ == "__main__":
    sys.exit(main((wire, law, cut), lambda build: missing(build) or lacking()))
