#!/usr/bin/env python3
"""The library prints nothing (law 5): no object asks for standard output or error, and of the session's functions
fri_said_print alone writes to a stream (to fr_session_opts.out, for an application).

Usage: test_prints.py ROOT ARCHIVE COMPILER...     compiles the session's files once more, as one
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

NEVER = {"printf", "vprintf", "puts", "putchar", "perror", "stdout", "stderr"}
STREAMS = {"fprintf", "vfprintf", "fputs", "fputc", "putc", "fwrite", "isatty", "fr_fprintf"}
EXEMPT = {"fri_said_print": {"fprintf"}}


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout


def plain(name):
    """The C function behind a name: fprintf of __fprintf_chk."""
    return re.sub(r"^__(\w+)_chk$", r"\1", name)


def functions(root, compiler):
    """Each function of the session with the names that it calls."""
    files = sorted(glob.glob(os.path.join(root, "src/session/*.c")))
    with tempfile.TemporaryDirectory() as folder:
        unit, made = os.path.join(folder, "unit.c"), os.path.join(folder, "unit.o")
        with open(unit, "w", encoding="utf-8") as file:
            file.write("#define _GNU_SOURCE\n" + "".join(f'#include "{path}"\n' for path in files))
        output(*compiler, "-std=c17", "-w", "-O0", "-fno-builtin", "-ffunction-sections", "-I", f"{root}/src", "-I",
               f"{root}/include", "-c", unit, "-o", made)
        calls, name = {}, None
        for line in output("readelf", "-rW", made).splitlines():
            section = re.match(r"Relocation section '\.rela?(?:\.text\.(\w+))?", line)
            name = section.group(1) if section else name
            symbol = re.match(r"[0-9a-f]+ +[0-9a-f]+ +R_\S+ +[0-9a-f]+ +(\w+)", line)
            if name and symbol:
                calls.setdefault(name, set()).add(plain(symbol.group(1)))
    return calls


def main():
    root, archive, compiler = sys.argv[1], sys.argv[2], sys.argv[3:]
    faults = []
    wanted = {plain(line.split()[-1]) for line in output("nm", "-u", archive).splitlines() if " U " in line}
    faults += [f"{archive}: {name}: the library does not print" for name in sorted(wanted & NEVER)]
    if "snprintf" not in wanted:
        faults.append(f"{archive}: nm shows no snprintf, so this test sees nothing")
    calls = functions(root, compiler)
    for name, called in sorted(calls.items()):
        faults += [f"src/session: {name} calls {one}; say it with fri_say"
                   for one in sorted(called & (STREAMS | NEVER) - EXEMPT.get(name, set()))]
    faults += [f"{name}: listed, and writes nothing" for name in EXEMPT if not EXEMPT[name] & calls.get(name, set())]
    print("\n".join(faults) if faults else f"prints: {len(calls)} functions of the session")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
