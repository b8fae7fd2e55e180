#!/usr/bin/env python3
"""Bits follow no C library: outside the f64 kernels objects call only functions whose results IEEE 754 fixes.

Usage: test_libm.py LIBFRUGAL.a COMPILER...

Lists the undefined functions of libm per object of the archive (nm -u). An object of the f64 kernels defines a
fri_cpu_f64_ function, and its results serve gradient checks alone.
"""
import re
import subprocess
import sys

FIXED = {name + suffix for suffix in ("", "f") for name in
         ("sqrt", "fma", "floor", "ceil", "rint", "nearbyint", "lrint", "lround", "fmin", "fmax")}


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def functions_of_libm(compiler):
    path = output(*compiler, "-print-file-name=libm.so.6").strip()
    return {m.group(1) for m in re.finditer(r" [TWi] (\w+)@", output("nm", "-D", "--defined-only", path))}


def members(archive):
    """Yields (object, defined, undefined) of each member; members may share a name."""
    for part in re.split(r"\n\n(?=\S+:\n)", output("nm", archive)):
        name, _, lines = part.strip().partition(":\n")
        symbols = re.findall(r"^[0-9a-f]* +(\w) (\w+)$", lines, re.M)
        yield name, {s for kind, s in symbols if kind not in "Uw"}, {s for kind, s in symbols if kind == "U"}


def main():
    archive, compiler = sys.argv[1], sys.argv[2:]
    libm = functions_of_libm(compiler)
    faults, seen, f64, fixed = [], 0, 0, set()
    if not {"exp", "expf", "sqrt"} <= libm:
        sys.exit("test_libm: libm's functions are not found")
    for name, defined, undefined in members(archive):
        called = undefined & libm
        seen += 1
        if any(s.startswith("fri_cpu_f64_") for s in defined):
            f64 += bool(called - FIXED)
            continue
        fixed |= called & FIXED
        faults += [f"{name} calls {', '.join(sorted(called - FIXED))}"] if called - FIXED else []
    for fault in faults:
        print(fault)
    print(f"{seen} objects; {f64} of the f64 kernels call others of libm's functions; the rest calls "
          f"{', '.join(sorted(fixed))}")
    if f64 == 0 or "sqrt" not in fixed:
        sys.exit("test_libm: neither the f64 kernels' functions nor the square root are seen: the list is not read")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
