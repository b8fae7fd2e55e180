#!/usr/bin/env python3
"""What becomes of a training when one of its ranks does not go on: every rank ends in time, with a sentence, and no
process is left.

faults.py BUILD [FAULT...]   without faults: all but those of SLOW, under one launcher each; FRUGAL_DIST_SETS=all: all,
under both. Skips (exit 77) with a reason where no MPI is.
"""
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

from law import RESNET, RUN, missing

LIMIT = 4  # seconds of FRUGAL_PEER_TIMEOUT
ENV = dict(os.environ, OMP_NUM_THREADS="1", FRUGAL_PEER_TIMEOUT=str(LIMIT), OMPI_ALLOW_RUN_AS_ROOT="1",
           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
RANK = {"openmpi": "OMPI_COMM_WORLD_RANK", "mpich": "PMI_RANK"}
LONG = ["--image-size", "32", "--batch-size", "4", "--eval-every", "0", "--seed", "3", "--steps", "100000",
        "--workers", "0"]


def ranks_of(launcher, program):
    """{rank: pid} of the launcher's programs."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                env = dict(word.split(b"=", 1) for word in f.read().split(b"\0") if b"=" in word)
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                name = f.read().split(b"\0")[0].decode()
        except (OSError, ValueError):
            continue
        rank = env.get(RANK[launcher].encode())
        if os.path.basename(name) == os.path.basename(program) and rank is not None and \
                env.get(b"FRUGAL_TEST_RUN") == str(os.getpid()).encode():
            found[int(rank)] = int(pid)
    return found


def own_errors(launcher, folder):
    """A shell command's words that keep each rank's stderr in the folder: a launcher that ends a run may lose it."""
    return ["sh", "-c", f'exec "$@" 2> {folder}/${RANK[launcher]}', "sh"]


def told(folder):
    text = ""
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name)) as f:
            text += f.read()
    return text


class Run:
    """A training on three ranks that has made some steps."""

    def __init__(self, build, launcher, flags, env=None, wait=True, program=None):
        self.launcher, self.program = launcher, program or os.path.join(build, "examples", RESNET[0])
        self.out = tempfile.NamedTemporaryFile("r", suffix=".txt")
        self.log = tempfile.NamedTemporaryFile("r", suffix=".jsonl")
        self.errors = tempfile.TemporaryDirectory()
        command = RUN[launcher] + ["3"] + own_errors(launcher, self.errors.name) + [self.program] + LONG
        command += ([] if program else RESNET[1:]) + ["--log", self.log.name] + flags
        self.process = subprocess.Popen(command, stdout=open(self.out.name, "w"), stderr=subprocess.STDOUT,
                                        env=dict(ENV, FRUGAL_TEST_RUN=str(os.getpid()), **(env or {})))
        while wait and self.steps() < 2:
            if self.process.poll() is not None:
                sys.exit(f"faults: the run ended before its first steps:\n{self.out.read()}{told(self.errors.name)}")
            time.sleep(0.1)
        self.pids = ranks_of(launcher, self.program) if wait else {}

    def steps(self):
        with open(self.log.name) as f:
            return f.read().count("\n")

    def ended(self, seconds, sentences, status=None):
        """What is wrong with how it ended, or None."""
        began = time.monotonic()
        while ranks_of(self.launcher, self.program) and time.monotonic() - began < seconds:
            time.sleep(0.05)
        left = ranks_of(self.launcher, self.program)
        took = time.monotonic() - began
        for pid in left.values():
            os.kill(pid, signal.SIGKILL)
        code = self.process.wait()
        text = self.out.read() + told(self.errors.name)
        if left:
            return f"ranks {sorted(left)} were there after {seconds} s:\n{text}"
        if status is not None and code != status:
            return f"exit status {code}, not {status}:\n{text}"
        for sentence in sentences:
            if sentence not in text:
                return f"nobody said '{sentence}':\n{text}"
        print(f"  {took:.1f} s")
        return None


def stopped(build, launcher):
    run = Run(build, launcher, [])
    os.kill(run.pids[1], signal.SIGSTOP)
    return run.ended(LIMIT + 5, ["no word from rank 1 (", f"for {LIMIT} s"])


def terminated(build, launcher):
    """A signal to one rank alone ends all after the same step, saved."""
    with tempfile.TemporaryDirectory() as where:
        run = Run(build, launcher, ["--save", where])
        os.kill(run.pids[2], signal.SIGTERM)
        return run.ended(LIMIT + 5, []) or (None if os.listdir(where) else "nothing was saved")


def killed(build, launcher):
    """The launcher may be faster than the ranks' own limit."""
    run = Run(build, launcher, [])
    os.kill(run.pids[1], signal.SIGKILL)
    return run.ended(LIMIT + 5, [])


def memory(build, launcher):
    run = Run(build, launcher, ["--memory-limit", "30MiB"], wait=False)
    time.sleep(1)
    return run.ended(LIMIT + 5, ["out of memory on cpu"])


def png(gray):
    """An image of 16 x 16 pixels of one gray."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", 16, 16, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + \
        chunk(b"IDAT", zlib.compress((b"\0" + bytes([gray]) * 16) * 16)) + chunk(b"IEND", b"")


def unreadable(build, launcher):
    """Images that cannot be read, which some rank comes to."""
    with tempfile.TemporaryDirectory() as where:
        for split in ("train", "test"):
            for label in ("a", "b"):
                os.makedirs(os.path.join(where, split, label))
                for i in range(48):
                    with open(os.path.join(where, split, label, f"{i}.png"), "wb") as f:
                        f.write(png(i))
        run = Run(build, launcher, ["--dataset", "folder", "--data", where])
        for i in range(8):
            with open(os.path.join(where, "train", "a", f"{i}.png"), "r+b") as f:
                f.truncate(50)
        return run.ended(LIMIT + 15, [" ended in step ", ".png"])


def full_disk(build, launcher):
    """A state that cannot be written does not end the training, on no rank: here a disk of 4 MiB (root's to mount)."""
    if os.geteuid() != 0:
        print("  skipped: a small disk needs root")
        return None
    with tempfile.TemporaryDirectory() as where:
        mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "frugal", where]
        if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode != 0:
            print("  skipped: nothing can be mounted here")
            return None
        try:
            run = Run(build, launcher, ["--save", where, "--save-every", "1"])
            for pid in ranks_of(launcher, run.program).values():
                os.kill(pid, signal.SIGTERM)
            return run.ended(LIMIT + 5, ["No space left", "; the training goes on"])
        finally:
            subprocess.run(["umount", where], check=True)


def lost_folder(build, launcher):
    """Nor does a folder that is gone."""
    with tempfile.TemporaryDirectory() as where:
        run = Run(build, launcher, ["--save", where, "--save-every", "1"], wait=False)
        while run.steps() < 2 and run.process.poll() is None:
            time.sleep(0.1)
        for name in os.listdir(where):
            os.unlink(os.path.join(where, name))
        os.rmdir(where)
        time.sleep(1)
        before = run.steps()
        time.sleep(1.5)
        went_on = run.steps() > before
        os.makedirs(where, exist_ok=True)
        for pid in ranks_of(launcher, run.program).values():
            os.kill(pid, signal.SIGTERM)
        return run.ended(LIMIT + 5, ["; the training goes on"]) or (None if went_on else "it stood still")


def three(build, launcher, rank, word, flags=()):
    """A run in which one rank's command is `word`: its exit status, what was said, and how long it took."""
    choose = ["sh", "-c", f'if [ "${RANK[launcher]}" = {rank} ]; then {word}; else exec "$@"; fi', "sh"]
    program, began = os.path.join(build, "examples", RESNET[0]), time.monotonic()
    with tempfile.TemporaryDirectory() as errors:
        command = RUN[launcher] + ["3"] + own_errors(launcher, errors) + choose + [program] + RESNET[1:] + LONG
        done = subprocess.run(command + list(flags), env=dict(ENV, FRUGAL_TEST_RUN=str(os.getpid())), timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        text = done.stdout + told(errors)
    took = time.monotonic() - began
    print(f"  {took:.1f} s")
    return done.returncode, text, took


def unlike(build, launcher, word, sentences):
    """Rank 1 runs `word` in place of the common command."""
    code, text, _ = three(build, launcher, 1, word)
    for sentence in sentences:
        if sentence not in text:
            return f"nobody said '{sentence}':\n{text}"
    return f"exit status 0:\n{text}" if code == 0 else None


def late(build, launcher):
    """A rank that starts later than a step may take: the others wait for it."""
    code, text, took = three(build, launcher, 1, f'sleep {LIMIT + 3}; exec "$@"', ["--steps", "2"])
    return None if code == 0 and took > LIMIT + 3 else f"exit status {code} after {took:.1f} s:\n{text}"


def slow(build, function):
    """A command's word that preloads slow.c."""
    library = os.path.join(build, "tests", "addons", "ranks", "libslow.so")
    return f'LD_PRELOAD={library} FRUGAL_TEST_SLOW={function} exec "$@"'


def slow_save(build, launcher):
    """Likewise a state that takes longer to write."""
    with tempfile.TemporaryDirectory() as where:
        code, text, took = three(build, launcher, 0, slow(build, "fsync"), ["--steps", "2", "--save", where])
        saved = os.listdir(where)
    return None if code == 0 and took > 6 and saved else f"exit status {code} after {took:.1f} s:\n{text}"


def slow_end(build, launcher):
    """A library that does not let a rank go (MPICH 4.0 over TCP, now and then): all end without it after 10 s."""
    _, text, took = three(build, launcher, 1, slow(build, "MPI_Finalize"), ["--steps", "2"])
    left = ranks_of(launcher, RESNET[0])
    return None if 10 < took < 20 and not left else f"{len(left)} ranks are left after {took:.1f} s:\n{text}"


def exits(build, launcher):
    return unlike(build, launcher, "exit 3", [] if launcher == "openmpi" else ["did not connect within"])


def other_flags(build, launcher):
    return unlike(build, launcher, 'exec "$@" --lr 0.5', ["rank 1 (", "different values of --lr"])


def other_data(build, launcher):
    return unlike(build, launcher, 'exec "$@" --dataset synthetic', ["rank 1 (", "different"])


def other_isa(build, launcher):
    return unlike(build, launcher, 'FRUGAL_ISA=sse2 exec "$@"', ["environments in which different bits"])


def other_threads(build, launcher):
    return unlike(build, launcher, 'exec "$@" --threads 2', ["different values of --threads"])


def wrong_engine(build, launcher):
    other = "mpich" if launcher == "openmpi" else "openmpi"
    engine = os.path.join(build, "src", "addons", "ranks", f"libfrugal-mpi-{other}.so")
    run = Run(build, launcher, [], env={"FRUGAL_MPI": engine}, wait=False)
    return run.ended(30, ["belong to different MPIs"])


def no_engine(build, launcher):
    run = Run(build, launcher, [], env={"FRUGAL_MPI": "/nowhere/engine.so"}, wait=False)
    return run.ended(30, ["the engine that connects them cannot be opened: /nowhere/engine.so"])


def no_launcher(build, _):
    """Of srun's variables those of PMIx are missing: one sentence, not as many runs as there are ranks."""
    program = os.path.join(build, "examples", RESNET[0])
    done = subprocess.run([program] + RESNET[1:] + LONG, text=True, timeout=60,
                          env=dict(os.environ, FRUGAL_PEER_TIMEOUT="1", SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="0",
                                   SLURM_LOCALID="0"),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wrong = done.returncode != 1 or "add --mpi=pmix" not in done.stdout
    return f"exit status {done.returncode}:\n{done.stdout}" if wrong else None


FAULTS = [stopped, terminated, killed, exits, late, slow_save, slow_end, memory, unreadable, full_disk, lost_folder,
          other_flags, other_data, other_isa, other_threads, wrong_engine, no_engine, no_launcher]
SLOW = [late, slow_save, slow_end, unreadable]


def main():
    build = sys.argv[1]
    every = os.environ.get("FRUGAL_DIST_SETS") == "all" or len(sys.argv) > 2
    wanted = [f for f in FAULTS if f.__name__ in sys.argv[2:]] or [f for f in FAULTS if every or f not in SLOW]
    reason = missing(build)
    if reason:
        print(f"faults: skipped, {reason}")
        return 77
    failures = 0
    for i, fault in enumerate(wanted):
        launchers = list(RUN)
        for launcher in launchers if every else [launchers[i % len(launchers)]]:
            print(f"{fault.__name__}, {launcher}:", flush=True)
            wrong = fault(build, launcher)
            failures += wrong is not None
            if wrong:
                print(f"  FAILED: {wrong}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
