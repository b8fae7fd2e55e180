#!/usr/bin/env python3
"""Compares the stable interface with the one recorded in tests/install/abi.txt (docs/api.md says what is stable).

Usage: abi.py LIBRARY [LIBRARY...]           fails if a recorded function, constant or struct is gone or different,
                                             or if a declared function is exported by none of the libraries
       abi.py --record LIBRARY [LIBRARY...]  writes abi.txt anew, for a release with a new minor version

A record line is a function with its parameters' types, a constant with its value, or a struct with its size and the
offset and size of each member. New lines are additions and allowed; they are recorded with the next release.
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RECORD = os.path.join(HERE, "abi.txt")
INCLUDE = os.path.join(HERE, "..", "..", "include")
HEADERS = ("frugal/frugal.h", "frugal/train.h", "frugal/session.h")
CC = os.environ.get("CC", "cc").split()


def run(command, text=None):
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    if done.returncode != 0:
        sys.exit(f"abi: {' '.join(command)}: {done.stderr.strip()[:2000]}")
    return done.stdout


def stable_text(source):
    """The preprocessed text of the stable headers: what comes from include/frugal."""
    keep, lines = False, []
    for line in run(CC + ["-E", "-I", INCLUDE, "-"], source).split("\n"):
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            keep = "/frugal/" in marker.group(1)
        elif keep and not line.startswith("#"):
            lines.append(line)
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", " ".join(lines))
    return re.sub(r"\s+", " ", text)


def declarations(text):
    """Top-level declarations; bodies of inline functions are left out."""
    depth, start, found = 0, 0, []
    for i, c in enumerate(text):
        depth += (c in "{(") - (c in "})")
        inline = c == "}" and re.search(r"\)\s*\{[^{]*$", text[start:text.find("{", start) + 1])
        if depth == 0 and (c == ";" or inline):
            found.append(text[start:i].strip())
            start = i + 1
    return found


def members(body):
    """Names of a struct's members."""
    names, depth, part = [], 0, ""
    for c in body:
        depth += (c in "{(") - (c in "})")
        if c == ";" and depth == 0:
            part = re.sub(r"\{.*\}", " ", part)
            pointer = re.search(r"\(\s*\*\s*(?:const\s+)?(\w+)\s*\)\s*\(", part)
            if pointer:
                names.append(pointer.group(1))
            else:
                for piece in re.sub(r"\[[^]]*\]", "", part).split(","):
                    words = re.findall(r"\w+", piece)
                    names += words[-1:]
            part = ""
        else:
            part += c
    return names


def functions(found):
    """Name: declaration, of all functions that are not inline."""
    result = {}
    for d in found:
        at = re.match(r"(?!typedef|static|struct \w+ \{|enum)[\w\s*]*?\b(fr_\w+)\s*\(", d)
        if at:
            result[at.group(1)] = re.sub(r"\s*\*\s*", " *", d[:at.end()] + unnamed(d[at.end():]))
    return result


def unnamed(parameters):
    """The parameters without their names, which programs do not depend on."""
    parts, depth, part = [], 0, ""
    for c in parameters:
        depth += (c == "(") - (c == ")")
        if depth < 0 or (c == "," and depth == 0):
            parts.append(part.strip())
            part = ""
        else:
            part += c
    named = re.compile(r"(?<=[\w*] )\w+(?=(?:\[[^]]*\])*$)|(?<=\*)\w+(?=(?:\[[^]]*\])*$)|(?<=\(\*)\w+(?=\))")
    return ", ".join(named.sub("", one).strip() for one in parts) + ")"


def layout(found, source):
    """Lines for constants and structs, by a program that prints them."""
    prints = []
    for d in found:
        body = re.search(r"\{(.*)\}", d)
        name = re.match(r"typedef (?:struct|union) \w* ?\{.*\} (\w+)$", d)
        tag = re.match(r"(struct \w+) \{", d)
        if re.match(r"(typedef )?enum", d) and body:
            for one in body.group(1).split(","):
                word = re.match(r"\s*(\w+)", one)
                if word and not word.group(1).endswith("_COUNT"):  # counts grow with new values
                    prints.append(f'printf("constant {word.group(1)} %lld\\n", (long long){word.group(1)});')
        elif body and (name or tag):
            kind = name.group(1) if name else tag.group(1)
            prints.append(f'printf("struct {kind} %zu\\n", sizeof({kind}));')
            for m in members(body.group(1)):
                prints.append(f'printf("struct {kind}.{m} %zu %zu\\n", offsetof({kind}, {m}), '
                              f'sizeof((({kind} *)0)->{m}));')
    program = source + "#include <stdio.h>\n#include <stddef.h>\nint main(void) {\n" + "\n".join(prints) + "\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        run(CC + ["-w", "-I", INCLUDE, "-x", "c", "-o", folder + "/layout", "-"], program)
        return run([folder + "/layout"]).splitlines()


def exported(libraries):
    names = set()
    for library in libraries:
        options = ["-D", "--defined-only"] if ".so" in os.path.basename(library) else ["--defined-only"]
        names |= set(re.findall(r" [TDBRV] (\w+)", run(["nm"] + options + [library])))
    return names


def main():
    arguments = sys.argv[1:]
    record = arguments[:1] == ["--record"]
    libraries = arguments[record:]
    if not libraries or libraries[0].startswith("-"):
        sys.exit(__doc__)
    source = "".join(f"#include <{h}>\n" for h in HEADERS)
    found = declarations(stable_text(source))
    declared = functions(found)
    lines = sorted(f"function {d}" for d in declared.values()) + layout(found, source)
    faults = [f"{name} is declared and not exported" for name in sorted(set(declared) - exported(libraries))]
    if record and not faults:
        with open(RECORD, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        print(f"abi: {len(lines)} lines recorded")
        return 0
    with open(RECORD, encoding="utf-8") as file:
        recorded = file.read().splitlines()
    now = set(lines)
    faults += [f"gone or different: {line}" for line in recorded if line not in now]
    print("\n".join(faults) if faults else f"abi: {len(recorded)} recorded lines hold, "
          f"{len(now - set(recorded))} are new")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
