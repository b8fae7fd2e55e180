#!/usr/bin/env python3
"""Makes tests/golden/transforms.safetensors: images and masks through torchvision's transforms.v2.

    python3 tests/golden/make_transforms.py            # writes the file beside this script
    python3 tests/golden/make_transforms.py --check    # computes it and compares with the file, writes nothing

A case has x u8 [H, W, 3] and mask u8 [H, W] (255: ignored), and what becomes of them, y and y_mask: v2.Resize
(bilinear with antialiasing; a mask's nearest) unless resize is -2 (each image's own size), v2.RandomCrop with
pad_if_needed (fill 0, a mask's 255), v2.RandomHorizontalFlip. The random choices are the loader's: words of
fri_philox(seed ^ 0x6c6f61646572, 2 * epoch + 1, index), where v[0] and v[1] are the crop's row and column as shares of
their ranges and the top bit of v[2] mirrors. i64 parameters: size (2), resize (2), padding, seed, epoch, index."""

import argparse
import os
import sys
from types import SimpleNamespace

import numpy as np
import torch
from safetensors.torch import save_file
from torchvision import tv_tensors
from torchvision.transforms import v2

from make_golden import check
from make_models import philox

HERE = os.path.dirname(os.path.abspath(__file__))
# name, [H, W], size, resize, padding
SHAPES = [("crop", (20, 26), (12, 15), (20, 26), 0), ("padded", (14, 11), (14, 11), (14, 11), 3),
          ("shrunk", (37, 53), (20, 18), (24, 22), 0), ("enlarged", (9, 11), (18, 20), (20, 24), 2),
          ("native", (23, 31), (16, 16), (-2, -2), 0), ("native_padded", (19, 17), (18, 18), (-2, -2), 2),
          ("native_small", (9, 21), (16, 16), (-2, -2), 0), ("native_tiny", (5, 6), (16, 14), (-2, -2), 1)]
DRAWS = 3


def one(number, shape, draw):
    name, (h, w), size, resize, padding = shape
    seed, epoch, index = 10 * number + draw, draw // 2, 3 * draw + 1
    noise = np.random.default_rng([h, w, draw])
    # Slow changes and noise, so that both the place and the filter show.
    y, x = np.mgrid[:h, :w]
    base = np.stack([255 * y / h, 255 * x / w, 127 + 100 * np.sin(0.9 * y + 0.7 * x)], axis=-1)
    image = np.clip(base + noise.integers(-20, 21, (h, w, 3)), 0, 255).astype(np.uint8)
    mask = ((y // 3 + 2 * (x // 2)) % 7).astype(np.uint8)
    mask[noise.random((h, w)) < 0.1] = 255
    inputs = [tv_tensors.Image(torch.from_numpy(image).permute(2, 0, 1)), tv_tensors.Mask(torch.from_numpy(mask))]
    if resize != (-2, -2):
        inputs = v2.Resize(resize, antialias=True)(*inputs)
    r = philox(seed ^ 0x6C6F61646572, 2 * epoch + 1, np.array([index], dtype=np.uint64))[0]
    crop = v2.RandomCrop(size, padding=padding or None, pad_if_needed=True,
                         fill={tv_tensors.Image: 0, tv_tensors.Mask: 255})
    params = crop.make_params(inputs)
    top, right = inputs[0].shape[-2:]
    if params["needs_pad"]:
        left_pad, top_pad, right_pad, bottom_pad = params["padding"]
        top, right = top + top_pad + bottom_pad, right + left_pad + right_pad
    params.update(needs_crop=True, height=size[0], width=size[1], top=int(r[0]) * (top - size[0] + 1) >> 32,
                  left=int(r[1]) * (right - size[1] + 1) >> 32)
    outputs = [crop.transform(t, params) for t in inputs]
    if int(r[2]) >> 31:
        outputs = v2.RandomHorizontalFlip(p=1)(*outputs)
    ints = lambda *v: torch.tensor(v, dtype=torch.int64)
    fields = {"x": torch.from_numpy(image), "mask": torch.from_numpy(mask),
              "y": outputs[0].as_subclass(torch.Tensor).permute(1, 2, 0).contiguous(),
              "y_mask": outputs[1].as_subclass(torch.Tensor).contiguous(), "size": ints(*size), "resize": ints(*resize),
              "padding": ints(padding), "seed": ints(seed), "epoch": ints(epoch), "index": ints(index)}
    return f"{name}_{draw}", fields


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    cases = [one(n, shape, draw) for n, shape in enumerate(SHAPES) for draw in range(DRAWS)]
    tensors = {f"{case}.{field}": t for case, fields in cases for field, t in fields.items()}
    path = os.path.join(HERE, "transforms.safetensors")
    if asked.check:
        op = SimpleNamespace(name="transforms", tensors=tensors, cases=[case for case, _ in cases])
        sys.exit("\n".join(check(op, path)) or 0)
    else:
        save_file(tensors, path, metadata={"cases": " ".join(case for case, _ in cases)})


if __name__ == "__main__":
    main()
