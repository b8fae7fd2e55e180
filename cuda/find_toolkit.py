#!/usr/bin/env python3
"""Finds a CUDA toolkit with cuDNN's headers, in one folder or in the packages that pip installs.

Usage: find_toolkit.py ROOT       ROOT: the folder to look in, or empty to search

       find_toolkit.py --library libcudnn.so.9      the library's file where a search finds it; else an empty line

Prints five lines: nvcc; folders of headers, separated by ':'; folders of libraries; libcudart_static.a; and why it is
not usable (empty if it is).
"""
import glob
import os
import re
import shutil
import sys

HEADERS = ("cuda_runtime_api.h", "cublasLt.h", "cudnn_graph.h")
# nvcc compiles for compute capability 10.0 and 12.0 from CUDA 12.8 on; cuDNN describes devices in JSON from 9.11 on.
OLDEST_CUDA = (12, 8)
OLDEST_CUDNN = (9, 11)
WHERE_NONE = " (pip's nvidia-cuda-nvcc-cu12 has none, nvidia-cuda-nvcc has)"


def site_packages():
    """The nvidia/ folders of this Python, of an active environment, and of the system."""
    folders = list(sys.path)
    if os.environ.get("VIRTUAL_ENV"):
        folders += glob.glob(os.path.join(os.environ["VIRTUAL_ENV"], "lib/python3*/site-packages"))
    return [os.path.join(f, "nvidia") for f in folders if os.path.isdir(os.path.join(f, "nvidia"))]


def candidates(root):
    """Lists of folders that may together be a toolkit, best first."""
    wheels = [sorted(glob.glob(os.path.join(n, "*"))) for n in site_packages()]
    flat = [folder for group in wheels for folder in group if os.path.isdir(folder)]
    if root:
        inner = sorted(f for f in glob.glob(os.path.join(root, "*")) if os.path.isdir(os.path.join(f, "include")))
        return [[root] + inner + flat]
    single = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    if nvcc:
        single.append(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))))
    single.append("/usr/local/cuda")
    return [[s] + flat for s in single if s and os.path.isdir(s)] + ([flat] if flat else [])


def first(folders, names):
    for folder in folders:
        for name in names:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return path
    return ""


def defined(path, name):
    """The number that the header defines the name as; 0 without."""
    try:
        with open(path, encoding="utf-8", errors="replace") as header:
            found = re.search(r"#\s*define\s+" + name + r"\s+(\d+)", header.read())
    except OSError:
        found = None
    return int(found.group(1)) if found else 0


def too_old(runtime, cudnn):
    """A sentence with both numbers if one of these headers is older than what the backend is written for."""
    cuda = defined(runtime, "CUDART_VERSION")
    found = {"CUDA": ((cuda // 1000, cuda % 1000 // 10), OLDEST_CUDA, runtime)}
    version = os.path.join(os.path.dirname(cudnn), "cudnn_version.h")
    found["cuDNN"] = ((defined(version, "CUDNN_MAJOR"), defined(version, "CUDNN_MINOR")), OLDEST_CUDNN, version)
    for name, (has, needs, path) in found.items():
        if has < needs:
            return f"{name} {has[0]}.{has[1]} in {path}, and {needs[0]}.{needs[1]} or newer is needed"
    return ""


def look(folders):
    """(nvcc, include folders, library folders, cudart, reason)"""
    nvcc = first(folders, ["bin/nvcc"])
    cudart = first(folders, ["lib64/libcudart_static.a", "lib/libcudart_static.a"])
    includes, missing, paths = [], [], {}
    for header in HEADERS:
        path = first(folders + ["/usr"], ["include/" + header, "include/x86_64-linux-gnu/" + header])
        paths[header] = path
        if not path:
            missing.append(header)
        elif os.path.dirname(path) not in includes and not path.startswith("/usr/include"):
            includes.append(os.path.dirname(path))
    libraries = [os.path.join(f, lib) for f in folders for lib in ("lib64", "lib")]
    libraries = [path for path in libraries if os.path.isdir(path)]
    reason = ""
    if not nvcc:
        reason = "no nvcc" + WHERE_NONE
    elif missing:
        reason = "no " + ", ".join(missing) + " beside " + nvcc
    elif not cudart:
        reason = "no libcudart_static.a beside " + nvcc
    else:
        reason = too_old(paths["cuda_runtime_api.h"], paths["cudnn_graph.h"])
    return nvcc, ":".join(includes), ":".join(dict.fromkeys(libraries)), cudart, reason


def library(name):
    """Packages of Python before toolkits: what came with PyTorch fits the driver of the machine."""
    folders = [f for group in reversed(candidates("")) for f in group]
    return first(folders, ["lib64/" + name, "lib/" + name])


def main():
    if sys.argv[1:2] == ["--library"]:
        print(library(sys.argv[2]))
        return
    root = sys.argv[1] if len(sys.argv) > 1 else ""
    where = "in " + root if root else "on PATH, in CUDA_HOME or in /usr/local/cuda"
    best = ("", "", "", "", "no nvcc " + where + WHERE_NONE)
    found = [look(folders) for folders in candidates(root)]
    for result in found:
        if not result[4]:
            best = result
            break
    else:
        for result in found:
            if result[0]:
                best = result
                break
    print("\n".join(best))


if __name__ == "__main__":
    main()
