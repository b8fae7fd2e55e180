"""Plants the mutants in PLACE/tree, one at a time, and runs their tests; see run.sh.

Usage: plant.py PLACE [WORD...]
       plant.py --copy TREE     makes TREE the working tree; what is equal keeps its time and is not built again
       plant.py --texts         says which entries' old text is not in its file exactly once; builds nothing
"""
import filecmp
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

TEST_SECONDS = 300


class Mutant:
    def __init__(self, text):
        lines = text.rstrip("\n").split("\n")
        self.claim, self.file = lines[0].strip(), lines[1].strip()
        self.program, *self.filter = lines[2].split()
        self.old = "\n".join(line[1:] for line in lines[3:] if line.startswith("-"))
        self.new = "\n".join(line[1:] for line in lines[3:] if line.startswith("+"))
        if self.new == "" and not any(line.startswith("+") for line in lines[3:]):
            self.old += "\n"  # a line that goes takes its end along

    def test(self):
        return " ".join([self.program] + self.filter)


def read(words, cuda):
    here = os.path.dirname(__file__)
    found = [path for where in (".", "../addons/*") for path in glob.glob(os.path.join(here, where, "*.mutants"))]
    for path in sorted(found):
        if os.path.basename(path) == "cuda.mutants" and not cuda:
            continue
        with open(path, encoding="utf-8") as f:
            entries = re.split(r"^== ", f.read(), flags=re.M)[1:]
        for m in map(Mutant, entries):
            if not words or any(w in f"{m.claim} {m.file} {m.test()}" for w in words):
                yield m


class Tree:
    def __init__(self, place):
        self.source, self.build = os.path.abspath(f"{place}/tree"), os.path.abspath(f"{place}/build")
        self.tests = None  # name: command
        self.environment = dict(
            os.environ, FRUGAL_SOURCE_ROOT=self.source, FRUGAL_TRAINERS=f"{self.build}/examples",
            OMP_NUM_THREADS="2", CRITERION_JOBS="1")

    def has_cuda(self):
        with open(f"{self.build}/build.ninja", encoding="utf-8") as f:
            return "FRI_HAVE_CUDA" in f.read()

    def command(self, m):
        """The test's command as meson knows it, with the mutant's own filter where it has one."""
        if self.tests is None:
            known = subprocess.run(["meson", "introspect", "--tests", self.build], check=True, capture_output=True)
            self.tests = {t["name"]: t["cmd"] for t in json.loads(known.stdout)}
        command = self.tests[m.program]
        return [command[0], "--filter", m.filter[0]] if m.filter else command

    def builds(self, m):
        """The test program, and for tests of trainers what they run."""
        targets = [os.path.relpath(self.command(m)[0], self.build)]
        if targets[0] == "tests/test_train":
            targets += [f"examples/train_{n}" for n in ("vgg", "resnet", "densenet", "unet", "own")]
        done = subprocess.run(["ninja", "-C", self.build] + targets, capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stdout[-3000:])
        return done.returncode == 0

    def passes(self, m):
        try:
            done = subprocess.run(self.command(m), env=self.environment, cwd=self.build, capture_output=True,
                                  timeout=TEST_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        text = re.sub(rb"\x1b\[[\d;]*m", b"", done.stderr + done.stdout)
        ran = re.search(rb"Tested: (\d+)", text)
        return done.returncode == 0 and (ran is None or int(ran.group(1)) > 0)

    def outcome(self, m):
        path = f"{self.source}/{m.file}"
        with open(path, encoding="utf-8") as f:
            text = f.read()
        if text.count(m.old) != 1:
            return f"does not apply: its old text is there {text.count(m.old)} times"
        try:
            self.write(path, text.replace(m.old, m.new))
            if not self.builds(m):
                return "does not compile"
            return "SURVIVED" if self.passes(m) else "caught"
        finally:
            self.write(path, text)

    @staticmethod
    def write(path, text):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)


def copy(to):
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True,
                            capture_output=True).stdout
    for name in filter(os.path.isfile, map(os.fsdecode, listed.split(b"\0"))):
        target = os.path.join(to, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target) or not filecmp.cmp(name, target, shallow=False):
            shutil.copy(name, target)  # with the time of now


def texts():
    faults = total = 0
    for m in read([], True):
        total += 1
        with open(m.file, encoding="utf-8") as f:
            times = f.read().count(m.old)
        if times != 1:
            faults += 1
            print(f"{m.file}: the old text of '{m.claim}' is there {times} times")
    print(f"{total} mutants, {faults} without their text")
    return 1 if faults else 0


def main():
    if sys.argv[1] == "--copy":
        return copy(sys.argv[2])
    if sys.argv[1] == "--texts":
        return texts()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # the tree is put in order again
    tree = Tree(sys.argv[1])
    mutants = list(read(sys.argv[2:], tree.has_cuda()))
    faults, sound = 0, {}
    for m in mutants:
        start = time.time()
        if m.test() not in sound:  # a test that fails anyway would catch everything
            sound[m.test()] = tree.builds(m) and tree.passes(m)
        outcome = tree.outcome(m) if sound[m.test()] else "its test fails without it"
        faults += outcome != "caught"
        print(f"{outcome:8} {time.time() - start:5.0f} s  {m.file:34} {m.test():42} {m.claim}", flush=True)
    print(f"{len(mutants)} mutants, {len(mutants) - faults} caught, {faults} not")
    return 0 if mutants and faults == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
