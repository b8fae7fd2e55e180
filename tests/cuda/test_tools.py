#!/usr/bin/env python3
"""The scripts around the CUDA backend, on made-up toolkits.

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
            (12050, (9, 11), ""),
            (13000, (10, 0), ""),
            (12040, (9, 19), "CUDA 12.4 in F/include/cuda_runtime_api.h, and 12.5 or newer is needed"),
            (11080, (9, 19), "CUDA 11.8 in F/include/cuda_runtime_api.h, and 12.5 or newer is needed"),
            (13000, (9, 10), "cuDNN 9.10 in F/include/cudnn_version.h, and 9.11 or newer is needed"),
            (13000, (8, 12), "cuDNN 8.12 in F/include/cudnn_version.h, and 9.11 or newer is needed")]:
        said = toolkit(folder, cuda, cudnn).replace(folder, "F")
        expect(said == reason, f"CUDA {cuda}, cuDNN {cudnn}: '{said}', not '{reason}'")


with tempfile.TemporaryDirectory() as place:
    versions(place + "/toolkit")
for fault in faults:
    print(fault)
sys.exit(bool(faults))
