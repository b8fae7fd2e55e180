#!/usr/bin/env python3
"""Makes tests/golden/adam8.safetensors: steps of Adam with 8-bit moments, NumPy and f64.

    python3 tests/golden/make_8bit.py                   # writes the file beside this script
    python3 tests/golden/make_8bit.py --check          # computes it and compares with the file
    python3 tests/golden/make_8bit.py --bitsandbytes   # runs Adam8bit over the same gradients

The formula is that of bitsandbytes (Dettmers et al. 2021, arXiv 2110.02861): elements in memory order form blocks of
256; a moment is map[code] * absmax[block]; a step decodes, does AdamW's update, and encodes the new moments by
the nearest value of the map after division by the block's new largest magnitude. Parameters below 4096 elements keep
f32 moments. The signed map serves the first moment, the unsigned one the second.

A case "<case>.<field>" has p (before), g0 g1 ... (one gradient per step), lr beta1 beta2 eps weight_decay steps, and
afterwards p_after, m_code v_code (u8), m_absmax v_absmax; a case in f32 has m_after and v_after instead of the latter
four. "maps.signed" and "maps.unsigned" are the two maps.

No f32 implementation can agree on the code of a value that lies on the border between two codes, so gradients that
would put one nearer than MARGIN to a border are drawn again: every correct implementation has exactly these codes."""

import argparse
import os
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
BLOCK, LEAST = 256, 4096
MARGIN, ABSOLUTE_MARGIN = 2e-5, 2e-7  # relative to the value; near 0 relative to the block's scale


def dynamic_map(signed):
    """bitsandbytes.functional.create_dynamic_map(signed), 7 exponent bits of 8, in f64."""
    values = [0.0, 1.0]
    for i in range(7):
        edges = np.linspace(0.1, 1.0, 2 ** (i if signed else i + 1) + 1)
        means = 10.0 ** (i - 6) * (edges[:-1] + edges[1:]) / 2
        values += list(means) + (list(-means) if signed else [])
    assert len(values) == 256
    return np.sort(np.array(values))


MAPS = dynamic_map(True), dynamic_map(False)


def blocks_of(x):
    padded = np.zeros(-(-len(x) // BLOCK) * BLOCK)
    padded[: len(x)] = x
    return padded.reshape(-1, BLOCK)


def encode(x, values):
    """Codes, scales, and which elements are too near to a border."""
    scale = np.abs(blocks_of(x)).max(axis=1)
    y = x / np.repeat(np.where(scale > 0, scale, 1), BLOCK)[: len(x)]
    borders = (values[:-1] + values[1:]) / 2
    code = np.searchsorted(borders, y)
    distance = np.abs(y[:, None] - borders[None, :]).min(axis=1)
    near = (distance < np.maximum(MARGIN * np.abs(y), ABSOLUTE_MARGIN)) & (y != 0)
    return code.astype(np.uint8), scale, near


def decode(code, scale, values):
    return values[code] * np.repeat(scale, BLOCK)[: len(code)]


def gradient(random, n):
    """Seven decades, and a block of zeros, as dead filters have."""
    g = random.standard_normal(n) * 10.0 ** random.uniform(-6, 1, n)
    g[2 * BLOCK : 3 * BLOCK] = 0
    return g.astype(np.float32)


def draw(random, n, moments):
    """A gradient whose moments(g) have codes that no rounding changes, these moments, and [(code, scale)]."""
    g = gradient(random, n)
    while True:
        after = moments(g.astype(np.float64))
        encoded = [encode(x, values) for x, values in zip(after, MAPS)]
        again = np.any([e[2] for e in encoded], axis=0)
        if n < LEAST or not again.any():
            return g, after, [e[:2] for e in encoded]
        g[again] = gradient(random, n)[again]


def run(name, n, steps, lr, weight_decay, **own):
    random = np.random.default_rng([ord(c) for c in name])
    p = random.standard_normal(n).astype(np.float32)
    out = {"p": p, "steps": steps, "lr": lr, **own, "weight_decay": weight_decay}
    held = [np.zeros(n) for _ in MAPS]
    p = p.astype(np.float64)

    def moments(g):
        return [own[f"beta{k + 1}"] * held[k] + (1 - own[f"beta{k + 1}"]) * g ** (k + 1) for k in (0, 1)]

    for t in range(1, steps + 1):
        g, after, encoded = draw(random, n, moments)
        out[f"g{t - 1}"] = g
        m, v = after
        p = p * (1 - lr * weight_decay)
        p = p - lr / (1 - own["beta1"] ** t) * m / (np.sqrt(v / (1 - own["beta2"] ** t)) + own["eps"])
        held = [decode(*e, values) for e, values in zip(encoded, MAPS)] if n >= LEAST else after
    out["p_after"] = p
    for letter, (code, scale), x in zip("mv", encoded, after):
        if n >= LEAST:
            out.update({f"{letter}_code": code, f"{letter}_absmax": scale})
        else:
            out[f"{letter}_after"] = x
    return out


CASES = {
    "default": dict(n=4096 + 300, steps=3, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0),
    "decay": dict(n=4096, steps=4, lr=0.02, beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.05),
    "small": dict(n=700, steps=3, lr=1e-2, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01),
}


def make():
    tensors = {"maps.signed": MAPS[0].astype(np.float32), "maps.unsigned": MAPS[1].astype(np.float32)}
    for name, options in CASES.items():
        for field, value in run(name, **options).items():
            if not isinstance(value, np.ndarray):
                value = np.array([value], dtype=np.int64 if isinstance(value, int) else np.float64)
            elif value.dtype == np.float64:
                value = value.astype(np.float32)
            tensors[f"{name}.{field}"] = value
    return tensors


def check_bitsandbytes(golden):
    import bitsandbytes
    import bitsandbytes.backends.cpu.ops as cpu
    import torch

    def nearest(x, values, scale_out, code_out, blocksize):
        rows = torch.nn.functional.pad(x, (0, -len(x) % blocksize)).reshape(-1, blocksize)
        scale = rows.abs().amax(1)
        y = (rows / scale.where(scale > 0, torch.ones(()))[:, None]).flatten()[: len(x)]
        code_out.copy_((y[:, None] - values[None, :]).abs().argmin(1))
        scale_out.copy_(scale)

    # Its CPU encoder looks up a coarse table (0 becomes 2e-5 of the scale). Its GPU kernels take the nearest value.
    cpu._quant_blockwise_fp32_direct = nearest
    for k, signed in ((0, True), (1, False)):
        theirs = bitsandbytes.functional.create_dynamic_map(signed).double().numpy()
        print(f"map {'signed' if signed else 'unsigned'}: largest difference {np.abs(theirs - MAPS[k]).max():.2g}")
    for name, o in CASES.items():
        p = torch.nn.Parameter(torch.from_numpy(golden[f"{name}.p"].copy()))
        optimizer = bitsandbytes.optim.Adam8bit(
            [p], lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"], weight_decay=o["weight_decay"]
        )
        for t in range(o["steps"]):
            p.grad = torch.from_numpy(golden[f"{name}.g{t}"].copy())
            optimizer.step()
        state = optimizer.state[p]
        line = f"{name}: p differs by {np.abs(p.detach().numpy() - golden[f'{name}.p_after']).max():.2g}"
        for letter, own in (("m", "state1"), ("v", "state2")):
            if f"{name}.{letter}_code" in golden:
                line += f", {(golden[f'{name}.{letter}_code'] != state[own].numpy()).sum()} codes of {o['n']} differ"
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    parser.add_argument("--bitsandbytes", action="store_true", help="compare with the package (not needed otherwise)")
    arguments = parser.parse_args()
    tensors = make()
    path = os.path.join(HERE, "adam8.safetensors")
    if arguments.bitsandbytes:
        check_bitsandbytes(tensors)
    elif arguments.check:
        old = load_file(path)
        same = old.keys() == tensors.keys() and all(np.array_equal(old[k], tensors[k]) for k in tensors)
        print("adam8:", "the same" if same else "differs")
        sys.exit(0 if same else 1)
    else:
        save_file(tensors, path, metadata={"cases": " ".join(CASES)})
        os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
