#!/usr/bin/env python3
""".ci/check-blocks on made-up pages, and the marks of this tree's own.

Usage: test_blocks.py ROOT       ROOT: of the source tree
"""
import os
import subprocess
import sys
import tempfile

root = sys.argv[1]
faults = []


def check(*arguments):
    done = subprocess.run([sys.executable, root + "/.ci/check-blocks", *arguments], capture_output=True, text=True,
                          env=dict(os.environ, BUILD="build"), check=False)
    return done.returncode, done.stdout + done.stderr


def expect(pages, status, said, *arguments):
    """Pages by name; a page is a list of (info string, commands)."""
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(folder + "/docs/ops")
        os.makedirs(folder + "/build/examples")
        for name, blocks in {"README.md": [], **pages}.items():
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                file.write("".join(f"Text\n\n```{info}\n{commands}\n```\n" for info, commands in blocks))
        got, text = check(*arguments, folder)
        if got != status or said not in text:
            faults.append(f"{pages}: status {got}, not {status}, or no '{said}' in:\n{text}")
        left = set(os.listdir(folder)) - {"README.md", "docs", "build"}
        if left:
            faults.append(f"{pages}: {left} in the tree itself")


for mark, reason in [
        ("sh", "its class is missing"),
        ("sh fast", "its class is ['fast']"),
        ("sh long", "a long block says when"),
        ("sh long yesterday", "a long block says when"),
        ("sh long 2999-01-01", "2999-01-01 is not over"),
        ("sh run 2026-11-22", "'2026-11-22' behind its class"),
        ("bash run", "its language is 'bash'"),
        ("console", "its language is 'console'")]:
    for page in ["README.md", "docs/a.md", "docs/ops/a.md"]:
        expect({page: [(mark, "true"), ("sh run", "true")]}, 1, f"{page}:3: {reason}")

expect({"docs/a.md": [("sh run", "true"), ("sh meta", "true"), ("sh long 2026-11-22", "false"), ("sh gpu", "false"),
                      ("c", "false"), ("", "false")]}, 0, "1 run, 1 meta, 1 long, 1 gpu; 0 faults")
expect({"docs/a.md": [("sh run", "echo seen; false; true")]}, 1, "seen")
expect({"docs/a.md": [("sh run", "false | true")]}, 1, "exit status: 1")
expect({"docs/a.md": [("sh meta", "exit 3")]}, 1, "docs/a.md:3: exit status: 3")
expect({"docs/a.md": [("sh meta", "exit 3")]}, 0, "1 meta", "--list")
expect({"docs/a.md": [("sh run", "echo x >file"), ("sh run", "test -f file && test -d build/examples")]}, 0, "2 run")
expect({"docs/a.md": [("sh run", 'case $PATH in "$PWD"/build/examples:*) ;; *) exit 1 ;; esac')]}, 0, "1 run")
home = os.environ.get("HOME", "")
expect({"docs/a.md": [("sh run", f"test \"$HOME\" != '{home}' && touch \"$HOME/x\"")]}, 0, "1 run")
expect({"docs/a.md": [("c", "int x;")]}, 1, "0 run")

status, text = check("--list", root)
if status != 0:
    faults.append(text)
print("\n".join(faults) if faults else text, end="")
sys.exit(1 if faults else 0)
