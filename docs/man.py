#!/usr/bin/env python3
"""Writes the manual pages: one for each program, from its --help all, and one for each header, from its comments, to
which a page of each function leads. Whatever a comment sets in columns or indents keeps its lines.

Usage: man.py VERSION PROGRAM... HEADER...     when meson installs, into $MESON_INSTALL_DESTDIR_PREFIX/share/man
       man.py --index                          prints docs/reference.md; .ci/check-headers compares
"""
import glob
import os
import re
import subprocess
import sys


def roff(text):
    """A line that prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + text if text[:1] in (".", "'") else text


def as_it_is(lines):
    return [".nf"] + [roff(line) for line in lines] + [".fi"]


def head(name, section, what, version):
    return [f'.TH {name} {section} "" "frugal {version}"', ".SH NAME", f"{roff(name)} \\- {roff(what)}", ".ad l", ".nh"]


def program_page(program, version):
    """--help all is laid out as a page already: headings at the margin, NAME first, the rest indented by 7."""
    said = subprocess.run([program, "--help", "all"], check=True, stdout=subprocess.PIPE, text=True).stdout
    parts = re.split(r"^([A-Z][A-Z ]*)\n", said, flags=re.M)[1:]
    name, what = parts[1].strip().split(" - ", 1)
    page = head(name, 1, what, version)
    for title, body in zip(parts[2::2], parts[3::2]):
        page.append(f".SH {title}")
        for part in re.split(r"^(?= {3}\w)", body.rstrip(), flags=re.M):  # a heading within the section
            lines = [re.sub("^ {7}", "", line) for line in part.rstrip().split("\n")]
            if lines[0].startswith("   "):
                page.append(f".SS {lines.pop(0).strip()}")
            page += as_it_is(lines)
    return name, page


def prose(lines):
    page, kept = [], []
    for line in lines + [""]:
        if line and (line.startswith(" ") or "   " in line):
            kept.append(line)
            continue
        page += as_it_is(kept) if kept else []
        kept = []
        page.append(roff(line) if line else ".PP")
    return page[:-1]


def uncomment(text):
    return re.sub(r"(?<=\n) ?\* ?|\s*\*/$", "", text.strip()[2:].lstrip()).split("\n")


def declarations(text):
    """What a program sees of them; prototypes flow with the width of the page, their remarks follow them."""
    text = re.sub(r"^FR_OPTS_DEFAULT\((\w+), .*\)", r"\1 \1_default(void);", text, flags=re.M)
    text = re.sub(r" FR_DEFAULT\((.*?)\)(?=[,;])", r" = \1", re.sub(r"FR_API | __attribute__\(.*\)", "", text))
    if not re.match(r"\w[^{}=]*\([^{}]*\)[^{}]*;", text) or "#" in text:
        return [".PP", ".ft B"] + as_it_is(text.split("\n")) + [".ft R"]
    page = []
    for prototype, remark in re.findall(r"([^;]+;)[ \n]*(/\*.*?\*/)?", text, flags=re.S):
        page += [".HP 4", ".B " + roff(re.sub(r"\s+", " ", prototype.strip()))]
        page += explained(re.sub(r"\n +\*", "\n *", remark)) if remark else []
    return page


def explained(comment):
    return [".RS 4"] + prose(uncomment(comment)) + [".RE"]


def chunks(text):
    """What stands between blank lines outside of braces, without preprocessor's conditions and includes."""
    text = re.sub(r"^#if(?:def|ndef)? (?!.*_HP*\n)(?:.*\n)*?#endif\n", "", text, flags=re.M)
    text = re.sub(r"^#(?:include|ifndef|endif|undef|define FRUGAL_).*\n?", "", text, flags=re.M)
    found, depth = [""], 0
    for line in text.split("\n"):
        if line or depth > 0:
            found[-1] += line + "\n"
        else:
            found.append("")
        code = re.sub(r"/\*.*?\*/", "", line)
        depth += code.count("{") - code.count("}") if not re.match(r" \*|/\*", line) else 0
    return [chunk.rstrip("\n") for chunk in found if chunk.strip()]


def read(path):
    """(file's name, page's name, title, lines of its opening comment, other chunks, text)."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    first, *rest = chunks(text)
    inside = path.rsplit("/include/frugal/", 1)  # the header of an add-on lies in its folder
    file_name = inside[1] if len(inside) > 1 else os.path.basename(path)
    title, *opening = uncomment(first)
    name = {"frugal.h": "frugal", "frugal.hpp": "frugal-hpp"}.get(
        file_name, "frugal-" + file_name[:-2].replace("/", "-"))
    return file_name, name, title, opening, rest, text


HEADING = r"/\* -{3,} (.*?) -{3,}(?: \*/)?\n?"
PAIR = r"((?:^/\*(?:.|\n)*?\*/\n?)?)((?:^(?!/\*).*\n)*)"  # a comment, and the code below
FUNCTION = r"(?:FR_API|static inline)\b[^;{]*?\b(fr_\w+)\("


def sentence(comment):
    """The first one, without the arguments' table that may follow."""
    text = re.split(r"\n\n|\n {2,}|:\n", "\n".join(uncomment(comment)))[0].replace("\n", " ").strip()
    text = re.split(r"(?<!\b[A-Z])(?<!e\.g)(?<!\bal)(?<!\.)\.(?= |$)", text)[0].rstrip(":; ")
    return re.sub(r"([*|<])", r"\\\1", text)


def summary(path):
    """The first sentence after the name of the file."""
    _, _, title, opening, _, _ = read(path)
    text = sentence("/* " + "\n".join([title.split(" - ", 1)[1]] + opening))
    return text[0].upper() + text[1:] + "."


def index(path):
    """(functions, first sentence) of each comment of a header, or of each remark beside a function."""
    above = ""
    for chunk in read(path)[4]:
        heading = re.match(HEADING, chunk)
        if heading:
            above = heading.group(1)
        for comment, code in re.findall(PAIR, chunk + "\n", flags=re.M):
            plain = comment and not re.match(HEADING, comment)
            group, said = [], sentence(comment) if plain else above
            prototype = r"^((?:FR_API|static inline)[^;{]*[;{])[ \n]*(/\*(?:.|\n)*?\*/)?"
            for line, remark in re.findall(prototype, code, re.M):
                name = re.match(FUNCTION, line)
                if not name:
                    continue
                if remark and group:
                    yield group, said
                    group = []
                group.append(name.group(1))
                if remark:
                    yield group, sentence(re.sub(r"\n +\*", "\n *", remark))
                    group = []
            if group:
                yield group, said


def print_index():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    print("# Functions by header\n\n`docs/man.py --index` writes this page from the headers, which have shapes, "
          "options and errors:\n`man fr_conv2d`, `man frugal-ops`.")
    for path in sorted(glob.glob(f"{root}/include/frugal/*.h") + glob.glob(f"{root}/src/addons/*/*.h"),
                       key=os.path.basename):
        name = os.path.basename(path)
        groups = list(index(path)) if "/include/" in path or path.endswith(f"/{name[:-2]}/{name}") else []
        if groups:
            print(f"\n## {name}\n\n{summary(path)}\n")
            for functions, said in groups:
                print("- " + ", ".join(f"`{f}`" for f in functions) + (f": {said}" if said else ""))


def contents(paths):
    """The headers with their functions, for the page of frugal.h."""
    page = [".SH HEADERS AND FUNCTIONS"]
    for path in sorted(paths, key=os.path.basename):
        names = [name for functions, _ in index(path) for name in functions]
        if names:
            page += [f".SS {roff(read(path)[1])}(3)", roff(summary(path).replace("\\", "")), ".PP",
                     roff(", ".join(names))]
    return page


def header_page(path, version):
    file_name, name, title, opening, rest, text = read(path)
    page = head(name, 3, title.split(" - ", 1)[1].rstrip("."), version)
    library = "frugal-cli" if file_name == "train.h" else "frugal"
    compiler = "c++ program.cpp" if file_name.endswith("hpp") else "cc program.c"
    page += [".SH SYNOPSIS", f"#include <frugal/{file_name}>", ".PP",
             roff(f"{compiler} $(pkg-config --cflags --libs {library})"), ".SH DESCRIPTION"] + prose(opening)
    for chunk in rest:
        heading = re.match(HEADING, chunk)
        if heading:
            page.append(f".SH {roff(heading.group(1)).upper()}")
            chunk = "/*\n" + chunk[heading.end():] if not heading.group(0).rstrip().endswith("*/") else \
                chunk[heading.end():]
        for comment, code in re.findall(PAIR, chunk + "\n", flags=re.M):
            page += declarations(code.rstrip("\n")) if code.strip() else []
            if comment:
                page += explained(comment) if code.strip() else [".PP"] + prose(uncomment(comment))
    return name, page, re.findall(r"^(?:FR_API|static inline)\b[^;{]*?\b(fr_\w+)\(", text, flags=re.M) + [
        kind + "_default" for kind in re.findall(r"^FR_OPTS_DEFAULT\((\w+),", text, flags=re.M)]


def main():
    if sys.argv[1:] == ["--index"]:
        return print_index()
    version, *paths = sys.argv[1:]
    folder = os.path.join(os.environ["MESON_INSTALL_DESTDIR_PREFIX"], "share", "man")
    pages = {}
    for path in paths:
        if path.endswith((".h", ".hpp")):
            name, page, functions = header_page(path, version)
            pages.update({f"man3/{f}.3": [f".so man3/{name}.3"] for f in functions})
            if name == "frugal":
                page += contents(p for p in paths if p.endswith(".h"))
            pages[f"man3/{name}.3"] = page
        else:
            name, page = program_page(path, version)
            pages[f"man1/{name}.1"] = page
    for name, page in pages.items():
        os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
