#!/usr/bin/env python3
"""The built library exports fr_* and nothing else; it and a program are hardened as meson.build asks, and need neither
MPI nor CUDA's libraries, which are opened where they are used. A library that is unloaded leaves no memory behind.

Usage: test_binaries.py LIBRARY PROGRAM
"""
import os
import re
import shutil
import subprocess
import sys

faults = []


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def expect(condition, sentence):
    if not condition:
        faults.append(sentence)


def exported(library):
    names = [line.split()[-1] for line in output("nm", "-D", "--defined-only", library).splitlines() if line]
    others = sorted(n for n in names if not n.startswith("fr_"))
    expect(not others, f"{library}: exports {len(others)} names beside fr_*: {' '.join(others[:5])}")
    expect("fr_train_run" not in names, f"{library}: exports fr_train_run, which belongs to frugal-cli")
    expect("fr_last_error" in names, f"{library}: exports {len(names)} names, fr_last_error is not among them")


def hardened(path, program):
    text = output("readelf", "-W", "-h", "-l", "-d", path)
    symbols = output("nm", "-D", "--undefined-only", path)
    stack = re.search(r"GNU_STACK\s+(?:0x\w+\s+){5}(\w+)", text)
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", text):
        expect(not re.match(r"lib(gomp|mpi|nccl|cud|cublas|nvidia)", name), f"{path}: needs {name}")
    expect("(NEEDED)" in text, f"{path}: needs no library at all")
    expect(re.search(r"Type:\s+DYN", text), f"{path}: not position-independent")
    expect(not program or re.search(r"Flags:.*\bPIE\b", text), f"{path}: not a position-independent executable")
    expect("GNU_RELRO" in text, f"{path}: no RELRO segment")
    expect("BIND_NOW" in text, f"{path}: symbols are bound lazily, so its table of addresses stays writable")
    expect(stack and "E" not in stack.group(1), f"{path}: the stack is executable")
    expect("__stack_chk_fail" in symbols, f"{path}: no stack protector")
    expect(re.search(r"__(snprintf|memcpy|read)_chk", symbols), f"{path}: no call checked by FORTIFY_SOURCE")


# Creates and releases a tensor of 1 MiB: the allocator caches a segment until the library is unloaded.
UNLOAD = """
import ctypes, _ctypes, sys
def mapped():
    return int(open("/proc/self/statm").read().split()[0]) * 4096
def load_and_unload():
    library = ctypes.CDLL(sys.argv[1])
    tensor = ctypes.c_void_p()
    shape = (ctypes.c_int64 * 1)(1 << 18)
    assert library.fr_tensor_empty(1, shape, 0, 0, ctypes.byref(tensor)) == 0
    library.fr_tensor_release(ctypes.byref(tensor))
    del library.fr_tensor_empty, library.fr_tensor_release
    _ctypes.dlclose(library._handle)
for _ in range(3):
    load_and_unload()
before = mapped()
for _ in range(8):
    load_and_unload()
print(mapped() - before)
"""


def unloaded(library):
    grown = int(output(sys.executable, "-c", UNLOAD, library))
    expect(grown < 8 << 20, f"{library}: 8 times loaded and unloaded, {grown} bytes more are mapped")


def main():
    for tool in ("nm", "readelf"):
        if shutil.which(tool) is None:
            print(f"[SKIP] binaries: there is no {tool}")
            return 77
    library, program = sys.argv[1:]
    exported(library)
    unloaded(library)
    hardened(library, False)
    hardened(program, True)
    print("\n".join(faults) if faults else f"{library} and {program}: as asked")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
