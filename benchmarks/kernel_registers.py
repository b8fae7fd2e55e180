#!/usr/bin/env python3
"""Registers, spills and shared memory of every CUDA kernel, from the compiler's own report.

Usage: kernel_registers.py [BUILD] [NAME ...]     BUILD: a folder built with -Dcuda=enabled (default build);
                                                  NAME: files of cuda/, without .cu (default all)

Compiles each file's device half once more with the build's own command and ptxas' report switched on; needs no GPU and
changes nothing. One line per file, for the first device of gpu_arch: kernels (instances of templates count), the most
registers, warps that then fit on a processor of 65536 registers and 64 warps (blocks of 256 threads), the most bytes of
static shared memory and of stack, and the bytes of spill stores and loads of all kernels. Exit status 1: a kernel
spills, or a file does not compile.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ENTRY = re.compile(r"Compiling entry function '(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
WARP, BLOCK_WARPS, REGISTERS, MOST_WARPS = 32, 8, 65536, 64


def command_for(build, name):
    """The build's command for one file, for one device, without the host's half."""
    text = subprocess.run(["ninja", "-C", build, "-t", "commands", f"cuda/{name}.cu.o"], check=True,
                          capture_output=True, text=True).stdout
    words = shlex.split(next(line for line in text.splitlines() if f"{name}.cu.o" in line and "nvcc" in line))
    words = words[next(i for i, w in enumerate(words) if os.path.basename(w) == "nvcc"):]
    kept, devices, i = [], 0, 0
    while i < len(words):
        if words[i] == "-gencode":
            if ",code=sm_" in words[i + 1] and devices == 0:
                kept += words[i:i + 2]
                devices += 1
            i += 2
        elif words[i] in ("-MF", "-MT", "-o"):
            i += 2
        elif words[i] in ("-MD", "-c"):
            i += 1
        else:
            kept.append(words[i])
            i += 1
    return kept + ["-cubin", "-Xptxas=-v"]


def demangled(names):
    try:
        out = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True).stdout
    except OSError:
        return names
    return [re.sub(r"^void |\(anonymous namespace\)::", "", line) for line in out.splitlines()]


def kernels_of(build, name):
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(command_for(build, name) + ["-o", os.path.join(folder, "out.cubin")], cwd=build,
                             capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"{name}.cu does not compile:\n{run.stderr}")
    kernels = []
    for line in (run.stdout + run.stderr).splitlines():
        if m := ENTRY.search(line):
            kernels.append({"name": m.group(1), "stack": 0, "spills": 0, "registers": 0, "shared": 0})
        elif kernels and (m := FRAME.search(line)):
            stack, stores, loads = map(int, m.groups())
            kernels[-1]["stack"] = max(kernels[-1]["stack"], stack)
            kernels[-1]["spills"] += stores + loads
        elif kernels and (m := USED.search(line)):
            kernels[-1]["registers"] = int(m.group(1))
            kernels[-1]["shared"] = int(s.group(1)) if (s := SHARED.search(line)) else 0
    if not kernels or any(k["registers"] == 0 for k in kernels):
        raise RuntimeError(f"{name}.cu: the compiler's report was not understood:\n{run.stderr}")
    return kernels


def warps(registers):
    """Registers are given out to a warp in units of 256."""
    per_block = BLOCK_WARPS * ((registers * WARP + 255) // 256 * 256)
    return min(MOST_WARPS, REGISTERS // per_block * BLOCK_WARPS)


def main():
    arguments = sys.argv[1:]
    if arguments and arguments[0].startswith("-"):
        print(__doc__.strip())
        return 0 if arguments[0] in ("-h", "--help") else 2
    build = arguments[0] if arguments else "build"
    cuda = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cuda")
    names = arguments[1:] or sorted(f[:-3] for f in os.listdir(cuda) if f.endswith(".cu"))
    if not os.path.exists(os.path.join(build, "build.ninja")):
        print(f"kernel_registers: {build} is no build folder", file=sys.stderr)
        return 2
    try:
        with ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 2) // 2)) as pool:
            results = list(pool.map(lambda name: kernels_of(build, name), names))
    except (RuntimeError, subprocess.CalledProcessError, StopIteration) as e:
        print(f"kernel_registers: {e or 'the build has no CUDA kernels'}", file=sys.stderr)
        return 1
    print("| file | kernels | most registers | warps of 64 | shared, bytes | stack, bytes | spills, bytes |")
    print("|---|---|---|---|---|---|---|")
    spilling = []
    for name, kernels in zip(names, results):
        most = max(k["registers"] for k in kernels)
        spilling += [(name, k) for k in kernels if k["spills"] > 0]
        print(f"| `cuda/{name}.cu` | {len(kernels)} | {most} | {warps(most)} | {max(k['shared'] for k in kernels)} | "
              f"{max(k['stack'] for k in kernels)} | {sum(k['spills'] for k in kernels)} |")
    every = [k for kernels in results for k in kernels]
    print(f"\n{len(every)} kernels, {len(spilling)} spill")
    for (file, kernel), name in zip(spilling, demangled([k["name"] for _, k in spilling])):
        print(f"{file}.cu: {name}: {kernel['registers']} registers, {kernel['spills']} bytes of spills")
    return 1 if spilling else 0


if __name__ == "__main__":
    sys.exit(main())
