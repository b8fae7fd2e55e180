#!/usr/bin/env python3
"""ranks.py - what several ranks cost, on this machine: two cores, or more with --threads.

    python3 benchmarks/ranks.py BUILD [--rounds N] [--torch PYTHON] [PART...]

Parts: beside (two ranks and two processes that know nothing of each other), exchange (25 MB in order and by MPI's own
all-reduce, in shared memory and between two hosts), gigabit (two hosts on 1 Gbit/s), ddp (PyTorch's
DistributedDataParallel on gloo), alone (one process, and one under a launcher). Two hosts are network namespaces
(tests/addons/ranks/hosts.py) and need root. Turns interleave; a figure is the median of its rounds.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "addons", "ranks"))
from hosts import Hosts, lacking  # noqa: E402
from law import RUN  # noqa: E402

ENV = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
VGG = ["train_vgg", "--depth", "16", "--batch-size", "64"]
COMMON = ["--image-size", "32", "--dataset", "digits", "--eval-every", "0", "--seed", "3", "--workers", "0", "--quiet",
          "--threads", "1"]
STEPS = ["--steps", "10"]


class Training:
    """One process, or the ranks of a launcher's command, that writes a report."""

    def __init__(self, where, words, start=(), env=None):
        self.name = tempfile.mktemp(dir=where)
        self.process = subprocess.Popen([*start, *words, "--report", self.name], env=env or ENV,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)

    def report(self):
        text = self.process.communicate(timeout=600)[0]
        if self.process.returncode != 0:
            sys.exit(f"ranks: a training ended with {self.process.returncode}:\n{text}")
        with open(self.name) as f:
            return json.load(f)


def step_ms(report):
    return report["time"]["step_ms_median"]


def spread(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


class Benchmark:
    def __init__(self, build, rounds, torch, where):
        self.build, self.rounds, self.torch, self.where = build, rounds, torch, where

    def words(self, flags):
        return [os.path.join(self.build, "examples", flags[0]), *flags[1:], *COMMON, *STEPS]

    def unconnected(self, flags):
        """The mean of two processes that run at the same time."""
        both = [Training(self.where, self.words(flags)) for _ in range(2)]
        return statistics.mean(step_ms(t.report()) for t in both)

    def ranks(self, launcher, flags):
        return Training(self.where, self.words(flags), [*RUN[launcher], "2"]).report()

    def beside(self):
        for launcher in RUN:
            for more in (["--no-fused-step"], ["--fused-step"]):
                cost, exposed, ms = [], [], []
                for _ in range(self.rounds):
                    apart = self.unconnected(VGG)
                    together = self.ranks(launcher, VGG + more)
                    cost.append(step_ms(together) / apart)
                    ms.append(step_ms(together))
                    exposed.append(max(r["waited_seconds"] / r["exchange_seconds"] for r in together["ranks"]))
                print(f"beside: VGG-16, 64 images of 32 px, 2 ranks, {launcher} {' '.join(more)}: "
                      f"{statistics.median(ms):.0f} ms a step, {spread(cost)} of two processes' (goal 1.05); exposed "
                      f"{spread(exposed)} of the exchange (goal 0.30)", flush=True)

    def exchange(self):
        program = os.path.join(self.build, "benchmarks", "exchange")
        for launcher in RUN:
            words = [program, os.path.join(self.build, "src", "addons", "ranks", f"liball-reduce-{launcher}.so")]
            print("exchange, shared memory (goal 1.35): " +
                  subprocess.check_output([*RUN[launcher], "2", *words], env=ENV, text=True).strip(), flush=True)
            if lacking() is None:
                with Hosts() as hosts:
                    command = hosts.command(launcher, 1, words)
                    print("exchange, TCP (goal 1.15): " +
                          subprocess.check_output(command, env=hosts.env(launcher), text=True).strip(), flush=True)

    def gigabit(self):
        if lacking() is not None:
            print(f"gigabit: skipped, {lacking()}")
            return
        flags = ["train_resnet", "--depth", "18", "--batch-size", "64"]
        apart = statistics.median(self.unconnected(flags) for _ in range(self.rounds))
        for launcher in RUN:
            free, together = [], []
            for _ in range(self.rounds):
                for limit, reports in ((None, free), ("1gbit", together)):
                    with Hosts() as hosts:
                        if limit:
                            hosts.limit(limit)
                        command = hosts.command(launcher, 1, self.words(flags))
                        reports.append(Training(self.where, command, env=hosts.env(launcher)).report())
            work = statistics.median(r["ranks"][0]["exchange_seconds"] / r["steps"] / r["ranks"][0]["step_bytes"]
                                     for r in free)
            measured = apart / statistics.median(map(step_ms, together))
            print(f"gigabit: ResNet-18, 64 images of 32 px, {launcher}: efficiency {measured:.3f}; without a limit a "
                  f"byte takes {1e9 * work:.2f} ns", flush=True)

    def ddp(self):
        if self.torch is None:
            print("ddp: skipped, --torch names no Python that has PyTorch")
            return
        ratios, resident = [], []
        for _ in range(self.rounds):
            ours = self.ranks("openmpi", VGG + ["--fused-step"])
            env = dict(ENV, MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", WORLD_SIZE="2")
            both = [subprocess.Popen([self.torch, __file__, "--ddp-worker"], env=dict(env, RANK=str(rank)),
                                     stdout=subprocess.PIPE, text=True) for rank in range(2)]
            theirs = [json.loads(p.communicate(timeout=600)[0].splitlines()[-1]) for p in both]
            ratios.append(max(t["step_ms"] for t in theirs) / step_ms(ours))
            resident.append(ours["process"]["resident"] / max(t["resident"] for t in theirs))
        print(f"ddp: VGG-16, 64 images of 32 px, 2 ranks: {spread(ratios)} times PyTorch's images per second (goal "
              f"1.2), {spread(resident)} of its resident memory (goal 0.5)")

    def alone(self):
        ratios = []
        for _ in range(self.rounds):
            plain = Training(self.where, self.words(VGG)).report()
            one = Training(self.where, self.words(VGG), [*RUN["openmpi"], "1"]).report()
            ratios.append(step_ms(one) / step_ms(plain))
            if one["memory"] != plain["memory"]:
                sys.exit("ranks: one rank has other memory than one process")
        print(f"alone: one rank takes {spread(ratios)} of one process's time, and has its memory to the byte")


def ddp_worker():
    """VGG-16 with batch norm as torchvision has it, under DistributedDataParallel."""
    import resource
    import time
    import torch
    import torchvision
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ["RANK"]))
    torch.distributed.init_process_group("gloo")
    layers = torchvision.models.vgg16_bn(num_classes=10).features
    model = torch.nn.Sequential(layers, torch.nn.Flatten(), torch.nn.Linear(512, 10)) \
        .to(memory_format=torch.channels_last)
    model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, foreach=True)
    loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    times = []
    for _ in range(10):
        x = torch.rand(64, 3, 32, 32).to(memory_format=torch.channels_last)
        y = torch.randint(10, (64,))
        began = time.monotonic()
        loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(1000 * (time.monotonic() - began))
    resident = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"step_ms": statistics.median(times[2:]), "resident": resident}))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", nargs="?")
    p.add_argument("parts", nargs="*")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--torch", help="a Python that has PyTorch and torchvision")
    p.add_argument("--ddp-worker", action="store_true", help=argparse.SUPPRESS)
    o = p.parse_intermixed_args()
    if o.ddp_worker:
        return ddp_worker()
    with tempfile.TemporaryDirectory() as where:
        b = Benchmark(o.build, o.rounds, o.torch, where)
        for part in o.parts or ["beside", "exchange", "gigabit", "ddp", "alone"]:
            getattr(b, part)()


if __name__ == "__main__":
    main()
