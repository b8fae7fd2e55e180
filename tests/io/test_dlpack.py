#!/usr/bin/env python3
"""PyTorch takes our tensors and we take PyTorch's, by DLPack, without a copy.

Usage: test_dlpack.py LIBRARY      the shared library, libfrugal.so

Needs PyTorch; exits with 77 (skipped) without.
"""
import ctypes
import sys

NAMES = [b"dltensor_versioned", b"dltensor"]
USED = [b"used_dltensor_versioned", b"used_dltensor"]
DTYPES = ["float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"]


def main():
    try:
        import torch
    except ImportError as e:
        print(f"[SKIP] io::dlpack: {e}")
        return 77
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    api, lib = ctypes.pythonapi, ctypes.CDLL(sys.argv[1])
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    lib.fr_tensor_data.restype = ctypes.c_void_p
    lib.fr_tensor_data.argtypes = [ctypes.c_void_p]
    lib.fr_last_error.restype = ctypes.c_char_p
    exports = [lib.fr_tensor_to_dlpack, lib.fr_tensor_to_dlpack_legacy]
    imports = [lib.fr_tensor_from_dlpack, lib.fr_tensor_from_dlpack_legacy]
    checks = failures = 0

    def check(what, fine):
        nonlocal checks, failures
        checks += 1
        failures += not fine
        if not fine:
            print(f"FAILED: {what}; {lib.fr_last_error().decode()}")

    for legacy in (0, 1):
        for index, name in enumerate(DTYPES):
            what = f"{name}, {USED[legacy].decode()[5:]}"
            ours = ctypes.c_void_p()
            shape = (ctypes.c_int64 * 3)(2, 3, 5)
            check(what, lib.fr_tensor_full(3, shape, ctypes.c_double(1), index, 0, ctypes.byref(ours)) == 0)
            managed = ctypes.c_void_p()
            check(what, exports[legacy](ours, ctypes.byref(managed)) == 0)
            address = lib.fr_tensor_data(ours)
            theirs = torch.from_dlpack(api.PyCapsule_New(managed, NAMES[legacy], None))
            lib.fr_tensor_release(ctypes.byref(ours))
            check(what, theirs.dtype == getattr(torch, name) and tuple(theirs.shape) == (2, 3, 5))
            check(what, theirs.data_ptr() == address and bool((theirs == 1).all()))
            del theirs

            theirs = torch.arange(30).reshape(2, 3, 5).to(getattr(torch, name))
            capsule = theirs.__dlpack__(max_version=(1, 0)) if not legacy else theirs.__dlpack__()
            managed = ctypes.c_void_p(api.PyCapsule_GetPointer(capsule, NAMES[legacy]))
            back = ctypes.c_void_p()
            check(what, imports[legacy](ctypes.byref(managed), ctypes.byref(back)) == 0)
            check(what, not managed)
            api.PyCapsule_SetName(capsule, USED[legacy])
            check(what, lib.fr_tensor_data(back) == theirs.data_ptr())
            lib.fr_tensor_release(ctypes.byref(back))
            check(what, bool((theirs == torch.arange(30).reshape(2, 3, 5).to(theirs.dtype)).all()))
    print(f"PyTorch {torch.__version__}: {checks} checks, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
