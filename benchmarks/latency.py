#!/usr/bin/env python3
"""latency.py - one image through a network: frugal, ONNX Runtime and PyTorch eager, measured in one run.

    python3 benchmarks/latency.py [--build build] [--models resnet18,resnet50] [--pixels 224] [--threads 1,2]
                                  [--rounds 9] [--images 5]

Needs PyTorch, torchvision, safetensors, onnx and onnxruntime in the Python that runs it. All three load the same
random weights from a file each and must name the same class with the same logit to 1e-4. Each has a process of its own;
they take turns of some images, so that whatever else the machine does meets all. frugal runs folded (fr_net_fold), ONNX
Runtime with its default graph optimizations, PyTorch channels_last under inference_mode. Latencies are medians over all
images, a ratio is the median of the turns' ratios. First: from the start of the process to its first result, files
read. Resident: the process behind its first result.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time


def resident():
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def image(pixels):
    import numpy
    i = numpy.arange(3 * pixels * pixels, dtype=numpy.int64)
    return ((i * 7919 % 1000).astype("f") / 500 - 1).reshape(1, 3, pixels, pixels)


def pytorch(model, folder, x, threads):
    import torch
    import torchvision
    from safetensors.torch import load_file
    torch.set_num_threads(threads)
    m = torchvision.models.get_model(model).eval()
    m.load_state_dict(load_file(f"{folder}/{model}.safetensors"))
    m.to(memory_format=torch.channels_last)
    x = torch.from_numpy(x).to(memory_format=torch.channels_last)
    return torch.inference_mode()(lambda: m(x).numpy())


def onnx_runtime(model, folder, x, threads):
    import onnxruntime
    o = onnxruntime.SessionOptions()
    o.intra_op_num_threads, o.inter_op_num_threads = threads, 1
    s = onnxruntime.InferenceSession(f"{folder}/{model}.onnx", o, providers=["CPUExecutionProvider"])
    return lambda: s.run(None, {"x": x})[0]


def worker(side, model, folder, pixels, threads):
    """The same answers as latency.c."""
    run = {"pytorch": pytorch, "onnxruntime": onnx_runtime}[side](model, folder, image(pixels), threads)
    y = run()[0]
    print("ready", resident(), int(y.argmax()), float(y.max()), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - start))
        print(*times, flush=True)


def write_weights(model, folder, pixels):
    import torch
    import torchvision
    from safetensors.torch import save_file
    torch.manual_seed(0)
    m = torchvision.models.get_model(model)
    for name, t in m.named_buffers():
        if name.endswith("running_mean"):
            t.uniform_(-0.1, 0.1)
        elif name.endswith("running_var"):
            t.uniform_(0.5, 1.5)
    save_file(m.state_dict(), f"{folder}/{model}.safetensors")
    torch.onnx.export(m.eval(), torch.zeros(1, 3, pixels, pixels), f"{folder}/{model}.onnx", input_names=["x"],
                      opset_version=17, dynamo=False)


class Side:
    def __init__(self, command, threads):
        env = dict(os.environ, OMP_NUM_THREADS=str(threads))
        start = time.perf_counter()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        words = self.process.stdout.readline().split()
        if words[:1] != ["ready"]:
            sys.exit(f"latency.py: {command[0]} gave no result")
        self.first = 1e3 * (time.perf_counter() - start)
        self.resident, self.best, self.logit = int(words[1]), int(words[2]), float(words[3])
        self.times, self.turns = [], []

    def turn(self, images):
        self.process.stdin.write(f"{images}\n")
        self.process.stdin.flush()
        times = [float(w) for w in self.process.stdout.readline().split()]
        self.times += times
        self.turns.append(statistics.median(times))


def compare(args, model, folder, threads):
    me = [sys.executable, os.path.abspath(__file__), "--worker"]
    place = [model, folder, str(args.pixels), str(threads)]
    sides = [Side([f"{args.build}/benchmarks/latency", model, f"{folder}/{model}.safetensors", str(args.pixels)],
                  threads)] + [Side(me + [s] + place, threads) for s in ("onnxruntime", "pytorch")]
    for s in sides:
        if s.best != sides[0].best or abs(s.logit - sides[0].logit) > 1e-4 * abs(s.logit):
            sys.exit(f"latency.py: {model}: class {s.best}, {s.logit}; frugal {sides[0].best}, {sides[0].logit}")
        s.turn(args.images)
        s.times, s.turns = [], []
    for _ in range(args.rounds):
        for s in sides:
            s.turn(args.images)
    for s in sides:
        s.process.stdin.close()
        s.process.wait()
    cells = [f"{statistics.median(s.times):.1f}" for s in sides]
    cells += [f"{statistics.median(a / b for a, b in zip(sides[0].turns, s.turns)):.2f}" for s in sides[1:]]
    cells += [f"{s.first:.0f}" for s in sides] + [f"{s.resident / 1e6:.0f}" for s in sides]
    cells.append(f"{sides[0].resident / sides[2].resident:.2f}")
    print("| " + " | ".join([model, str(threads)] + cells) + " |", flush=True)


def main():
    if sys.argv[1:2] == ["--worker"]:
        side, model, folder, pixels, threads = sys.argv[2:]
        return worker(side, model, folder, int(pixels), int(threads))
    p = argparse.ArgumentParser()
    p.add_argument("--build", default="build")
    p.add_argument("--models", default="resnet18,resnet50")
    p.add_argument("--pixels", type=int, default=224)
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--images", type=int, default=5)
    args = p.parse_args()
    print("F: frugal, O: ONNX Runtime, P: PyTorch; milliseconds and megabytes\n")
    print("| network | threads | F | O | P | F/O | F/P | first F | O | P | resident F | O | P | F/P |")
    print("|" + 14 * "---|")
    with tempfile.TemporaryDirectory() as folder:
        for model in args.models.split(","):
            subprocess.run([sys.executable, "-W", "ignore", "-c", "import sys; sys.path.insert(0, sys.argv[1]); "
                            "import latency; latency.write_weights(sys.argv[2], sys.argv[3], int(sys.argv[4]))",
                            os.path.dirname(os.path.abspath(__file__)), model, folder, str(args.pixels)], check=True)
            for threads in args.threads.split(","):
                compare(args, model, folder, int(threads))
    return None


if __name__ == "__main__":
    sys.exit(main())
