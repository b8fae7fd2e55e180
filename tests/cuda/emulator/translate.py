#!/usr/bin/env python3
"""Makes a kernel file compile with a C++ compiler, for the emulator: launches become calls, names get a namespace of
their own.

Usage: translate.py IN OUT COMMAND...   writes OUT, then runs the command, which compiles it
       translate.py --into FOLDER IN...

f<T, N><<<grid, block, 0, stream>>>(a, b);  becomes  emulate_launch(grid, block, [=] { f<T, N>(a, b); });
"""
import os
import re
import sys

# What the emulator has in the backend's place; everything else of fri_cuda_ belongs to the kernels.
OWN = re.compile(r"\bfri_cuda_")


def closing(text, at):
    """The position behind the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    raise ValueError("unbalanced parenthesis")


def arguments(text):
    """The top-level parts of a list separated by commas."""
    parts, depth, first = [], 0, 0
    for i, c in enumerate(text):
        depth += {"(": 1, ")": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append(text[first:i].strip())
            first = i + 1
    return parts + [text[first:].strip()]


def kernel_before(text, at):
    """Where the kernel's name, with its template arguments, begins."""
    i = at
    while text[i - 1].isspace():
        i -= 1
    if text[i - 1] == ">":
        depth = 0
        while True:
            i -= 1
            depth += {">": 1, "<": -1}.get(text[i], 0)
            if depth == 0:
                break
    while text[i - 1].isalnum() or text[i - 1] == "_":
        i -= 1
    return i


def translate(text):
    while "<<<" in text:
        at = text.index("<<<")
        end = text.index(">>>", at)
        first = kernel_before(text, at)
        last = closing(text, text.index("(", end))
        grid, block = arguments(text[at + 3:end])[:2]
        call = text[first:at].rstrip() + text[end + 3:last]
        text = text[:first] + f"emulate_launch(({grid}), ({block}), [=] {{ {call}; }})" + text[last:]
    return OWN.sub("fri_emulated_", text)


def write(source, path):
    with open(source, encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(translate(text))


def main():
    if sys.argv[1] == "--into":
        for source in sys.argv[3:]:
            write(source, os.path.join(sys.argv[2], os.path.basename(source)))
        return
    write(sys.argv[1], sys.argv[2])
    os.execvp(sys.argv[3], sys.argv[3:])


if __name__ == "__main__":
    main()
