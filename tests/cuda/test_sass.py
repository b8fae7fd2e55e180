#!/usr/bin/env python3
"""Reads the machine code of the built CUDA kernels, and first what planted faults look like to it.

Usage: test_sass.py ARCH OBJECT.cu.o ...      the code for sm_ARCH

Exit status 1: a kernel breaks a rule; 77: no cuobjdump here.

    local     no kernel keeps anything in local memory: no LDL, no STL, but for ALLOWED, and there in no loop that loads
    packs     a kernel of packs of N > 1 moves a pack at once: N * size bytes
    bytes     over pixels and columns, where no tail is left, nothing is loaded byte by byte
    ahead     what ends sums (*_ends, the last loop of fri_sum_columns) runs on a few blocks: 4 loads or more are on
              their way per wait

A rule that matches no kernel is a fault: names in the code have changed.

cuobjdump is looked for in PATH, beside nvcc, and in python3's packages.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter

FUNCTION = re.compile(r"Function : (\S+)")
LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)\s*(.*?)\s*;")
REGISTER = re.compile(r"\bR(\d+)\b(\.64)?")
WIDTH = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
SIZE = {"f": 4, "6__half": 2, "13__nv_bfloat16": 2}
TYPES = re.compile(r"I(f|6__half|13__nv_bfloat16)\w*?Li(\d+)E")
LOADS_PER_WAIT = 4


def kernels_of(text):
    """[(name, [(address, opcode, operands)])]"""
    kernels = []
    for line in text.splitlines():
        if m := FUNCTION.search(line):
            kernels.append((m.group(1), []))
        elif kernels and (m := LINE.match(line)):
            kernels[-1][1].append((int(m.group(1), 16), m.group(2), m.group(3)))
    return kernels


def width(opcode):
    return next((WIDTH[part] for part in opcode.split(".") if part in WIDTH), 4)


def registers(text):
    return {int(m.group(1)) + i for m in REGISTER.finditer(text) for i in range(2 if m.group(2) else 1)}


def loops(code):
    """Instructions between a branch and the earlier place that it leads to."""
    for at, opcode, operands in code:
        target = re.search(r"0x([0-9a-f]+)", operands)
        if opcode == "BRA" and target and int(target.group(1), 16) < at:
            yield [i for i in code if int(target.group(1), 16) <= i[0] <= at]


def waits(code):
    """Loads, and how often something is asked for that is still on its way."""
    loads, stops, coming = 0, 0, set()
    for _, opcode, operands in code:
        load = opcode.startswith("LDG")
        first, _, rest = operands.partition(",")
        if coming & registers(rest if load else operands):
            stops, coming = stops + 1, set()
        if load:
            loads += 1
            begin = min(registers(first))
            coming |= set(range(begin, begin + max(1, width(opcode) // 4)))
    return loads, stops


# What may keep something in local memory: architectures (all: empty), kernels, why.
ALLOWED = [((), "normal_of", "cosf reduces large angles there; these are below 2 pi")]


def faults(arch, name, code, matched):
    """Sentences; rules that look at the kernel are counted in `matched`."""
    loading = [loop for loop in loops(code) if any(opcode.startswith("LDG") for _, opcode, _ in loop)]
    matched["local"] += 1
    local = [i for i in code if i[1].split(".")[0] in ("LDL", "STL")]
    inside = [i for loop in loading for i in loop if i in local]
    allowed = any((not archs or arch in archs) and re.search(kernels, name) for archs, kernels, _ in ALLOWED)
    if inside or (local and not allowed):
        yield f"local: {len(local)} x {local[0][1]}{', in a loop that loads' if inside else ''}"
    matched["local, allowed"] += bool(local) and allowed
    loads = [opcode for _, opcode, _ in code if opcode.startswith("LDG")]
    m = TYPES.search(name)
    if m and int(m.group(2)) > 1 and not re.match(r"_Z4drop\w+Lb0E", name):  # which is for what is not aligned
        pack = SIZE[m.group(1)] * int(m.group(2))
        moves = [opcode for _, opcode, _ in code if opcode[:3] in ("LDG", "STG")]
        matched["packs"] += pack <= 16 and bool(moves)
        if pack <= 16 and moves and not any(width(opcode) == pack for opcode in moves):
            yield f"packs: nothing of {pack} bytes is moved"
        tails = not re.search("14fri_pixel_grid|11fri_columns", name)
        matched["bytes"] += not tails
        single = [opcode for opcode in loads if width(opcode) == 1]
        if not tails and single:
            yield f"bytes: {len(single)} x {single[0]}"
    sums = "fri_sum_columns" in name
    if sums or re.match(r"_Z\d+\w*_ends", name):
        turns = [waits(loop) for loop in (sorted(loading, key=lambda loop: loop[-1][0])[-1:] if sums else loading)]
        matched["ahead"] += 1
        if not turns:
            yield "ahead: no loop that loads"
        for n, stops in turns:
            if n < LOADS_PER_WAIT * max(stops, 1):
                yield f"ahead: {n} loads, {stops} waits"


# One line is an instruction; the loop of a sum's end, well and with each load asked for at once.
def listing(name, lines):
    return f"Function : {name}\n" + "".join(f"  /*{16 * i:04x}*/  {line} ;\n" for i, line in enumerate(lines))


AHEAD = [f"LDG.E R{10 + i}, desc[UR4][R{20 + 2 * i}.64]" for i in range(4)] + \
        [f"F2F.F64.F32 R{40 + 2 * i}, R{10 + i}" for i in range(4)] + ["@!P0 BRA 0x0"]
BEHIND = [line for i in range(4) for line in (AHEAD[i], AHEAD[4 + i])] + ["@!P0 BRA 0x0"]
PIXELS = "_Z8backwardI6__halfhLi8EEv8fri_axisS1_14fri_pixel_grid"
PACK, STORE = "@P1 LDG.E.128 R4, desc[UR4][R2.64]", "STG.E.128 desc[UR4][R2.64], R4"
PLANTED = [
    ("ahead", "_Z12fri_sum_endsILi1E3putIfEEvllPKfT0_", AHEAD, BEHIND),
    ("ahead", "_Z10stats_ends11fri_columns", AHEAD, AHEAD[:-1]),
    ("local", "_Z4stepIff", [PACK, STORE], [PACK, "STL.64 [R1], R4", STORE]),
    ("bytes", PIXELS, [PACK, STORE], [PACK, "LDG.E.U8 R9, desc[UR4][R6.64+0x1]", STORE]),
    ("ahead", "_Z15fri_sum_columnsILi8ELi2E11stats_termsI6__halfLi8EEEv11fri_columnsT1_Pf",
     [PACK, "@!P0 BRA 0x0"] + AHEAD[:-1] + ["@!P0 BRA 0x20"], [PACK, "@!P0 BRA 0x0"] + BEHIND[:-1] + ["@!P0 BRA 0x20"]),
    ("local", "_Z4drawI9normal_ofEv", [PACK, "STL.64 [R1], R4"], [PACK, "STL.64 [R1], R4", "@!P0 BRA 0x0"]),
    ("packs", PIXELS, [PACK, STORE], ["LDG.E.64 R4, desc[UR4][R2.64]", "STG.E.64 desc[UR4][R2.64], R4"]),
    ("packs", "_Z5applyI6__halfLi4ELb1EEv", ["LDG.E.64 R4, desc[UR4][R2.64]"], ["LDG.E.U16 R4, desc[UR4][R2.64]"]),
]


def unseen():
    for rule, name, good, bad in PLANTED:
        found = [[fault.split(":")[0] for fault in faults("90", *kernels_of(listing(name, lines))[0], Counter())]
                 for lines in (good, bad)]
        if found != [[], [rule]]:
            yield f"{rule}: {name}: {found[0]} in what is right, {found[1]} in what is wrong"


def disassembler():
    packages = sysconfig.get_paths()["purelib"]
    beside = [os.path.join(os.path.dirname(shutil.which("nvcc") or ""), "cuobjdump"), "/usr/local/cuda/bin/cuobjdump"]
    inside = [glob.glob(os.path.join(packages, *path)) for path in (("nvidia", "*", "bin", "cuobjdump"),
                                                                   ("triton", "backends", "*", "bin", "cuobjdump"))]
    for path in [shutil.which("cuobjdump")] + beside + sum(inside, []):
        if path and os.access(path, os.X_OK):
            return path
    return None


def main():
    if missed := list(unseen()):
        print("\n".join(["planted faults that were not told apart:"] + missed))
        return 1
    tool = disassembler()
    if tool is None:
        print("skipped: no cuobjdump in PATH, beside nvcc or in python3's packages")
        return 77
    found, matched = [], Counter({rule: 0 for rule in ("local", "packs", "bytes", "ahead")})
    for path in sys.argv[2:]:
        run = subprocess.run([tool, "-sass", "-arch", "sm_" + sys.argv[1], path], capture_output=True, text=True)
        if run.returncode != 0:
            print(f"{tool} {path}: {run.stderr.strip()}")
            return 1
        for name, code in kernels_of(run.stdout):
            found += [f"{os.path.basename(path)}: {name}: {fault}"
                      for fault in faults(sys.argv[1], name, code, matched)]
    found += [f"no kernel is looked at by the rule {rule}" for rule, n in matched.items()
              if n == 0 and not rule.endswith("allowed")]
    looked = ", ".join(f"{rule} {n}" for rule, n in matched.items())
    print("\n".join(found + [f"sm_{sys.argv[1]}: {len(found)} faults in kernels ({looked}), {len(PLANTED)} planted "
                             "ones found"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
