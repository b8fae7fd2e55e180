#!/usr/bin/env python3
"""Ten JPEG files of all EXIF orientations become the pixels of Pillow's ImageOps.exif_transpose.

Usage: exif.py LIBRARY      the shared library, libfrugal.so

Needs Pillow; exits with 77 (skipped) without. Pillow turns the pixels that frugal decodes from a copy without EXIF, so
two decoders' rounding does not count.
"""
import ctypes
import io
import sys


class Image(ctypes.Structure):
    _fields_ = [("pixels", ctypes.POINTER(ctypes.c_uint8)), ("height", ctypes.c_int64), ("width", ctypes.c_int64),
                ("channels", ctypes.c_int64), ("rest", ctypes.c_uint8 * 256)]


def decode(lib, data):
    image = Image()
    if lib.fr_image_decode(b"x.jpg", data, ctypes.c_size_t(len(data)), ctypes.byref(image)) != 0:
        raise SystemExit(lib.fr_last_error().decode())
    size = image.height * image.width * image.channels
    out = image.width, image.height, bytes(image.pixels[:size])
    lib.fr_image_clear(ctypes.byref(image))
    return out


def main():
    try:
        from PIL import Image as Pil, ImageOps
    except ImportError as e:
        print(f"[SKIP] data::exif: {e}")
        return 77
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    lib = ctypes.CDLL(sys.argv[1])
    lib.fr_last_error.restype = ctypes.c_char_p
    failed = 0
    for k in range(10):
        orientation, mode, size = k % 8 + 1, "L" if k == 9 else "RGB", (37 + 11 * k, 53 - 4 * k)
        picture = Pil.new(mode, size)
        picture.putdata([(x * 5 + y) % 256 if mode == "L" else (x * 6 % 256, y * 4 % 256, (x + y) * 3 % 256)
                         for y in range(size[1]) for x in range(size[0])])
        exif, file, plain = Pil.Exif(), io.BytesIO(), io.BytesIO()
        exif[0x010F] = "frugal"
        exif[0x0112] = orientation
        picture.save(file, "jpeg", quality=90, progressive=k % 2 == 1, exif=exif)
        picture.save(plain, "jpeg", quality=90, progressive=k % 2 == 1)
        width, height, stored = decode(lib, plain.getvalue())
        theirs = Pil.frombytes("RGB", (width, height), stored)
        theirs.getexif()[0x0112] = orientation
        theirs = ImageOps.exif_transpose(theirs)
        width, height, ours = decode(lib, file.getvalue())
        fine = (width, height) == theirs.size and ours == theirs.tobytes()
        failed += not fine
        print(f"file {k}, orientation {orientation}, {size[0]} x {size[1]} {mode}: {'equal' if fine else 'DIFFERS'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
