#!/usr/bin/env python3
"""compare.py - frugal beside PyTorch: step time and peak memory, measured in one run.

    python3 benchmarks/compare.py [--build build] [--full | --pictures] [--strangers]
                                  [--onnx NAME[:BATCHxPX]...] [--rows TEXT] [--rounds N] [--out DIR]

Needs PyTorch and torchvision in the Python that runs it. Each row is a model, batch, image size, dtype and set of
options. Both sides get a process of their own with the same number of threads; one warms up, then the other, then they
take steps in turn (A B A B), so that whatever else the machine does meets both. Times are medians over all steps, with
the quartiles; a ratio is the median of the ratios of neighbouring turns.

Options: plain is PyTorch eager without in-place activations, and frugal with every switch off; inplace adds in-place
activations on both sides (torchvision's default); best is torchvision as it comes, and frugal as it comes; exact is
best with --exact-convolutions on frugal's side, kept with --no-rebuild; checkpoint-N is N
segments of the same units on both sides; all is sqrt(units) segments, and frugal as it comes (PyTorch
refuses activations that are in place across segments). PyTorch runs channels_last, SGD foreach, gradients set to
none; torch.compile where --compile is given.

Peak bytes of PyTorch are the largest total of its CPU allocator, from the profiler's memory events of a process that
does nothing else; frugal's are its allocator's, requested. Resident bytes are each process's peak above its idle level
(libraries loaded, nothing built). Saved bytes are what a forward pass leaves for backward: what saved_tensors_hooks
see, each storage once, without parameters and images; frugal's activations.

--pictures measures six networks as they come, and each once more in a process of its own inside a budget: parameters,
optimizer state, and a third of the step memory that PyTorch needs beside them, or the smallest budget where that is
more. It draws compare.svg, ratios of all six, and resident.svg, the whole processes of one (VmHWM).

--onnx measures any networks of torchvision: frugal reads the ONNX file that PyTorch exports, without dropout,
stochastic depth and auxiliary heads on both sides; --strangers are twelve that nobody tuned for. PyTorch is at its best
with LD_PRELOAD=libtcmalloc_minimal.so.4, which both sides then take.
"""
import argparse
import csv
import datetime
import math
import os
import json
import platform
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1024 * 1024
CONFIGS = ("plain", "inplace", "best", "kept", "checkpoint-2", "checkpoint-4", "checkpoint-sqrt", "all",
           "exact")
NETS = (("vgg16", 64, 32, 10), ("vgg16", 16, 224, 1000), ("resnet18", 64, 32, 10), ("resnet50", 64, 32, 10),
        ("resnet50", 8, 224, 1000), ("densenet121", 32, 32, 10), ("unet4", 16, 64, 11),
        ("mobilenet_v2", 32, 64, 1000))
LARGE = (("mobilenet_v2", 32, 224, 1000), ("resnet18", 16, 224, 1000), ("densenet121", 8, 224, 1000),
         ("unet4", 4, 256, 11))
CORE = [(net, "f32", c) for net in NETS for c in ("plain", "best")] + \
       [(net, "bf16", "best") for net in NETS] + \
       [(NETS[0], "f32", c) for c in ("inplace", "checkpoint-4", "all")] + \
       [(net, "f32", "plain") for net in LARGE] + \
       [(NETS[7], "f32", "kept"), (LARGE[0], "f32", "kept"), (LARGE[0], "f32", "best")]
SIX = [(net, "f32", "best") for net in (NETS[0], NETS[1], LARGE[1], NETS[4], LARGE[2], NETS[6])]
CORE += [(net, "f32", "exact") for net, _, _ in SIX]
STRANGERS = ("resnext50_32x4d:4x96", "convnext_tiny:4x96", "squeezenet1_1:16x96", "shufflenet_v2_x1_0:32x96",
             "regnet_y_400mf:16x96", "alexnet:32x224", "wide_resnet50_2:4x96", "googlenet:8x96",
             "mobilenet_v3_large:16x96", "densenet169:4x96", "efficientnet_b0:16x96", "mnasnet1_0:16x96")
RESIDENT = NETS[4]
TITLES = {"vgg16": "VGG-16", "resnet18": "ResNet-18", "resnet50": "ResNet-50", "densenet121": "DenseNet-121",
          "unet4": "U-Net"}
FULL = [(net, dtype, c) for net in NETS + LARGE for dtype in ("f32", "bf16", "f16") for c in CONFIGS]


# ---- PyTorch's side: the same commands as compare_worker.c ----------------------------------------------------------

def torch_model(name, size, classes, inplace):
    """The network, and the units that a checkpoint may hold, as nn.Sequential of them."""
    import torch
    import torchvision
    from torch import nn
    small = size < 64
    if name.startswith("vgg"):
        m = torchvision.models.get_model(name + "_bn", num_classes=classes)
        if small:
            m.avgpool, m.classifier = nn.AdaptiveAvgPool2d(1), nn.Linear(512, classes)
        units = list(m.features) + [nn.Sequential(m.avgpool, nn.Flatten(1), m.classifier)]
    elif name.startswith("resnet"):
        m = torchvision.models.get_model(name, num_classes=classes)
        units = [nn.Sequential(m.conv1, m.bn1, m.relu, m.maxpool)]
        units += [b for layer in (m.layer1, m.layer2, m.layer3, m.layer4) for b in layer]
        units += [nn.Sequential(m.avgpool, nn.Flatten(1), m.fc)]
    elif name.startswith("densenet"):
        m = torchvision.models.get_model(name, num_classes=classes)
        units = list(m.features) + [nn.Sequential(nn.ReLU(True), nn.AdaptiveAvgPool2d(1), nn.Flatten(1), m.classifier)]
    elif name == "mobilenet_v2":
        m = torchvision.models.mobilenet_v2(num_classes=classes)
        units = list(m.features) + [nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), m.classifier)]
    else:
        units = [torch_unet(int(name[4:]), classes)]
    chain = nn.Sequential(*units)
    for module in chain.modules():
        if isinstance(module, (nn.ReLU, nn.ReLU6)):
            module.inplace = inplace
    return chain.to(memory_format=torch.channels_last)


def onnx_row(text):
    """NAME[:BATCHxPX] as a row."""
    name, _, shape = text.partition(":")
    batch, size = (shape or "16x96").split("x")
    return ("onnx:" + name, int(batch), int(size), 1000), "f32", "best"


def torch_stranger(name):
    """torchvision's network as it comes, but for what is random or trains beside the result."""
    import torchvision
    from torch import nn
    name = name.removeprefix("onnx:")
    m = torchvision.models.get_model(name, **({"aux_logits": False} if name == "googlenet" else {}))
    for module in m.modules():
        if isinstance(module, (nn.Dropout, torchvision.ops.StochasticDepth)):
            module.eval()
    return m


def export(name, batch, size, path):
    import torch
    torch.onnx.export(torch_stranger(name), torch.rand(batch, 3, size, size), path, dynamo=False,
                      training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)


def torch_unet(depth, classes):
    import torch
    from torch import nn

    def double(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True),
                             nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [32 << i for i in range(depth + 1)]
            self.down = nn.ModuleList(double(a, b) for a, b in zip([3] + widths, widths[:-1]))
            self.bottom = double(widths[-2], widths[-1])
            self.up = nn.ModuleList(double(b + a, a) for a, b in zip(widths[-2::-1], widths[:0:-1]))
            self.head = nn.Conv2d(32, classes, 1)

        def forward(self, x):
            skips = []
            for down in self.down:
                x = down(x)
                skips.append(x)
                x = nn.functional.max_pool2d(x, 2)
            x = self.bottom(x)
            for up in self.up:
                x = nn.functional.interpolate(x, scale_factor=2, mode="nearest")
                x = torch.cat([skips.pop(), x], 1)
                x = up(x)
            return self.head(x)

    return UNet()


def resident(field, process="self"):
    try:
        with open(f"/proc/{process}/status") as f:
            for line in f:
                if line.startswith(field):
                    return int(line.split()[1]) * 1024
    except OSError:  # it has ended
        pass
    return 0


def segments_of(config, units):
    if config == "all" or config == "checkpoint-sqrt":
        return max(1, round(math.sqrt(units)))
    return int(config.split("-")[1]) if config.startswith("checkpoint") else 0


def torch_worker(name, batch, size, classes, dtype, config, threads, compiled):
    import torch
    import torchvision  # noqa: F401 (part of the idle level)
    from torch import nn
    from torch.utils.checkpoint import checkpoint_sequential
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    idle = resident("VmRSS")
    state = {}

    def build():
        model = torch_model(name, size, classes, config in ("inplace", "best", "exact", "kept")) \
            if not name.startswith("onnx:") else \
            nn.Sequential(torch_stranger(name)).to(memory_format=torch.channels_last)
        state["units"] = len(model)
        state["segments"] = min(segments_of(config, len(model)), len(model))
        state["model"] = torch.compile(model) if compiled else model
        state["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
        state["scaler"] = torch.amp.GradScaler("cpu", enabled=dtype == "f16")
        state["x"] = torch.rand(batch, 3, size, size).contiguous(memory_format=torch.channels_last)
        n = (batch, size, size) if name.startswith("unet") else (batch,)
        state["t"] = (torch.arange(math.prod(n)) % classes).reshape(n)

    def forward():
        m = state["model"]
        low = {"bf16": torch.bfloat16, "f16": torch.float16}.get(dtype)
        with torch.autocast("cpu", dtype=low, enabled=low is not None):
            y = checkpoint_sequential(m, state["segments"], state["x"], use_reentrant=False) if state["segments"] \
                else m(state["x"])
            return nn.functional.cross_entropy(y, state["t"])

    def step():
        o, g = state["optimizer"], state["scaler"]
        loss = forward()
        g.scale(loss).backward()
        g.step(o)
        g.update()
        o.zero_grad(set_to_none=True)
        return loss.item()

    def saved():
        """Bytes that the graph of one forward pass holds for backward, without parameters and images."""
        known = {t.untyped_storage().data_ptr() for t in (*state["model"].parameters(), state["x"])}
        held = {}

        def pack(t):
            s = t.untyped_storage()
            held[s.data_ptr()] = (s, t)  # alive, so that no address is used twice
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            loss = forward()
        loss.detach_()
        return sum(s.nbytes() for at, (s, _) in held.items() if at not in known)

    build()
    parameters = sum(p.numel() for p in state["model"].parameters())
    print("ready", parameters, state["segments"], flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "steps":
            times = []
            for _ in range(int(words[1])):
                began = time.perf_counter()
                step()
                times.append(1e3 * (time.perf_counter() - began))
            print(*(f"{t:.4f}" for t in times), flush=True)
        elif words[0] == "memory":
            print(idle, resident("VmHWM"), flush=True)
        elif words[0] == "profile":
            state.clear()
            from torch.profiler import ProfilerActivity, profile, record_function
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
                build()
                with record_function("built"):
                    pass
                step()
                step()
            total = peak = 0
            for e in sorted(prof.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
                if e.name() == "[memory]":
                    total += e.nbytes()
                    peak = max(peak, total)
                elif e.name() == "built":
                    peak = total
            print(peak, saved(), flush=True)


# ---- one row --------------------------------------------------------------------------------------------------------

class Timeout(Exception):
    pass


class Side:
    """A worker process that answers each line by a line."""

    def __init__(self, command, env, limit):
        self.limit, self.left = limit, ""
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, bufsize=0)
        self.ready = self.read(limit).split()

    def read(self, limit):
        end = time.monotonic() + limit
        line = b""
        while not line.endswith(b"\n"):
            wait = end - time.monotonic()
            if wait <= 0 or not select.select([self.process.stdout], [], [], wait)[0]:
                raise Timeout
            part = os.read(self.process.stdout.fileno(), 65536)
            if not part:
                raise RuntimeError(f"worker ended with status {self.process.wait()}")
            line += part
        return line.decode()

    def ask(self, text):
        self.process.stdin.write((text + "\n").encode())
        return [float(w) for w in self.read(self.limit).split()]

    def close(self):
        self.process.kill()
        self.process.wait()


def environment(threads):
    env = dict(os.environ)
    env.update(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), OMP_DYNAMIC="false")
    env.pop("OMP_WAIT_POLICY", None)
    return env


def commands(args, net, dtype, config):
    name, batch, size, classes = net
    ours = {"best": "default", "all": "default", "checkpoint-2": "plain", "checkpoint-4": "plain",
            "checkpoint-sqrt": "plain"}
    torch_side = [sys.executable, os.path.abspath(__file__), "--torch-worker", name, str(batch), str(size),
                  str(classes), dtype, config, str(args.threads), str(int(args.compile))]
    our_side = [os.path.join(args.build, "benchmarks", "compare_worker"), name, str(batch), str(size), str(classes),
                dtype, ours.get(config, config)]
    return our_side, torch_side


def measure(args, net, dtype, config):
    if not net[0].startswith("onnx:"):
        return measured(args, net, *commands(args, net, dtype, config))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "network.onnx")
        exporter = [sys.executable, "-W", "ignore", os.path.abspath(__file__), "--export"]
        subprocess.run([*exporter, *map(str, net[:3]), path], check=True, stdout=subprocess.DEVNULL)
        our_command, torch_command = commands(args, net, dtype, config)
        our_command[1] = path
        return measured(args, net, our_command, torch_command)


def measured(args, net, our_command, torch_command):
    env = environment(args.threads)
    sides = []
    try:
        theirs = Side(torch_command, env, args.timeout)
        sides.append(theirs)
        ours = Side(our_command + [theirs.ready[2]], env, args.timeout)
        sides.append(ours)
        if ours.ready[1] != theirs.ready[1]:
            raise RuntimeError(f"{ours.ready[1]} and {theirs.ready[1]} parameters: not the same network")
        ours.ask("steps 2")
        warm = theirs.ask("steps 2")[-1]
        turn = max(1, min(8, int(2000 / max(warm, 1))))
        a, b, ratios = [], [], []
        for _ in range(args.rounds):
            x, y = ours.ask(f"steps {turn}"), theirs.ask(f"steps {turn}")
            a += x
            b += y
            ratios.append(statistics.median(x) / statistics.median(y))
        memory, their_memory = ours.ask("memory"), theirs.ask("memory")
        ours.close()
        theirs.close()
        profiled = their_saved = 0
        if not args.compile:
            side = Side(torch_command, env, args.timeout)
            sides.append(side)
            profiled, their_saved = side.ask("profile")
        result = {"ms": statistics.median(a), "torch ms": statistics.median(b), "time": statistics.median(ratios),
                  "spread": spread(a), "torch spread": spread(b), "images/s": 1000 * net[1] / statistics.median(a),
                  "peak": memory[0], "reserved": memory[2], "torch peak": profiled,
                  "saved": memory[5], "torch saved": their_saved,
                  "memory": memory[0] / profiled if profiled else math.nan,
                  "resident": memory[4] - memory[3], "torch resident": their_memory[1] - their_memory[0],
                  "process": memory[4], "torch process": their_memory[1]}
        if args.pictures and not net[0].startswith("onnx:"):
            result.update(in_budget(args, net, int(ours.ready[1]), profiled, result["ms"]))
        return result
    finally:
        for side in sides:
            side.close()


def in_budget(args, net, parameters, torch_peak, milliseconds):
    """The trainer of that network inside a third of PyTorch's step memory: its median step, peak and process."""
    name, batch, size, classes = net
    state = 8 * parameters  # parameters and momentum in f32
    budget = int(state + (torch_peak - state) / 3)
    family, depth = re.fullmatch(r"([a-z]+)(\d+)", name).groups()
    steps = max(4, min(30, int(6000 / milliseconds)))
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        for _ in range(2):
            command = [os.path.join(args.build, "examples", "train_" + family), "--depth", depth, "--quiet",
                       "--dataset", "synthetic", "--classes", str(10 if family == "unet" else classes),
                       "--image-size", str(size), "--batch-size", str(batch), "--steps", str(steps),
                       "--eval-every", "0", "--workers", "0", "--memory-budget", str(budget), "--report", report]
            process = subprocess.Popen(command, env=environment(args.threads), stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE)
            most = 0
            while process.poll() is None:  # wait4's maximum would count this process, which it was forked from
                most = max(most, resident("VmHWM", process.pid))
                time.sleep(0.02)
            said = process.stderr.read().decode()
            smallest = re.search(r"the smallest budget for batches of \d+ is (\d+) bytes", said)
            if smallest is None:
                break
            budget = int(smallest.group(1))
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {said}")
        with open(report, encoding="utf-8") as f:
            r = json.load(f)
    if r["parameters"] != parameters:
        raise RuntimeError(f"{r['parameters']} and {parameters} parameters: not the same network")
    return {"budget ms": r["time"]["step_ms_median"], "budget peak": r["memory"]["peak_reserved"],
            "budget process": most}


def spread(values):
    """Half the distance of the quartiles over the median."""
    if len(values) < 4:
        return (max(values) - min(values)) / 2 / statistics.median(values)
    q = statistics.quantiles(values, n=4)
    return (q[2] - q[0]) / 2 / q[1]


# ---- whole processes ------------------------------------------------------------------------------------------------

def first_step(args):
    """Seconds from exec to the end of the first training step on the digits, and PyTorch's for the same network."""
    env = environment(args.threads)
    ours = [os.path.join(args.build, "examples", "train_vgg"), "--steps", "1", "--eval-every", "0", "--quiet"]
    began = time.monotonic()
    subprocess.run(ours, env=env, check=True, stdout=subprocess.DEVNULL)
    mine = time.monotonic() - began
    _, command = commands(args, ("vgg16", 64, 32, 10), "f32", "best")
    began = time.monotonic()
    side = Side(command, env, args.timeout)
    side.ask("steps 1")
    theirs = time.monotonic() - began
    side.close()
    return mine, theirs


def size_of(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(path) for f in files
               if not os.path.islink(os.path.join(d, f)))


# ---- tables ---------------------------------------------------------------------------------------------------------

HEADER = ("model", "batch", "px", "dtype", "options", "ms", "PyTorch ms", "time ratio", "spread", "images/s",
          "peak MiB", "PyTorch MiB", "peak ratio", "resident MiB", "PyTorch resident", "process MiB",
          "PyTorch process", "saved MiB", "PyTorch saved", "budget ms", "budget peak MiB", "budget process MiB")


def cells(net, dtype, config, r):
    head = [net[0], net[1], net[2], dtype, config]
    if isinstance(r, str):
        return head + [r] + [""] * (len(HEADER) - 6)
    return head + [f"{r['ms']:.1f}", f"{r['torch ms']:.1f}", f"{r['time']:.2f}",
                   f"{100 * r['spread']:.0f}/{100 * r['torch spread']:.0f} %", f"{r['images/s']:.1f}",
                   f"{r['peak'] / MIB:.1f}", f"{r['torch peak'] / MIB:.1f}", f"{r['memory']:.3f}",
                   f"{r['resident'] / MIB:.0f}", f"{r['torch resident'] / MIB:.0f}", f"{r['process'] / MIB:.0f}",
                   f"{r['torch process'] / MIB:.0f}", f"{r['saved'] / MIB:.1f}", f"{r['torch saved'] / MIB:.1f}"] + \
        ([f"{r['budget ms']:.1f}", f"{r['budget peak'] / MIB:.1f}", f"{r['budget process'] / MIB:.0f}"]
         if "budget ms" in r else ["-"] * 3)


COLORS = {"PyTorch": "#9c9c9c", "frugal": "#4477aa", "frugal in a budget": "#228833", "step time": "#ccbb44",
          "peak memory": "#4477aa", "peak in a budget": "#228833"}


def draw(path, title, groups, most, unit=None):
    """Horizontal bars. groups: (label, [(series, value, what stands beside the bar)])."""
    left, width, bar, right = 190, 420, 17, 220
    over = 'paint-order="stroke" stroke="white" stroke-width="3"'  # readable where it crosses a line
    lines, y = [], 34
    for label, values in groups:
        lines.append(f'<text x="{left - 10}" y="{y + bar * len(values) / 2 + 4:.0f}" text-anchor="end">{label}</text>')
        for series, value, text in values:
            w = width * value / most
            lines.append(f'<rect x="{left}" y="{y}" width="{w:.1f}" height="{bar - 2}" fill="{COLORS[series]}"/>'
                         f'<text x="{left + w + 6:.1f}" y="{y + 12}" {over}>{text}</text>')
            y += bar
        y += 10
    if unit:  # a line at 1: as much as PyTorch
        x = left + width * unit / most
        lines.insert(0, f'<line x1="{x:.1f}" y1="28" x2="{x:.1f}" y2="{y - 6}" stroke="black" stroke-dasharray="4,3"/>'
                     f'<text x="{x:.1f}" y="{y + 8}" text-anchor="middle">PyTorch = 1</text>')
        y += 16
    names = dict.fromkeys(series for _, values in groups for series, _, _ in values if len(values) > 1)
    for k, series in enumerate(names):
        lines.append(f'<rect x="{left + 170 * k}" y="{y + 6}" width="11" height="11" fill="{COLORS[series]}"/>'
                     f'<text x="{left + 170 * k + 16}" y="{y + 16}">{series}</text>')
    y += 24 if names else 0
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + right}" height="{y + 6}" '
                'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>\n'
                f'<text x="10" y="20" font-weight="bold">{title}</text>\n' + "\n".join(lines) + "\n</svg>\n")


def pictures(folder, rows):
    measured = [(n, r) for n, _, _, r in rows if not isinstance(r, str) and "budget ms" in r]
    groups, most = [], 1
    for n, r in measured:
        in_third = r["budget ms"] / r["torch ms"], r["budget peak"] / r["torch peak"]
        most = max(most, r["time"], r["memory"], in_third[1])
        groups.append((f"{TITLES[n[0]]}, {n[1]} x {n[2]} px", [
            ("step time", r["time"], f"{r['time']:.2f}"), ("peak memory", r["memory"], f"{r['memory']:.2f}"),
            ("peak in a budget", in_third[1], f"{in_third[1]:.2f}, at {in_third[0]:.2f} of the time")]))
    if groups:
        draw(os.path.join(folder, "compare.svg"), "A training step on the CPU, f32: frugal over PyTorch", groups, most,
             unit=1)
    for n, r in measured:
        if n == RESIDENT:
            bars = [(series, r[key] / MIB, f"{r[key] / MIB:,.0f} MiB, {r[ms]:,.0f} ms a step") for series, key, ms in
                    (("PyTorch", "torch process", "torch ms"), ("frugal", "process", "ms"),
                     ("frugal in a budget", "budget process", "budget ms"))]
            draw(os.path.join(folder, "resident.svg"),
                 f"Memory of a process that trains {TITLES[n[0]]}: {n[1]} images of {n[2]} pixels, f32, CPU",
                 [(series.replace("a budget", f"a budget of {r['budget peak'] / MIB:.0f} MiB"), [(series, value, text)])
                  for series, value, text in bars], max(b[1] for b in bars))


def processor():
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build", help="the build folder")
    p.add_argument("--full", action="store_true", help="all rows instead of the core")
    p.add_argument("--pictures", action="store_true", help="six networks, each in a budget as well, and the pictures")
    p.add_argument("--onnx", nargs="+", default=[], metavar="NAME[:BATCHxPX]", help="networks of torchvision, 16x96")
    p.add_argument("--strangers", action="store_true", help="twelve networks that nobody tuned for")
    p.add_argument("--rows", default="", help="only rows whose 'model batch px dtype options' contains this text")
    p.add_argument("--rounds", type=int, default=5, help="turns of each side")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--timeout", type=float, default=240, help="seconds that one answer may take")
    p.add_argument("--compile", action="store_true", help="PyTorch through torch.compile")
    p.add_argument("--out", default="", help="folder for compare.csv, compare.md and pictures")
    args = p.parse_args()
    try:
        import torch
        import torchvision
    except ImportError as e:
        print(f"compare.py: skipped: {e}")
        return 0
    asked = [onnx_row(text) for text in [*args.onnx, *(STRANGERS if args.strangers else [])]]
    known = FULL if args.full else SIX if args.pictures else [] if asked else CORE
    print(f"{datetime.date.today()}, {processor()}, {args.threads} threads, torch {torch.__version__}, "
          f"torchvision {torchvision.__version__}, LD_PRELOAD={os.environ.get('LD_PRELOAD', '')}, "
          f"{os.path.realpath(args.build)}\n")
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER), flush=True)
    rows = []
    for net, dtype, config in known + asked:
        if args.rows not in f"{net[0]} {net[1]} {net[2]} {dtype} {config}":
            continue
        if net[0].startswith("unet") and config.startswith(("checkpoint", "all")):
            continue  # one unit: its skips tie it together
        try:
            r = measure(args, net, dtype, config)
        except Timeout:
            r = f"no answer in {args.timeout:g} s"
        except (RuntimeError, OSError, subprocess.CalledProcessError) as e:
            r = str(e)
        rows.append((net, dtype, config, r))
        print("| " + " | ".join(str(c) for c in cells(net, dtype, config, r)) + " |", flush=True)
    mine, theirs = first_step(args)
    print(f"\nStart to first step: {mine:.2f} s, PyTorch {theirs:.2f} s. Library: "
          f"{size_of(os.path.join(args.build, 'src', 'libfrugal.so')) / 1e6:.1f} MB, "
          f"PyTorch {size_of(os.path.dirname(torch.__file__)) / 1e6:.0f} MB.")
    if args.out:
        os.makedirs(args.out, exist_ok=True)
        table = [cells(*row) for row in rows]
        with open(os.path.join(args.out, "compare.csv"), "w", newline="") as f:
            csv.writer(f).writerows([HEADER] + table)
        with open(os.path.join(args.out, "compare.md"), "w") as f:
            for line in [HEADER, ["---"] * len(HEADER)] + table:
                f.write("| " + " | ".join(str(c) for c in line) + " |\n")
        pictures(args.out, rows)
    return 1 if any(isinstance(r, str) for _, _, _, r in rows) else 0


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--torch-worker":
        _, _, model, batch, size, classes, dtype, config, threads, compiled = sys.argv
        torch_worker(model, int(batch), int(size), int(classes), dtype, config, int(threads), compiled == "1")
        sys.exit(0)
    if len(sys.argv) > 1 and sys.argv[1] == "--export":
        export(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
        sys.exit(0)
    sys.exit(main())
