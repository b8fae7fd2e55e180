#!/usr/bin/env python3
"""Makes tests/fuzz/seeds: small files of each format, from which the fuzzer starts. Needs Pillow and torch."""
import gzip
import io
import json
import os
import struct
import tarfile
import zipfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
STRIDE = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2, "U8": 1, "I8": 1, "BOOL": 1}


def put(target, name, data):
    folder = os.path.join(HERE, "seeds", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def safetensors(tensors, metadata):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape) in tensors.items():
        n = STRIDE[dtype]
        for d in shape:
            n *= d
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + n]}
        data += bytes(i % 7 for i in range(n))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def record(**more):
    r = {"format": "frugal training state", "version": 1, "step": "7", "epoch": "1", "model": "small",
         "schedule": {"kind": "cosine", "lr": 0.1, "warmup": "1", "total": "9", "step_size": "3", "gamma": 0.5},
         "random": {"seed": "18446744073709551615", "next_stream": "12"},
         "settings": {"seed": "1", "batch_size": "5"}, "numbers": {"sum": 1.25}}
    r.update(more)
    return json.dumps(r, separators=(",", ":"))


FULL = record(optimizer={"name": "sgd", "steps": "7"}, scaler={"scale": 65536, "growth_tracker": "3"},
              loader={"epoch": "1", "batch": "2", "batches": "2"})


def state(text, **more):
    tensors = {"model.weight": ("F32", [2, 3]), "model.bias": ("F32", [2]),
               "optimizer.weight.momentum_buffer": ("F32", [2, 3]), "checksum": ("U8", [4])}
    for name, what in more.items():
        tensors[name.replace("__", ".")] = what
    checksum = tensors.pop("checksum")
    return safetensors({**tensors, "checksum": checksum}, {"frugal.state": text})


def idx(count, height, width, zipped):
    images = struct.pack(">4I", 0x803, count, height, width) + bytes(i % 256 for i in range(count * height * width))
    labels = struct.pack(">2I", 0x801, count) + bytes(i % 10 for i in range(count))
    if zipped:
        images, labels = gzip.compress(images, mtime=0), gzip.compress(labels, mtime=0)
    total = len(images) + len(labels)
    assert len(images) < total + 1
    return struct.pack(">H", len(images)) + images + labels


def pictures():
    from PIL import Image
    for mode in ("RGB", "L", "CMYK", "P", "RGBA", "LA", "1", "I;16"):
        picture = Image.new("RGB", (7, 5))
        picture.putdata([(i * 7 % 256, i * 11 % 256, i * 13 % 256) for i in range(35)])
        if mode == "I;16":
            picture = Image.frombytes("I;16", (7, 5), bytes(i % 256 for i in range(70)))
        else:
            picture = picture.convert(mode)
        name = mode.lower().replace(";", "")
        for form, options in (("PNG", {}), ("JPEG", {"progressive": False}), ("JPEG", {"progressive": True})):
            out = io.BytesIO()
            try:
                picture.save(out, form, **options)
            except OSError:
                continue  # this mode has no such form
            put("image", f"{name}{'_progressive' if options.get('progressive') else ''}.{form.lower()}", out.getvalue())


def tar(form, files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as shard:
        for name, data in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            shard.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def shards():
    with open(os.path.join(HERE, "seeds", "image", "l.png"), "rb") as file:
        image = file.read()
    labelled = [("0.cls", b"1"), ("0.png", image), ("1.png", image), ("1.cls", b"0\n")]
    put("tar", "classes", tar(tarfile.USTAR_FORMAT, labelled))
    put("tar", "folders", tar(tarfile.GNU_FORMAT, [("a/0.png", image), ("b/" + "k" * 110 + ".png", image)]))
    put("tar", "pax", tar(tarfile.PAX_FORMAT, [("a/" + "\u00e9" * 60 + ".png", image)]))
    images = [[512, 90, 3, "a/0.png"], [2048, 7, -1, "b/1.jpg"]]
    index = {"format": "frugal tar index 1", "bytes": 10240, "changed": "1.5", "images": images}
    put("tar", "index", json.dumps(index, separators=(",", ":")).encode())


def torch_files():
    """Files of torch.save: plain state dicts of all kinds, and other files."""
    import torch
    from collections import OrderedDict, defaultdict

    class Code:
        def __reduce__(self):
            return os.system, ("true",)

    def saved(name, value, **options):
        out = io.BytesIO()
        torch.save(value, out, **options)
        put("torch", name, out.getvalue())
        return out.getvalue()

    whole = torch.arange(12.0)
    m = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    with torch.no_grad():
        for t in m.state_dict().values():
            t.copy_(torch.arange(t.numel()).reshape(t.shape))
    module = saved("module", m.state_dict())
    saved("types", {"part": whole[4:10].reshape(2, 3), "half": torch.tensor([1.5, -2.0], dtype=torch.float16),
                    "count": torch.tensor(7), "none": torch.zeros(2, 0), "flag": torch.tensor([True, False])})

    w, frozen = torch.nn.Parameter(whole[:6].reshape(2, 3)), torch.nn.Parameter(whole[6:8], requires_grad=False)
    frozen._no_weight_decay = True
    kinds = [("w", w), ("frozen", frozen), ("buffer", torch.nn.Buffer(whole[8:])), ("plain", whole[:2])]
    for protocol in 2, 3, 4, 5:
        saved(f"ordered{protocol}", OrderedDict(kinds), pickle_protocol=protocol)
        saved(f"default{protocol}", defaultdict([None, None, None, None, list, torch.Tensor][protocol], kinds),
              pickle_protocol=protocol)
        saved(f"module{protocol}", m.state_dict(keep_vars=True), pickle_protocol=protocol)
    put("torch", "trailing", module + b"bytes after the archive" * 9)
    out = io.BytesIO(module)
    with zipfile.ZipFile(out, "a") as archive:
        archive.comment = b"a comment"
    put("torch", "comment", out.getvalue())
    torch.serialization.set_crc32_options(False)
    saved("no_sums", dict(kinds))
    torch.serialization.set_crc32_options(True)

    saved("strided", {"turned": whole.reshape(3, 4).t()})
    saved("negated", {"w": torch.nn.Parameter(torch._neg_view(whole))}, pickle_protocol=4)
    w.scale = 0.5
    saved("attribute", {"w": w})
    saved("checkpoint", {"state_dict": m.state_dict(), "epoch": 3, "lr": 0.1})
    saved("nested", {"model": dict(kinds[1:])}, pickle_protocol=5)
    others = [None, True, 1 << 99, -300, "text", b"bytes", bytearray(b"more"), (1, 2), [whole, {1}], frozenset([2])]
    saved("values", {str(i): v for i, v in enumerate(others)}, pickle_protocol=5)
    saved("list", [whole, 0.5])
    saved("complex", {"w": torch.zeros(2, dtype=torch.complex64)})
    saved("class", torch.nn.Linear(2, 1), pickle_protocol=4)
    saved("code", {"a": Code()})
    saved("code4", OrderedDict(a=whole, b=Code()), pickle_protocol=4)
    out = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.ReLU()), out)
    put("torch", "script", out.getvalue())


def main():
    torch_files()
    put("safetensors", "empty", safetensors({}, None))
    put("safetensors", "types", safetensors({t.lower(): (t, [2, 1]) for t in STRIDE}, {"format": "pt"}))
    put("safetensors", "shapes", safetensors({"a": ("F32", []), "b": ("F32", [2, 0, 3]), "c": ("U8", [1] * 6)}, None))
    put("safetensors", "state", state(FULL))
    put("state", "full", state(FULL))
    put("state", "half", state(FULL, model__bias=("F16", [2]), optimizer__bias__momentum_buffer=("F64", [2])))
    put("state", "bare", state(record()))
    put("state", "other", state(FULL, model__weight=("F32", [3, 3])))
    put("json", "full", FULL.encode())
    put("json", "bare", record().encode())
    put("json", "odd", record(numbers={"sum": "nan", "b": "-inf"}, dataset="1 image").encode())
    put("idx", "plain", idx(3, 4, 5, False))
    put("idx", "gzip", idx(3, 4, 5, True))
    put("cifar", "ten", b"\0" + bytes([3]) + bytes(i % 256 for i in range(3072)))
    put("cifar", "hundred", b"\1" + bytes([5, 77]) + bytes(i % 256 for i in range(3072)))
    put("cifar", "gzip", b"\0" + gzip.compress(bytes(3073), mtime=0))
    pictures()
    shards()
    assert zlib.crc32(b"123456789") == 0xCBF43926


if __name__ == "__main__":
    main()
