#!/usr/bin/env python3
"""Makes tests/golden/{transforms,colors,rand_augment}.safetensors: images through torchvision's transforms.v2.

    python3 tests/golden/make_transforms.py            # writes the files beside this script
    python3 tests/golden/make_transforms.py --check    # computes them and compares with the files

A case has x u8 [H, W, 3] and mask u8 [H, W] (255: ignored), and what becomes of them, y and y_mask: v2.Resize
(bilinear with antialiasing; a mask's nearest) unless resize is -2 (each image's own size), v2.RandomCrop with
pad_if_needed (fill 0, a mask's 255), v2.RandomHorizontalFlip. The random choices are the loader's: words of
fri_philox(seed ^ 0x6c6f61646572, 2 * epoch + 1, index), where v[0] and v[1] are the crop's row and column as shares of
their ranges and the top bit of v[2] mirrors. i64 parameters: size (2), resize (2), padding, seed, epoch, index.

A case of colors has x u8 [H, W, 3 or 1], what ColorJitter's transform makes of it as floats in f64, y f32 in 0..1, the
four options as amount (f64), and seed, epoch, index. With r of stream 2 * epoch + 1 at 2^60 + 2 * index the factors are
at shares r / 2^32 of their ranges; r of the counter behind it draws the order, the last of four first, from what is
left, where the last takes the place of what was drawn.

A case of rand_augment has x u8 [H, W, 3 or 1], what v2.RandAugment's ops make of it as bytes, y, and i64 ops,
magnitude, seed, epoch, index. With r of stream 2 * epoch + 1 at 2^62 + 16 * index + i the i-th op is number
14 * r[0] >> 32 of its table, and a magnitude that has a sign is negative where the top bit of r[1] is 0."""

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
# name, channels, brightness, contrast, saturation, hue
COLORS = [("brightness", 3, 0.4, 0, 0, 0), ("contrast", 3, 0, 0.6, 0, 0), ("saturation", 3, 0, 0, 1.5, 0),
          ("hue", 3, 0, 0, 0, 0.5), ("all", 3, 0.4, 0.4, 0.4, 0.1), ("gray", 1, 0.3, 0.5, 0.5, 0.2)]


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


def color(number, kind, draw):
    name, channels, *amount = kind
    seed, epoch, index = 20 * number + draw, draw // 2, 5 * draw + 1
    image = np.random.default_rng([number, draw]).integers(0, 256, (9, 11, channels)).astype(np.uint8)
    image[0, :, :] = image[0, :, :1]  # grays, black, white, and pure colors
    image[1, :2], image[1, 2:4] = 0, 255
    for c in range(channels):
        image[2, c], image[2, c, c] = 0, 255
    at = np.array([2**60 + 2 * index, 2**60 + 2 * index + 1], dtype=np.uint64)
    share, draws = philox(seed ^ 0x6C6F61646572, 2 * epoch + 1, at)
    left, order = [0, 1, 2, 3], []
    for n in (4, 3, 2, 1):
        k = int(draws[n - 1]) * n >> 32
        order.append(left[k])
        left[k] = left[n - 1]
    jitter = v2.ColorJitter(*amount)
    params = {"fn_idx": torch.tensor(order)}
    for k, option in enumerate(("brightness", "contrast", "saturation", "hue")):
        span = getattr(jitter, option)
        params[option + "_factor"] = None if span is None else span[0] + (span[1] - span[0]) * int(share[k]) / 2**32
    x = torch.from_numpy(image).permute(2, 0, 1).to(torch.float64) / 255
    y = jitter.transform(tv_tensors.Image(x), params).as_subclass(torch.Tensor).permute(1, 2, 0)
    return f"{name}_{draw}", {"x": torch.from_numpy(image), "y": y.to(torch.float32).contiguous(),
                              "amount": torch.tensor(amount, dtype=torch.float64), "seed": torch.tensor([seed]),
                              "epoch": torch.tensor([epoch]), "index": torch.tensor([index])}


def drawn(seed, epoch, index, i):
    r = philox(seed ^ 0x6C6F61646572, 2 * epoch + 1, np.array([2**62 + 16 * index + i], dtype=np.uint64))[0]
    return int(r[0]) * 14 >> 32, -1 if int(r[1]) >> 31 == 0 else 1


def augmented(name, seed, index, ops, magnitude, channels, size=(19, 26), ends=False):
    h, w = size
    augment = v2.RandAugment(ops, magnitude)
    noise = np.random.default_rng([seed, index])
    y, x = np.mgrid[:h, :w]
    base = np.stack([200 * y / h + 20, 230 * x / w, 127 + 60 * np.sin(0.9 * y + 0.7 * x)][:channels], axis=-1)
    image = np.clip(base + noise.integers(-20, 21, (h, w, channels)), 10, 240).astype(np.uint8)
    image[2:6] = 240 if size[0] > 19 else image[2:6]
    if ends:
        image[0, :3], image[1, :3] = 0, 255
    out = tv_tensors.Image(torch.from_numpy(image).permute(2, 0, 1).contiguous())
    for i in range(ops):
        which, sign = drawn(seed, 1, index, i)
        op, (magnitudes, signed) = list(augment._AUGMENTATION_SPACE.items())[which]
        values = magnitudes(augment.num_magnitude_bins, h, w)
        value = float(values[magnitude]) * (sign if signed else 1) if values is not None else 0.0
        out = augment._apply_image_or_video_transform(out, op, value, augment.interpolation, augment._fill)
    ints = lambda v: torch.tensor([v], dtype=torch.int64)
    y = out.as_subclass(torch.Tensor).permute(1, 2, 0).clone().contiguous()
    return name, {"x": torch.from_numpy(image), "y": y, "ops": ints(ops), "magnitude": ints(magnitude),
                  "seed": ints(seed), "epoch": ints(1), "index": ints(index)}


def augmentations():
    """Each op with each sign, alone; then some of several ops."""
    for which in range(14):
        for k, sign in enumerate((-1, 1)):
            index = next(i for i in range(10000) if drawn(3, 1, i, 0) == (which, sign))
            for magnitude, channels in ((9, 3), (30 - 7 * k, 3), (17, 1)):
                size = (41, 52) if which == 13 else (19, 26)  # equalize: several pixels a level, many of the highest
                yield augmented(f"op{which}_{k}_{magnitude}_{channels}", 3, index, 1, magnitude, channels, size,
                                which == 11)  # solarize: a level at its threshold
    for n, (ops, magnitude) in enumerate(((2, 9), (3, 0), (5, 14), (16, 4))):
        yield augmented(f"several_{n}", 10 + n, n, ops, magnitude, 3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    files = {"transforms": [one(n, shape, draw) for n, shape in enumerate(SHAPES) for draw in range(DRAWS)],
             "colors": [color(n, kind, draw) for n, kind in enumerate(COLORS) for draw in range(DRAWS)],
             "rand_augment": list(augmentations())}
    faults = []
    for name, cases in files.items():
        tensors = {f"{case}.{field}": t for case, fields in cases for field, t in fields.items()}
        path = os.path.join(HERE, f"{name}.safetensors")
        if asked.check:
            faults += check(SimpleNamespace(name=name, tensors=tensors, cases=[case for case, _ in cases]), path)
        else:
            save_file(tensors, path, metadata={"cases": " ".join(case for case, _ in cases)})
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
