#!/usr/bin/env python3
"""The scripts around the CUDA backend, on made-up toolkits and tools.

Usage: test_tools.py ROOT       ROOT: of the source tree
"""
import os
import subprocess
import sys
import tempfile

root = sys.argv[1]
faults = []


def expect(condition, sentence):
    if not condition:
        faults.append(sentence)


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, mode)


# ---- find_toolkit.py ----

def toolkit(folder, cuda, cudnn):
    """What find_toolkit.py has against a toolkit of this CUDART_VERSION with this (major, minor) of cuDNN."""
    write(folder + "/bin/nvcc", "", 0o755)
    write(folder + "/lib64/libcudart_static.a", "")
    write(folder + "/include/cuda_runtime_api.h", f"#define CUDART_VERSION  {cuda}\n")
    write(folder + "/include/cublasLt.h", "")
    write(folder + "/include/cudnn_graph.h", "")
    write(folder + "/include/cudnn_version.h", "#define CUDNN_MAJOR %d\n#define CUDNN_MINOR %d\n" % cudnn)
    done = subprocess.run([sys.executable, root + "/cuda/find_toolkit.py", folder], capture_output=True, text=True)
    expect(done.returncode == 0, f"find_toolkit.py: {done.stderr}")
    return (done.stdout.split("\n") + [""] * 5)[4]


def versions(folder):
    for cuda, cudnn, reason in [
            (12080, (9, 11), ""),
            (13000, (10, 0), ""),
            (12060, (9, 19), "CUDA 12.6 in F/include/cuda_runtime_api.h, and 12.8 or newer is needed"),
            (12000, (9, 19), "CUDA 12.0 in F/include/cuda_runtime_api.h, and 12.8 or newer is needed"),
            (11080, (9, 19), "CUDA 11.8 in F/include/cuda_runtime_api.h, and 12.8 or newer is needed"),
            (13000, (9, 10), "cuDNN 9.10 in F/include/cudnn_version.h, and 9.11 or newer is needed"),
            (13000, (8, 12), "cuDNN 8.12 in F/include/cudnn_version.h, and 9.11 or newer is needed")]:
        said = toolkit(folder, cuda, cudnn).replace(folder, "F")
        expect(said == reason, f"CUDA {cuda}, cuDNN {cudnn}: '{said}', not '{reason}'")


# ---- gpu_check.sh ----

NOT_SUPPORTED = "echo '========= Error: Device not supported. Please refer to the documentation'; exit 1"
SECOND_FAILS = "case \"$*\" in *twins_images/*) echo '========= ERROR SUMMARY: 1 error'; exit 1 ;; esac"


def sanitizer(folder, tool):
    """The status and the table's line of the part `sanitizer` with this in compute-sanitizer's place."""
    write(folder + "/bin/compute-sanitizer", f"#!/bin/sh\necho ran >>'{folder}/runs'\n{tool}\n", 0o755)
    write(folder + "/runs", "")
    environment = dict(os.environ, PATH=f"{folder}/bin:" + os.environ["PATH"], BUILD=folder, OUT=folder + "/out")
    done = subprocess.run(["bash", root + "/benchmarks/gpu_check.sh", "sanitizer"], env=environment,
                          capture_output=True, text=True)
    with open(folder + "/runs", encoding="utf-8") as f:
        return done.returncode, done.stdout.splitlines()[-1], len(f.readlines())


def sanitizers(folder):
    for tool, status, word, runs in [
            (NOT_SUPPORTED, 0, "skipped: compute-sanitizer: Device not supported. Please refer", 1),
            (SECOND_FAILS, 1, "FAILED (1)", 9),
            ("echo 'an error, and: Device not supported'; exit 0", 0, "ok in", 9),
            ("exit 3", 1, "FAILED (3)", 9)]:
        got = sanitizer(folder, tool)
        expect(got[0] == status and word in got[1] and got[2] == runs,
               f"{tool}: status {got[0]}, '{got[1]}', {got[2]} runs; not {status}, '{word}', {runs}")


# What the programs of a bundle print, by name; each part of the check then has what it looks for.
PROGRAMS = r"""#!/bin/sh
echo "$@" >>"$FAKE/calls"
report=
planned=false
for word in "$@"; do
    [ "$last" != --report ] || report=$word
    [ "$word" != --plan ] || planned=true
    last=$word
done
[ -z "$report" ] || echo '{"model": 1, "device": 1, "environment": 1, "batch_size": 1, "image_size": 1, "steps": 1,
"flags": {}, "memory": {"peak_allocated": 1048576}, "time": {"images_per_second": 7.0},
"planned": '$planned'}' >"$report"
case $1 in
gpu_first) echo "a GPU; 0.5 of 80.0 GiB in use before the first tensor"; echo "0 wrong"; $FIRST ;;
test_*) echo "[====] Synthesis: Tested: 3 | Passing: 3 | Failing: 0 | Crashing: 0"; $TESTS ;;
op_bandwidth) echo "| add | 1.0 | 1.000 | 1.0 | 91 % |" ;;
train_resnet) $TRAIN ;;
esac
"""


def check(folder, **said):
    """The exit status and the last lines of the parts of a check whose programs are the fake bundle's."""
    write(folder + "/run", PROGRAMS, 0o755)
    write(folder + "/bin/nvidia-smi", "#!/bin/sh\necho 24000\n", 0o755)
    write(folder + "/bin/compute-sanitizer", "#!/bin/sh\nexit 0\n", 0o755)
    write(folder + "/calls", "")
    environment = dict(os.environ, PATH=f"{folder}/bin:" + os.environ["PATH"], RUN=folder + "/run", FAKE=folder,
                       OUT=folder + "/out", **said)
    done = subprocess.run(["bash", root + "/benchmarks/gpu_check.sh"], env=environment, capture_output=True, text=True)
    parts = ("first", "tests", "plan", "bandwidth", "train", "resume", "sanitizer")
    lines = dict(line.split(None, 1) for line in done.stdout.splitlines()[-len(parts):] if " " in line)
    with open(folder + "/calls", encoding="utf-8") as f:
        return done.returncode, {p: lines.get(p, "") for p in parts}, f.read()


def dry_runs(folder):
    status, parts, calls = check(folder)
    expect(status == 0, f"a check without a failure ends with {status}: {parts}")
    for part, line in parts.items():
        expect(line.startswith("skipped" if part == "resume" else "ok in"), f"{part}: {line}")
    expect("train_vgg --depth 16 --no-batch-norm --batch-size 32" in calls, "24 GB: a batch of 32 of VGG-16")
    expect("train_mobilenet --batch-size 128" in calls, "24 GB: a batch of 128 of MobileNetV2")
    for name in ("ops", "autograd", "net", "optim", "models", "plan", "cuda_twins"):
        expect(f"test_{name}" in calls, f"test_{name} is not run")
    status, parts, _ = check(folder, TESTS="exit 1")
    expect(status == 1 and parts["tests"].startswith("FAILED (1)"), f"a failed test: {status}, {parts['tests']}")
    status, parts, _ = check(folder, TRAIN="sleep 9", LIMIT="2")
    expect(status == 3 and parts["train"].startswith("cut off after"), f"too slow: {status}, {parts['train']}")
    status, parts, calls = check(folder, FIRST="exit 77")
    expect(status == 77 and "train_" not in calls, f"without a device: {status}, {calls}")


# ---- gpu_table.py ----

def table(folder):
    """The table of a check that measured some claims and not others."""
    write(folder + "/model.log",
          "| step | batch | ms | images/s |\n"
          "| of this tree | 256 | 51.9 | 5220 / 4940 / 4500 | 794 |\n")
    write(folder + "/bandwidth.log",
          "| add | 1.0 | 1.000 | 1.0 | 91 % |\n"
          "| maxpool2d_backward | 1.0 | 1.000 | 1.0 | 54 % |\n"
          "| relu | 1.0 | 1.000 | 1.0 | 95 % |\n")
    write(folder + "/resnet-f16-train.json", '{"time": {"images_per_second": 4446.0}}')
    write(folder + "/train.log", "PyTorch 2.15.0 eager resnet f16 batch 256: 4983 images/s, peak 1 MiB allocated\n")
    done = subprocess.run([sys.executable, root + "/benchmarks/gpu_table.py", folder], capture_output=True, text=True)
    got = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for line in ["ResNet-50 AMP, batch 256, of this tree: images/s 4940 4446 0.90",
                 "PyTorch eager, the same: images/s 4530 4983 1.10",
                 "own kernels, median: share of a copy 0.88 0.91 1.03",
                 "max pooling's gradient: share of a copy 0.45 0.54 1.20",
                 "batch norm's statistics: share of a copy 0.82 not measured"]:
        expect(line in got, f"gpu_table.py lacks '{line}': {got} {done.stderr}")


with tempfile.TemporaryDirectory() as place:
    versions(place + "/toolkit")
    sanitizers(place + "/check")
    dry_runs(place + "/dry")
    table(place + "/table")
for fault in faults:
    print(fault)
sys.exit(bool(faults))
