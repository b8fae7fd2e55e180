#!/usr/bin/env python3
"""PyTorch takes our tensors and we take PyTorch's, by DLPack, without a copy.

Usage: test_dlpack.py LIBRARY      the shared library, libfrugal.so

Needs PyTorch; exits with 77 (skipped) without.
"""
import ctypes
import sys

NAME = b"dltensor_versioned"
USED = b"used_dltensor_versioned"
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
    checks = failures = 0

    def check(what, fine):
        nonlocal checks, failures
        checks += 1
        failures += not fine
        if not fine:
            print(f"FAILED: {what}; {lib.fr_last_error().decode()}")

    for index, name in enumerate(DTYPES):
        what = name
        ours = ctypes.c_void_p()
        shape = (ctypes.c_int64 * 3)(2, 3, 5)
        check(what, lib.fr_tensor_full(3, shape, ctypes.c_double(1), index, 0, ctypes.byref(ours)) == 0)
        managed = ctypes.c_void_p()
        check(what, lib.fr_tensor_to_dlpack(ours, ctypes.byref(managed)) == 0)
        address = lib.fr_tensor_data(ours)
        theirs = torch.from_dlpack(api.PyCapsule_New(managed, NAME, None))
        lib.fr_tensor_release(ctypes.byref(ours))
        check(what, theirs.dtype == getattr(torch, name) and tuple(theirs.shape) == (2, 3, 5))
        check(what, theirs.data_ptr() == address and bool((theirs == 1).all()))
        del theirs

        theirs = torch.arange(30).reshape(2, 3, 5).to(getattr(torch, name))
        capsule = theirs.__dlpack__(max_version=(1, 0))
        managed = ctypes.c_void_p(api.PyCapsule_GetPointer(capsule, NAME))
        back = ctypes.c_void_p()
        check(what, lib.fr_tensor_from_dlpack(ctypes.byref(managed), ctypes.byref(back)) == 0)
        check(what, not managed)
        api.PyCapsule_SetName(capsule, USED)
        check(what, lib.fr_tensor_data(back) == theirs.data_ptr())
        lib.fr_tensor_release(ctypes.byref(back))
        check(what, bool((theirs == torch.arange(30).reshape(2, 3, 5).to(theirs.dtype)).all()))
    print(f"PyTorch {torch.__version__}: {checks} checks, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
