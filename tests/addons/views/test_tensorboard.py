#!/usr/bin/env python3
"""TensorBoard's own reader prints the scalars of our event files, after a resume without the steps that were undone.

Usage: test_tensorboard.py WRITE_LOG      the helper program (tests/addons/views/write_log.c)

Needs the tensorboard package; exits with 77 (skipped) without.
"""
import os
import struct
import subprocess
import sys
import tempfile


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def main():
    try:
        import tensorboard
        from tensorboard.backend.event_processing import event_accumulator, event_file_loader
    except ImportError as e:
        print(f"[SKIP] io::tensorboard: {e}")
        return 77
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    expected = {
        "train/loss": [(i, f32(2 / i)) for i in (1, 2, 3)] + [(i, f32(2 / i + 100)) for i in (4, 5, 6)],
        "train/lr": [(i, f32(0.1)) for i in range(1, 7)],
        "train/loss_scale": [(i, 65536.0) for i in range(1, 7)],
        # Only step 2 of the first file was skipped.
        "train/skipped": [(i, 1.0 if i == 2 else 0.0) for i in range(1, 7)],
        "train/images_per_second": [(i, 250.0) for i in range(1, 7)],
        "memory/allocated": [(i, 2.0**20) for i in range(1, 7)],
        "memory/peak": [(i, 2.0**21) for i in range(1, 7)],
        "test/accuracy": [(6, 100.5)],
    }
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.abspath(sys.argv[1]), folder], check=True)
        files = sorted(os.listdir(folder))
        events = sum(len(list(event_file_loader.EventFileLoader(f"{folder}/{f}").Load())) for f in files)
        reader = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
        reader.Reload()
        found = {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
    print(f"tensorboard {tensorboard.__version__}: {len(files)} files, {events} events")
    failures = len(files) != 2 or events != (1 + 5 + 1) + (1 + 1 + 3 + 1)
    for tag in sorted(set(expected) | set(found)):
        fine = expected.get(tag) == found.get(tag)
        failures += not fine
        print(f"{tag:24} {found.get(tag)} {'ok' if fine else f'FAILED, expected {expected.get(tag)}'}")
    print(f"{len(expected)} scalars, {int(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
