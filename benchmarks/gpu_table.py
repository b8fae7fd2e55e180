#!/usr/bin/env python3
"""Rows of benchmarks/gpu_check.sh, and the tables of docs/results.md from them.

Usage: gpu_table.py --rows OUT PART [NAME]      prints its input, and appends a row for each result in it
       gpu_table.py --train OUT PART REPORT NETWORK BATCH TYPE FLAGS
       gpu_table.py --results OUT               the tables, from OUT/rows.csv

A row says what was measured, on which card, at which commit ($FRUGAL_CARD, $FRUGAL_COMMIT). A row of a training says
whether everything was kept for backward, rebuilt, or fitted to the room or to a budget.
"""
import csv
import json
import os
import re
import sys

COLUMNS = ("part", "name", "batch", "type", "mode", "value", "unit", "MiB", "commit", "card")
NETWORKS = {"resnet": "ResNet-50", "mobilenet": "MobileNetV2", "densenet": "DenseNet-121", "unet": "U-Net",
            "vgg": "VGG-16"}
TYPES = {"f16": "AMP f16", "bf16": "AMP bf16", "f32": "f32 (TF32)"}
# Lines of the table of kernels, by the names that op_bandwidth gives.
KERNELS = [("elementwise, cast, Adam, SGD", r"cast|add|mul|scale|relu_forward|relu_backward|adam|sgd with momentum"),
           ("batch norm: apply, apply with a sum, backward, backward with relu",
            r"batchnorm2d_apply|batchnorm2d_apply, add|batchnorm2d_backward|batchnorm2d_backward, relu"),
           ("batch norm's statistics", r"batchnorm2d_stats"),
           ("max pooling, its gradient", r"maxpool2d_\w+"), ("average pooling, its gradient", r"avgpool2d_\w+"),
           ("global pooling, its gradient", r"global pool \w+"),
           ("depthwise 3 x 3: forward, dx, dw", r"depthwise conv2d \w+"),
           ("cross entropy, its gradient", r"cross_entropy_\w+"), ("copies of a concatenation", r"copy_rows.*")]


def append(folder, part, value, unit, name="", batch="", dtype="", mode="", mib=""):
    """A row is written at once, so that what follows may be cut off."""
    path = os.path.join(folder, "rows.csv")
    new = not os.path.exists(path)
    with open(path, "a", newline="", encoding="utf-8") as f:
        if new:
            csv.writer(f).writerow(COLUMNS)
        csv.writer(f).writerow([part, name, batch, dtype, mode, value, unit, mib,
                                os.environ.get("FRUGAL_COMMIT", ""), os.environ.get("FRUGAL_CARD", "")])


# ---- results in the output of programs -------------------------------------------------------------------------------

def rows(folder, part, name):
    skipped, seen = 0, set()
    for line in sys.stdin:
        print(line, end="", flush=True)
        line = re.sub(r"\033\[[0-9;]*m", "", line)
        skipped += line.startswith("[SKIP]") and "Test is disabled" not in line
        if found := re.search(r"Synthesis: Tested: (\d+) \| Passing: (\d+)", line):
            append(folder, part, found[2], f"tests passed of {found[1]}, {skipped} skipped", name)
        elif found := re.match(r"equal to the byte: (\d+) bytes", line):
            network, _, flag = name.partition(" ")
            append(folder, part, found[1], "bytes planned and measured", network, dtype="f16" if flag else "f32")
        elif found := re.match(r"\| ([^|]+) \| [\d.]+ \| [\d.]+ \| [\d.]+ \| (\d+) % \|$", line):
            append(folder, part, int(found[2]) / 100, "of a copy", found[1], dtype="f16")
        elif found := re.match(r"PyTorch \S+ (\w+) (\w+) (\w+) batch (\d+): (\d+) images/s, peak (\d+) MiB", line):
            append(folder, part, found[5], "images/s", found[2], found[4], found[3], found[1], found[6])
        elif found := re.match(r"\| ([^|]+) \| (\d+) \| ([^|]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", line):
            append(folder, part, found[5], f"ms, {found[4]} by the plain calls, {found[2]} times", found[1],
                   dtype="f16", mode=found[3])
        elif line.startswith('"') and len(cells := next(csv.reader([line]))) > 14 and cells[0].isdigit():
            kernel = cells[4]  # with its template's numbers, "(int)8", without its parameters
            kernel = kernel[:kernel.rfind(">(") + 1] or kernel.split("(")[0]
            counter = kernel, cells[-3]  # the first launch of each kernel
            if counter not in seen:
                append(folder, part, cells[-1].replace(",", ""), cells[-2], f"{name}: {counter[0]}", dtype="f16",
                       mode=counter[1])
            seen.add(counter)


def train(folder, part, path, name, batch, dtype, flags):
    with open(path, encoding="utf-8") as f:
        report = json.load(f)
    choice = report.get("room", {}).get("choice")
    mode = " ".join(filter(None, [f"default ({choice})" if choice else "", flags])) or "default"
    speed, peak = report["time"]["images_per_second"], report["memory"]["peak_allocated"] / 2**20
    append(folder, part, f"{speed:.0f}", "images/s", name, batch, dtype, mode, f"{peak:.0f}")
    print(f"frugal {name} {dtype} batch {batch} {mode}: {speed:.0f} images/s, peak {peak:.0f} MiB allocated")


# ---- tables ----------------------------------------------------------------------------------------------------------

def table(head, lines):
    if lines:
        print("|" + "|".join(head) + "|\n|" + "---|" * len(head))
        for line in lines:
            print("|" + "|".join(line) + "|")
        print()


def number(row, column="value"):
    return f"{float(row[column]):,.0f}" if row else "not measured"


def ratio(ours, theirs):
    return f"{float(ours['value']) / float(theirs['value']):.2f}" if theirs else ""


def trainings(of):
    """Ours with PyTorch's of the same network, batch and type beside them, eager and compiled."""
    lines, last = [], None
    ours = of("train") + of("memory") + of("budgets") + of("small")
    key = lambda r: (r["name"], r["batch"], r["type"])
    ours.sort(key=lambda r: list(NETWORKS).index(r["name"]))  # rows of a network keep their order
    for r in ours:
        eager, compiled = (next((t for t in of(part) if key(t) == key(r)), None) for part in ("torch", "compiled"))
        network = f"{NETWORKS[r['name']]}, {r['batch']}"
        lines.append(("" if network == last else network, TYPES[r["type"]], r["mode"], number(r), number(eager),
                      ratio(r, eager), number(compiled) if compiled else "", ratio(r, compiled), number(r, "MiB"),
                      number(eager, "MiB") if eager else ""))
        last = network
    table(("network, batch", "type", "memory", "frugal", "PyTorch", "ratio", "torch.compile", "ratio", "frugal, MiB",
           "PyTorch, MiB"), lines)


def kernels(of):
    shares = {r["name"]: float(r["value"]) for r in of("bandwidth")}
    lines = []
    for what, names in KERNELS:
        found = [share for name, share in shares.items() if re.fullmatch(names, name)]
        if len(found) > 4:
            lines.append((what, f"{min(found):.2f} to {max(found):.2f}"))
        elif found:
            lines.append((what, ", ".join(f"{share:.2f}" for share in found)))
    table(("kernels", "share"), lines)


def patterns(of):
    """Milliseconds of all convolutions of the network together."""
    lines = []
    import statistics  # takes longer than all else that a row needs
    for mode in dict.fromkeys(r["mode"] for r in of("patterns")):
        plain, fused, best, ratios = 0, 0, 0, []
        for r in (r for r in of("patterns") if r["mode"] == mode):
            words = r["unit"].split()
            ms, other, times = float(r["value"]), float(words[1]), int(words[-2])
            plain, fused, best = plain + times * other, fused + times * ms, best + times * min(ms, other)
            ratios.append(ms / other)
        lines.append((mode, str(len(ratios)), f"{plain:.2f}", f"{fused:.2f}", f"{best:.2f}",
                      f"{min(ratios):.2f}, {statistics.median(ratios):.2f}, {max(ratios):.2f}"))
    table(("fused pattern of cuDNN", "shapes", "plain calls, ms of a step", "fused", "the faster of each",
           "least, median, largest ratio"), lines)


def results(folder):
    with open(os.path.join(folder, "rows.csv"), encoding="utf-8", newline="") as f:
        found = list(csv.DictReader(f))
    of = lambda part: [r for r in found if r["part"] == part]
    for card, commit in dict.fromkeys((r["card"], r["commit"]) for r in found):
        print(f"One {card or 'unknown card'}, measured at {commit or 'an unknown commit'}.\n")
    trainings(of)
    kernels(of)
    table(("kernel: function", "counter", "value"), [(r["name"], r["mode"], f"{r['value']} {r['unit']}".strip())
                                                     for r in of("counters")])
    patterns(of)
    table(("suite", "on the device"),
          [(r["name"], f"{r['value']} {r['unit']}") for r in of("tests") + of("suites")])
    table(("planned = measured", "bytes"), [(f"{NETWORKS[r['name']]}, {r['type']}", number(r)) for r in of("plan")])


def main():
    words = sys.argv[1:]
    if words[:1] == ["--rows"] and len(words) in (3, 4):
        rows(words[1], words[2], (words + [""])[3])
    elif words[:1] == ["--train"] and len(words) == 8:
        train(*words[1:])
    elif words[:1] == ["--results"] and len(words) == 2:
        results(words[1])
    else:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
