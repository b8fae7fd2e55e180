#!/usr/bin/env python3
"""finetune.py - a new head on a pretrained network: `finetune` beside the same loop in PyTorch.

    python3 benchmarks/finetune.py --data DIR [--build build] [--seeds N] [--pretrain N] [--keep DIR]
        [--flags FLAGS] [--budget SIZE]

DIR holds CIFAR-10 as images: train/<class>/*.jpg and test/<class>/*.jpg. Needs PyTorch, torchvision and safetensors.
MobileNetV2 at 64 pixels is pretrained here on five of the classes, with `finetune --train-only all`; on the other five,
100 images each, both sides then train a new head for ten epochs: AdamW, the same rates, batch, crops, mirror images and
dropout, frozen norms on their running values. Tested on 300 images of each class. Prints accuracy for each seed, mean
and spread; time of the training loop, evaluations left out; peak bytes (frugal's allocator; PyTorch's by its profiler's
memory events, in a process of their own); and the largest resident set of the whole process. The sides take turns.

With --budget nothing of PyTorch runs: what `--memory-budget SIZE --train-only auto` chooses is beside a new head alone,
and beside as many whole layers from the end as fit into the same bytes without recomputing."""
import argparse
import json
import math
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

EDGE = 64 * 256 // 224  # images are resized to it, and crops of SIZE are taken
SIZE, BATCH, EPOCHS, LR, DECAY = 64, 32, 10, 1e-3, 0.01
BEFORE = ("airplane", "automobile", "bird", "cat", "deer")
AFTER = ("dog", "frog", "horse", "ship", "truck")
PER_CLASS, TEST_PER_CLASS, PRETRAIN_PER_CLASS = 100, 300, 2000


def choose(data, classes, split, n, to):
    for name in classes:
        folder = os.path.join(to, split, name)
        os.makedirs(folder)
        for file in sorted(os.listdir(os.path.join(data, split, name)))[:n]:
            os.symlink(os.path.abspath(os.path.join(data, split, name, file)), os.path.join(folder, file))


def finetune(build, *flags):
    program = [os.path.join(build, "examples", "finetune"), "--image-size", str(SIZE), "--threads", "2", "--quiet"]
    child = subprocess.Popen(program + [str(f) for f in flags])
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"finetune.py: finetune ended with status {status}")
    return usage.ru_maxrss * 1024


def ours(build, folder, weights, seed, scratch, *flags):
    report = os.path.join(scratch, "report.json")
    resident = finetune(build, "--weights", weights, "--data", folder, "--epochs", EPOCHS, "--batch-size", BATCH,
                        "--seed", seed, "--eval-every", 0, "--report", report, *flags)
    with open(report) as f:
        r = json.load(f)
    steps = r["time"]["step_ms_median"] / 1000 * r["steps"]
    return {"accuracy": r["accuracy"]["test"], "seconds": steps, "peak": r["memory"]["peak_requested"],
            "resident": resident}


def resident():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


def theirs(folder, weights, seed, profiled):
    """One run of PyTorch, in this process."""
    import torch
    import torchvision
    from safetensors.torch import load_file
    from torchvision.transforms import v2
    torch.set_num_threads(2)
    torch.manual_seed(seed)
    with open(weights, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    info = json.loads(header["__metadata__"]["frugal.network"])
    normalize = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(info["mean"], info["std"])]
    whole = v2.Resize((EDGE, EDGE))
    vary = v2.Compose([whole, v2.RandomCrop(SIZE), v2.RandomHorizontalFlip()] + normalize)
    plain = v2.Compose([whole, v2.CenterCrop(SIZE)] + normalize)
    data = {s: torchvision.datasets.ImageFolder(os.path.join(folder, s), vary if s == "train" else plain)
            for s in ("train", "test")}
    loader = torch.utils.data.DataLoader(data["train"], BATCH, shuffle=True, drop_last=True, num_workers=1)
    model = torchvision.models.mobilenet_v2(num_classes=len(BEFORE))
    model.load_state_dict(load_file(weights))
    model.requires_grad_(False)
    model.classifier[1] = torch.nn.Linear(1280, len(AFTER))
    torch.nn.init.normal_(model.classifier[1].weight, 0, 0.01)
    torch.nn.init.zeros_(model.classifier[1].bias)
    model.eval()
    model.classifier.train()
    model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.classifier.parameters(), lr=LR, weight_decay=DECAY)
    steps, warm, step, waiting = EPOCHS * len(loader), len(loader), 0, []

    def epochs(n):
        nonlocal step
        for _ in range(n):
            for x, y in loader:
                rate = min(1.0, (step + 1) / warm) if step < warm else \
                    0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))
                began = time.perf_counter()
                for group in optimizer.param_groups:
                    group["lr"] = LR * rate
                optimizer.zero_grad(set_to_none=True)
                x = x.contiguous(memory_format=torch.channels_last)
                torch.nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                waiting.append(time.perf_counter() - began)
                step += 1

    if profiled:
        with torch.profiler.profile(profile_memory=True, record_shapes=False) as p:
            epochs(1)
        memory = [e for e in p.profiler.kineto_results.events() if e.name() == "[memory]"]
        total = peak = 0
        for e in sorted(memory, key=lambda e: e.start_ns()):
            total += e.nbytes()
            peak = max(peak, total)
        held = sum(t.numel() * t.element_size() for t in list(model.parameters()) + list(model.buffers()))
        return {"peak": peak + held}
    epochs(EPOCHS)
    right = 0
    model.eval()
    with torch.no_grad():
        for x, y in torch.utils.data.DataLoader(data["test"], BATCH):
            right += (model(x.contiguous(memory_format=torch.channels_last)).argmax(1) == y).sum().item()
    return {"accuracy": right / len(data["test"]), "seconds": statistics.median(waiting) * steps,
            "resident": resident()}


def chosen(build, folder, *flags):
    """What --train-only auto stands for."""
    program = [os.path.join(build, "examples", "finetune"), "--image-size", str(SIZE), "--batch-size", str(BATCH),
               "--threads", "2", "--data", folder, "--train-only", "auto", "--plan", *flags]
    out = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout
    return out.split("--train-only auto is --train-only ", 1)[1].split(",", 1)[0].split()


def compare_choices(build, folder, weights, budget, seeds, scratch):
    auto = ["--memory-budget", budget]
    layers = chosen(build, folder, *auto, "--all-off", "--inplace", "--encode", "--early-release")[0]
    ways = {"head": ["--train-only", "head"], f"{layers}, nothing recomputed": ["--train-only", layers],
            f"auto ({' '.join(chosen(build, folder, *auto))})": ["--train-only", "auto", *auto]}
    rows = {way: [] for way in ways}
    for seed in range(1, seeds + 1):
        for way, flags in ways.items():
            rows[way].append(ours(build, folder, weights, seed, scratch, *flags))
    for way, runs in rows.items():
        values = [100 * r["accuracy"] for r in runs]
        print(f"{way}: mean {statistics.mean(values):.2f} %, {min(values):.2f} to {max(values):.2f} %; peak "
              f"{runs[0]['peak']:,} bytes; steps {statistics.median(r['seconds'] for r in runs):.2f} s")


def in_a_process(*words):
    out = subprocess.run([sys.executable, __file__, "--one", *words], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(out.stdout.strip().splitlines()[-1])


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--data")
    a.add_argument("--build", default="build")
    a.add_argument("--seeds", type=int, default=5)
    a.add_argument("--pretrain", type=int, default=6, help="epochs")
    a.add_argument("--keep", help="pretrained weights stay here, and are taken from here")
    a.add_argument("--flags", default="", help="of our side: '--half=bf16 --master-weights --prefix-parts 1'")
    a.add_argument("--budget", help="compare what trains within these bytes: 64MiB")
    a.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    o = a.parse_args()
    if o.one:
        folder, weights, seed, profiled = o.one
        print(json.dumps(theirs(folder, weights, int(seed), profiled == "1")))
        return 0
    if not o.data or not os.path.isdir(os.path.join(o.data, "train", BEFORE[0])):
        print("finetune.py: --data DIR with train/<class>/*.jpg and test/<class>/*.jpg of CIFAR-10", file=sys.stderr)
        return 2
    scratch = tempfile.mkdtemp(prefix="finetune-")
    try:
        pre, small = os.path.join(scratch, "pre"), os.path.join(scratch, "small")
        choose(o.data, BEFORE, "train", PRETRAIN_PER_CLASS, pre)
        choose(o.data, BEFORE, "test", TEST_PER_CLASS, pre)
        choose(o.data, AFTER, "train", PER_CLASS, small)
        choose(o.data, AFTER, "test", TEST_PER_CLASS, small)
        weights = os.path.join(o.keep or scratch, "mobilenet_v2_64.safetensors")
        if not os.path.exists(weights):
            os.makedirs(o.keep or scratch, exist_ok=True)
            finetune(o.build, "--data", pre, "--train-only", "all", "--optimizer", "sgd", "--momentum", 0.9, "--lr",
                     0.05, "--batch-size", 64, "--epochs", o.pretrain, "--eval-every", 0, "--export", weights)
        if o.budget:
            compare_choices(o.build, small, weights, o.budget, o.seeds, scratch)
            return 0
        rows = []
        for seed in range(1, o.seeds + 1):
            mine = ours(o.build, small, weights, seed, scratch, *shlex.split(o.flags))
            other = in_a_process(small, weights, str(seed), "0")
            rows.append((mine, other))
            print(f"seed {seed}: accuracy {100 * mine['accuracy']:.2f} % beside {100 * other['accuracy']:.2f} %, "
                  f"steps {mine['seconds']:.2f} s beside {other['seconds']:.2f} s", flush=True)
        peak = in_a_process(small, weights, "1", "1")["peak"]
        for i, side in enumerate(("frugal", "PyTorch")):
            values = [100 * r[i]["accuracy"] for r in rows]
            print(f"{side}: mean {statistics.mean(values):.2f} %, {min(values):.2f} to {max(values):.2f} %")
        median = lambda key, i: statistics.median(r[i][key] for r in rows)
        mine, seconds, held = rows[0][0]["peak"], [median("seconds", i) for i in (0, 1)], \
            [median("resident", i) for i in (0, 1)]
        print(f"time {seconds[0] / seconds[1]:.2f} of PyTorch's; peak {mine:,} bytes, {mine / peak:.3f} of {peak:,}; "
              f"resident {held[0]:,.0f} bytes, {held[0] / held[1]:.3f} of {held[1]:,.0f}")
    finally:
        shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
