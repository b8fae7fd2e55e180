#!/usr/bin/env python3
"""The scripts around the CUDA backend, on made-up toolkits and tools.

Usage: test_tools.py ROOT BUILD       ROOT: of the source tree; BUILD: with trainers, which take the check's flags
"""
import csv
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

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
    environment = dict(os.environ, PATH=f"{folder}/bin:" + os.environ["PATH"], BUILD=folder, OUT=folder + "/out",
                       RUN="")
    done = subprocess.run(["bash", root + "/benchmarks/gpu_check.sh", "sanitizer"], env=environment,
                          capture_output=True, text=True)
    with open(folder + "/runs", encoding="utf-8") as f:
        return done.returncode, done.stdout.splitlines()[-1], len(f.readlines())


def sanitizers(folder):
    for tool, status, word, runs in [
            (NOT_SUPPORTED, 0, "skipped: compute-sanitizer: Device not supported. Please refer", 1),
            (SECOND_FAILS, 1, "FAILED (1)", 4),
            ("echo 'an error, and: Device not supported'; exit 0", 0, "ok in", 4),
            ("exit 3", 1, "FAILED (3)", 4)]:
        got = sanitizer(folder, tool)
        expect(got[0] == status and word in got[1] and got[2] == runs,
               f"{tool}: status {got[0]}, '{got[1]}', {got[2]} runs; not {status}, '{word}', {runs}")


# What the programs of a bundle print, by name; each part of the check then has what it looks for.
PROGRAMS = r"""#!/bin/sh
echo "$@" >>"$FAKE/calls"
report=
planned=false
room='"room": {"bytes": 9, "choice": "kept"},'
for word in "$@"; do
    [ "$last" != --report ] || report=$word
    case $word in --plan) planned=true ;; --no-rebuild | --rebuild | --memory-budget) room= ;; esac
    last=$word
done
[ -z "$report" ] || echo '{"model": 1, "device": 1, "environment": 1, "batch_size": 1, "image_size": 1, "steps": 1,
"flags": {}, "memory": {"peak_allocated": 1048576}, "time": {"images_per_second": 7.0}, '$room'
"planned": '$planned'}' >"$report"
case $1 in
gpu_first) echo "a GPU; 0.5 of 80.0 GiB in use before the first tensor"; echo "0 wrong"; $FIRST ;;
test_*) echo "[SKIP] a::b: no"; echo "[====] Synthesis: Tested: 3 | Passing: 3 | Failing: 0 | Crashing: 0"; $TESTS ;;
op_bandwidth) case $3 in 1) echo "| add | 1.0 | 1.000 | 1.0 | 91 % |" ;; esac
    case $4 in --device | maxpool2d) echo "| maxpool2d_backward | 1.0 | 1.000 | 1.0 | 5$3 % |" ;; esac ;;
gpu_patterns) echo "| 64 to 64, 56 x 56, 1 x 1 / 1 | 3 | convolution, sums | 0.5000 | 0.2500 | 0.50 |" ;;
train_resnet) $TRAIN ;;
esac
"""
COUNTERS = """#!/bin/sh
echo "ncu $*" >>"$FAKE/calls"
echo '==PROF== Connected'
echo '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
for launch in 0 1; do
    for kernel in 'sums(float *)' 'void walk<(int)8, put<__half, (int)2>>(fri_axis, put<__half, (int)2>, int)'; do
        echo '"'$launch'","1","x","h","'$kernel'","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","s","conflicts","","1,234"'
    done
done
"""
# A PyTorch that takes every call; the third network, DenseNet-121, has what $BROKEN says.
TORCH = """import os
networks = 0
class Anything:
    def __init__(self, *words, **more): pass
    def __call__(self, *words, **more): return self
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return self
    def elapsed_time(self, other): return 2.0
    def cuda(self):
        global networks
        networks += 1
        import torch
        if networks == 3 and "BROKEN" in os.environ: raise eval(os.environ["BROKEN"], {"cuda": torch.cuda})
        return self
    def __enter__(self): return self
    def __exit__(self, *words): pass
class cuda:
    class OutOfMemoryError(Exception): pass
    is_available = reset_peak_memory_stats = synchronize = empty_cache = lambda: True
    max_memory_allocated = lambda: 2 << 20
    Event = Anything
__version__ = "2.11.0"
def __getattr__(name): return Anything()
"""
NETWORKS = ("resnet", "mobilenet", "densenet", "unet", "vgg")
TRAINED = [("train", n, "f16", "default (kept)") for n in NETWORKS] + \
    [("train", "resnet", "f16", "default (kept) --cudnn-benchmark")]
MEMORY = [("memory", "resnet", t, mode) for t, mode in
          [("f16", "--memory-budget 6144MiB"), ("f16", "--memory-budget 3072MiB"), ("f16", "--rebuild"),
           ("bf16", "--no-rebuild"), ("f32", "--no-rebuild")]]
TORCHED = [("torch", n, "f16", "eager") for n in NETWORKS]
ROWS = [("tests", n, "", "") for n in ("cuda_twins", "net", "autograd", "optim")] + \
    [("bandwidth", n, "f16", "") for n in ("add", "maxpool2d_backward", "maxpool2d_backward")] + TRAINED + TORCHED + \
    [("patterns", "64 to 64, 56 x 56, 1 x 1 / 1", "f16", "convolution, sums")] + \
    [("counters", f"{n}: {function}", "f16", "conflicts") for n in
     ("batchnorm2d_stats", "batchnorm2d_backward", "gradient over parts", "depthwise conv2d forward")
     for function in ("sums", "void walk<(int)8, put<__half, (int)2>>")] + MEMORY + \
    [("plan", n, t, "") for n in ("vgg", "resnet") for t in ("f32", "f16")]
SECOND = [("compiled", n, "f16", "compiled") for n in NETWORKS[:2]] + \
    [("small", n, "f16", "default (kept)") for _ in range(3) for n in ("resnet", "densenet")] + \
    [("suites", n, "", "") for n in ("models", "plan", "ops")]
BUDGETS = [("budgets", n, "f16", f"--memory-budget {mib}MiB") for n, both in
           (("mobilenet", (4096, 2048)), ("densenet", (2048, 1024)), ("unet", (3072, 2048)), ("vgg", (2560, 2432)))
           for mib in both]

PARTS = ["first"] + list(dict.fromkeys(r[0] for r in ROWS + SECOND + BUDGETS)) + ["sanitizer"]


def check(folder, words=(), free=80000, end=None, **said):
    """Exit status, last lines of the parts, calls and rows of a check whose programs are the fake bundle's. end: the
    command gets TERM when a row of this part is there."""
    write(folder + "/run", PROGRAMS, 0o755)
    write(folder + "/commit", "abc1234\n")
    write(folder + "/bin/nvidia-smi", f"#!/bin/sh\ncase $1 in *name*) echo A card ;; *) echo {free} ;; esac\n", 0o755)
    write(folder + "/bin/compute-sanitizer", "#!/bin/sh\nexit 0\n", 0o755)
    write(folder + "/bin/ncu", COUNTERS, 0o755)
    write(folder + "/python/torch/__init__.py", TORCH)
    write(folder + "/python/torchvision/__init__.py", TORCH)
    write(folder + "/calls", "")
    if not os.path.exists(folder + "/bin/python3"):
        os.symlink(os.path.realpath(sys.executable), folder + "/bin/python3")  # a chooser of versions takes longer
    subprocess.run(["rm", "-rf", folder + "/out"], check=True)
    environment = dict(os.environ, PATH=f"{folder}/bin:" + os.environ["PATH"], RUN=folder + "/run", FAKE=folder,
                       OUT=folder + "/out", PYTHONPATH=folder + "/python", **said)
    process = subprocess.Popen(["bash", root + "/benchmarks/gpu_check.sh", *words], env=environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = ""
    while end is not None and (line := process.stdout.readline()):
        said += line
        if line.startswith(end):
            process.terminate()
            end = None
    said += process.communicate(timeout=200)[0]
    lines = dict(line.split(None, 1) for line in said.splitlines()[-12:] if " " in line)
    with open(folder + "/calls", encoding="utf-8") as f:
        calls = f.read()
    rows = []
    if os.path.exists(folder + "/out/rows.csv"):
        with open(folder + "/out/rows.csv", encoding="utf-8", newline="") as f:
            rows = list(csv.DictReader(f))
    files = sorted(os.listdir(folder + "/out"))
    expect(files == [f for f in ("all.tar.gz", "device.json", "results.md", "rows.csv") if f in files] and
           "all.tar.gz" in files, f"files that come back: {files}")
    with open(folder + "/out/results.md", encoding="utf-8") as f:
        results = f.read().splitlines()
    for part, line in lines.items():
        expect(part not in PARTS or f"{part:<10} {line}" in results, f"results.md lacks {part} {line}")
    return process.returncode, lines, calls, rows, said


def rehearsal(folder):
    """The day with a GPU on fakes, in two commands: every row, in order, and the tables."""
    for words, expected in [(("second",), SECOND), (("budgets",), BUDGETS), ((), ROWS)]:
        status, parts, calls, rows, said = check(folder, words)
        expect(status == 0, f"a check without a failure ends with {status}: {said}")
        for part in dict.fromkeys([] if words else ["first"] + [r[0] for r in expected]):
            expect(parts.get(part, "").startswith("ok in"), f"{part}: {parts.get(part)}")
        got = [(r["part"], r["name"], r["type"], r["mode"]) for r in rows]
        expect(got == expected, f"rows: {[r for r in expected if r not in got]} are missing, {got} are there")
        expect(all(r["card"] == "A card" and r["commit"] == "abc1234" for r in rows), f"card and commit: {rows[:1]}")
        expect(all("--clock-control none" in call for call in calls.splitlines() if call.startswith("ncu")),
               f"a counter sets clocks: {calls}")
        expect(words != ("second",) or "train_densenet --depth 121 --classes 1000 --batch-size 8" in calls,
               f"small batches: {calls}")
    expect("train_vgg --depth 16 --no-batch-norm --classes 1000 --batch-size 64" in calls, "a batch of 64 of VGG-16")
    logs = subprocess.run(["tar", "-tzf", folder + "/out/all.tar.gz"], capture_output=True, text=True).stdout.split()
    for name in ("./first.log", "./plan.log", "./vgg--amp-run.json", "./resnet-256-f16-rebuild.json"):
        expect(name in logs, f"all.tar.gz lacks {name}: {logs}")
    tables = [" ".join(line.split()) for line in said.splitlines()]
    for line in ["One A card, measured at abc1234.",
                 "|network, batch|type|memory|frugal|PyTorch|ratio|torch.compile|ratio|frugal, MiB|PyTorch, MiB|",
                 "|elementwise, cast, Adam, SGD|0.91|", "|max pooling, its gradient|0.59|",
                 "|batchnorm2d_stats: sums|conflicts|1234|",
                 "|convolution, sums|1|1.50|0.75|0.75|0.50, 0.50, 0.50|",
                 "|net|3 tests passed of 3, 1 skipped|", "|ResNet-50, f16|1,048,576|"]:
        expect(line in tables, f"the tables lack '{line}': {said}")
    flags(calls)
    table(folder, rows)


def flags(calls):
    """The trainers take the flags, and plan."""
    planned = set()
    for words in (line.split() for line in calls.splitlines()):
        name, program = (words[0], "--amp=bf16" in words), f"{sys.argv[2]}/examples/{words[0]}"
        if not name[0].startswith("train_") or "--plan" in words or name in planned or not os.path.exists(program):
            continue
        planned.add(name)
        words[words.index("cuda")] = "meta"
        done = subprocess.run([program, *words[1:-1], "/dev/null", "--plan"], capture_output=True, text=True)
        expect(done.returncode == 0, f"{' '.join(words)}: {done.stderr}")


def table(folder, rows):
    """The ratio to PyTorch's row of the same network, batch and type."""
    for r in rows:
        r["value"] = {"train": "4446", "torch": "4983", "compiled": "2223"}.get(r["part"], r["value"])
    with open(folder + "/out/rows.csv", "w", encoding="utf-8", newline="") as f:
        csv.DictWriter(f, rows[0].keys()).writeheader()
        csv.DictWriter(f, rows[0].keys()).writerows(rows)
    done = subprocess.run([sys.executable, root + "/benchmarks/gpu_table.py", "--results", folder + "/out"],
                          capture_output=True, text=True)
    for line in ["|ResNet-50, 256|AMP f16|default (kept)|4,446|4,983|0.89|||1|2|",
                 "|VGG-16, 64|AMP f16|default (kept)|4,446|4,983|0.89|||1|2|",
                 "||AMP f16|--memory-budget 3072MiB|7|4,983|0.00|||1|2|"]:
        expect(line in done.stdout.splitlines(), f"gpu_table.py lacks '{line}': {done.stdout} {done.stderr}")


def dry_runs(folder):
    status, parts, _, _, _ = check(folder, ("tests",), TESTS="exit 1")
    expect(status == 1 and parts["tests"].startswith("FAILED (1)"), f"a failed test: {status}, {parts['tests']}")
    status, parts, _, rows, _ = check(folder, ("train", "torch"), TRAIN="sleep 100", TOTAL="10")
    expect(status == 3 and parts["train"].startswith("cut off after"), f"too slow: {status}, {parts['train']}")
    expect(rows and rows[-1]["part"] == "torch", f"a part takes the next one's time: {rows[-1:]}")
    status, _, calls, _, _ = check(folder, ("train", "memory"), free=24000)
    expect(status == 0 and "train_mobilenet --classes 1000 --batch-size 128" in calls and "budget" not in calls,
           f"24 GB: half a batch, and no budgets: {status}")
    status, _, calls, _, _ = check(folder, FIRST="exit 77")
    expect(status == 77 and "train_" not in calls, f"without a device: {status}, {calls}")


def losses(folder):
    """What is lost if a row fails, and if the command is ended in a part."""
    for error, status in [("RuntimeError('no engine')", 1), ("cuda.OutOfMemoryError('too large')", 0)]:
        got, parts, _, rows, said = check(folder, ("torch",), BROKEN=error)
        names = [r["name"] for r in rows]
        expect(got == status and names == [n for n in NETWORKS if n != "densenet"], f"{error}: {got}, {names}, {said}")
        expect("PyTorch densenet f16 batch 64: " + ("RuntimeError: no engine" if status else "out of memory") in said,
               f"{error} is not told: {said}")
    before = time.time()
    status, parts, _, rows, said = check(folder, end="=== train", TRAIN="echo $$ >>$FAKE/pids; exec sleep 100")
    expect(status == 3 and time.time() - before < 30, f"an ended command ends with {status}: {said}")
    expect([r["part"] for r in rows] == ["tests"] * 4 + ["bandwidth"] * 3, f"rows before the end: {rows}")
    expect(parts["bandwidth"].startswith("ok") and parts["train"].startswith("ended after"), f"parts: {parts}")
    expect("|net|3 tests passed of 3, 1 skipped|" in said, f"tables of an ended command: {said}")
    time.sleep(1)
    if os.path.exists(folder + "/pids"):
        with open(folder + "/pids", encoding="utf-8") as f:
            left = [pid for pid in f.read().split() if os.path.exists("/proc/" + pid)]
        expect(not left, f"programs are left behind: {left}")


def archive(folder):
    """The archive of every program that is built: below 20 MB, and the check starts from it alone."""
    os.makedirs(folder, exist_ok=True)
    done = subprocess.run([root + "/.ci/bundle", sys.argv[2], folder + "/bundle.tar.xz"], capture_output=True,
                          text=True)
    if "has kernels for this machine alone" in done.stderr:
        return
    expect(done.returncode == 0, f".ci/bundle: {done.stderr}")
    size = os.path.getsize(folder + "/bundle.tar.xz")
    print(f"bundle.tar.xz: {size / 1e6:.1f} MB")
    expect(size < 20e6, f"the archive has {size} bytes, and 20,000,000 may travel")
    subprocess.run(["tar", "-C", folder, "-xf", folder + "/bundle.tar.xz"], check=True)
    environment = dict(os.environ, OUT=folder + "/out")
    done = subprocess.run(["bash", folder + "/frugal/tree/benchmarks/gpu_check.sh", "--first"], env=environment,
                          capture_output=True, text=True, cwd=folder)
    expect("=== build" not in done.stdout and "no file" not in done.stdout.lower() and done.returncode in (0, 1, 77),
           f"from the archive alone: {done.returncode}, {done.stdout} {done.stderr}")


with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor() as pool:
    # Side by side: some wait, for a time that is up.
    for part in [pool.submit(f, f"{place}/{f.__name__}")
                 for f in (rehearsal, archive, losses, dry_runs, sanitizers, versions)]:
        part.result()
for fault in faults:
    print(fault)
sys.exit(bool(faults))
