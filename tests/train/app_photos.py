#!/usr/bin/env python3
"""README's program on README's photos: the last lines have README's form, the accuracy is at least 95 % on the test
photos, and the peak keeps to the budget.

Usage: app_photos.py MAKE_PHOTOS APP_PHOTOS README [SEEDS]     SEEDS: runs, each with photos of its own (default 1)
"""
import os
import re
import subprocess
import sys
import tempfile
import time


def form(line):
    return re.sub(r"[0-9]+(\.[0-9]+)?", "N", line)


def run(make, app, readme, folder, seed):
    photos = os.path.join(folder, "photos")
    subprocess.run([make, photos] + ([str(seed)] if seed else []), check=True, stdout=subprocess.DEVNULL)
    began = time.monotonic()
    out = subprocess.run([app, "photos", "net.safetensors", "photos/test/ring/2.jpg"], cwd=folder, check=True,
                         stdout=subprocess.PIPE, text=True).stdout.splitlines()[-3:]
    seconds = time.monotonic() - began
    accuracy = float(re.search(r"test accuracy ([0-9.]+) %", out[0]).group(1))
    peak, budget = map(int, re.search(r"peak memory (\d+) of (\d+) bytes", out[1]).groups())
    print(f"photos {seed}: test accuracy {accuracy} %, {seconds:.0f} s, peak {peak} of {budget} bytes")
    failed = []
    blocks = [b.strip().splitlines() for b in re.findall(r"^```[^\n]*\n(.*?)^```$", open(readme).read(), re.M | re.S)]
    if [form(line) for line in out] not in [[form(line) for line in b] for b in blocks]:
        failed.append("README has no block of this form:\n" + "\n".join(out))
    if accuracy < 95:
        failed.append(f"the accuracy is {accuracy} %, below 95 %")
    if peak > budget:
        failed.append(f"the peak, {peak} bytes, is above the budget of {budget}")
    return failed


def main():
    if len(sys.argv) not in (4, 5):
        print(__doc__)
        return 2
    make, app, readme = map(os.path.abspath, sys.argv[1:4])
    failed = []
    for seed in range(int(sys.argv[4]) if len(sys.argv) > 4 else 1):
        with tempfile.TemporaryDirectory() as folder:
            failed += run(make, app, readme, folder, seed)
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
