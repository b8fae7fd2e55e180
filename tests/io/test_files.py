#!/usr/bin/env python3
"""Files that people have: a .pth of torchvision, damaged ones, photos of 640 x 480.

Usage: test_files.py LOGITS      the helper program (tests/io/logits.c)

torchvision's resnet18 state dict, saved by torch.save, gives torchvision's logits. State dicts of torchvision and timm
(FRUGAL_DICTS=all: of every network that the library knows, otherwise of two), written with pickle protocols 2, 4 and 5,
plain and of nn.Parameter, give the parameters of the same dict in a safetensors file, to the bit. Damaged copies of
resnet18's (other bytes in the pickle and in the zip's lists, files cut off; FRUGAL_DAMAGED of them, by default 40)
load, or fail with one sentence.
Batches of photos of any size at 480 x 640 are those of torchvision's Resize((480, 640)) on bytes. Where FRUGAL_TRAINERS
names the trainers' folder, a trainer learns these photos at 480 x 640 within two thirds of the bytes it needs, in the
planned bytes; saved and resumed it ends with the weights of an unbroken run; the exported file predicts. Exits with 77
(skipped) without PyTorch or torchvision.
"""
import os
import random
import shutil
import subprocess
import sys
import tempfile

BOUND, ROUNDING = 1e-5, 1
SIZES = [(480, 640), (960, 1280), (333, 500), (1080, 1920), (200, 100), (481, 639)]


def end_to_end(trainers, folder, judge):
    """Plan, budget, save, resume, export and predict with the photos below folder/set."""
    import json

    for split, name in ("train", "two"), ("test", "one"), ("test", "two"):
        shutil.copytree(f"{folder}/set/train/one", f"{folder}/set/{split}/{name}")
    flags = (f"--width 0.35 --dataset folder --data {folder}/set --image-size 480x640 --batch-size 4 --threads 2 "
             f"--report {folder}/report.json").split()

    def trainer(*words):
        done = subprocess.run([f"{trainers}/train_mobilenet", *words], capture_output=True, text=True, check=True)
        with open(f"{folder}/report.json") as file:
            report = json.load(file)
        return done.stdout, report["memory"]["peak_reserved"], report["arena"]["reserved"]

    weights = [f"{folder}/{name}.safetensors" for name in ("whole", "resumed")]
    _, needs, _ = trainer("plan", *flags)
    budget = needs * 2 // 3
    flags += ["--memory-budget", str(budget)]
    said, peak, planned = trainer(*flags, "--steps", "4", "--export", weights[0])
    judge(f"480 x 640 pixels train in {peak} of {needs} bytes, planned {planned}, budget {budget}",
          peak == planned <= budget and "480x640 px" in said)
    trainer(*flags, "--steps", "3", "--save", f"{folder}/states")
    trainer(*flags, "--steps", "4", "--resume", f"{folder}/states", "--export", weights[1])
    whole, resumed = (open(w, "rb").read() for w in weights)
    judge("saved after 3 of 4 steps and resumed: the weights of 4 steps", whole == resumed)
    said, _, _ = trainer("predict", f"{folder}/set/test/two/1.png", "--weights", weights[1])
    judge("the exported weights predict a photo", " %  0  one" in said and " %  1  two" in said)


TORCHVISION = ([f"vgg{d}{bn}" for d in (11, 13, 16, 19) for bn in ("", "_bn")] + ["squeezenet1_1"]
               + [f"resnet{d}" for d in (18, 34, 50, 101, 152)] + [f"densenet{d}" for d in (121, 169, 201)]
               + ["efficientnet_b0", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "convnext_tiny"])
TIMM = [f"resnet{d}" for d in (18, 34, 50, 101, 152)] + [f"densenet{d}" for d in (121, 169, 201)]


def state_dicts(program, folder, judge):
    """Every way in which torch.save writes a state dict, against safetensors."""
    import torch
    import torchvision
    from collections import OrderedDict, defaultdict
    from safetensors.torch import save_file

    makers = [(f"torchvision {n}", n, lambda n=n: getattr(torchvision.models, n)(weights=None)) for n in TORCHVISION]
    try:
        import timm
        makers += [(f"timm {n}", n, lambda n=n: timm.create_model(n, pretrained=False)) for n in TIMM]
    except ImportError as e:
        print(f"timm is left out: {e}")
    if os.environ.get("FRUGAL_DICTS") != "all":
        makers = [m for m in makers if m[0] in ("torchvision resnet18", "torchvision mobilenet_v2")]
    path, out = f"{folder}/dict", f"{folder}/copy"

    def copy(name):
        done = subprocess.run([program, "copy", name, path, out], capture_output=True, text=True)
        if done.returncode != 0:
            return done.stderr.strip()[-300:]
        with open(out, "rb") as file:
            return file.read()

    for title, name, make in makers:
        model, wrong = make(), []
        with torch.no_grad():
            for t in model.state_dict().values():
                t.copy_(torch.randint(0, 99, t.shape) if t.dtype == torch.int64 else torch.rand_like(t) + 0.5)
        plain = model.state_dict()
        save_file({k: v.contiguous() for k, v in plain.items()}, path)
        expected = copy(name)
        kept = OrderedDict((k, torch.nn.Parameter(v) if v.is_floating_point() else torch.nn.Buffer(v))
                           for k, v in plain.items())
        dicts = {"plain": plain, "kept": model.state_dict(keep_vars=True), "parameters": kept,
                 "default": defaultdict(torch.Tensor, plain)}
        for protocol in 2, 4, 5:
            for kind, tensors in dicts.items():
                torch.save(tensors, path, pickle_protocol=protocol)
                got = copy(name)
                if got != expected:
                    wrong.append(f"{kind}, protocol {protocol}: {got if isinstance(got, str) else 'other bits'}")
        if isinstance(expected, str):
            wrong.append(expected)
        judge(f"{title}: {len(plain)} tensors in {3 * len(dicts)} files of torch.save equal safetensors {wrong[:2]}",
              not wrong)


def main():
    try:
        import numpy as np
        import torch
        import torchvision
        from PIL import Image
        from safetensors.torch import load_file, save_file
        from torchvision.transforms import v2
    except ImportError as e:
        print(f"[SKIP] io::files: {e}")
        return 77
    program = os.path.abspath(sys.argv[1])
    torch.manual_seed(0)
    failed = 0

    def judge(what, fine):
        nonlocal failed
        failed += not fine
        print(f"{what}: {'ok' if fine else 'FAILED'}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        model, path, given, got = torchvision.models.resnet18(weights=None).eval(), *(
            f"{folder}/{f}" for f in ("resnet18.pth", "images", "logits"))
        torch.save(model.state_dict(), path)
        images = torch.randn(1, 3, 32, 32)
        save_file({"images": images.permute(0, 2, 3, 1).contiguous()}, given)
        words = [program, "resnet18", path, given, got, "exact"]
        subprocess.run(words, check=True)
        with torch.no_grad():
            expected = model(images)
        apart = (load_file(got)["logits"] - expected).abs().max().item() / expected.abs().max().item()
        judge(f"resnet18.pth: logits {apart:.2g} of their size, bound {BOUND}", apart <= BOUND)

        state_dicts(program, folder, judge)
        size, chance, loaded, sentences, wrong = os.path.getsize(path), random.Random(7), 0, set(), []
        with open(path, "rb") as file:
            whole = file.read()
        directory = whole.rindex(b"PK\x05\x06")
        directory = int.from_bytes(whole[directory + 16:directory + 20], "little")
        pickle = whole.index(b"data.pkl"), whole.index(b"PK\x03\x04", 4)
        count = int(os.environ.get("FRUGAL_DAMAGED", "40"))
        for i in range(count):
            end, changes = size, {}
            if i % 5 == 4:
                end = chance.choice([0, 3, chance.randrange(pickle[1]), chance.randrange(size), size - 1, directory])
            else:
                low, high = [pickle, (directory, size), (0, pickle[0] + 8), pickle][i % 5]
                for _ in range(chance.choice([1, 1, 2, 8])):
                    changes[chance.randrange(low, high)] = chance.randrange(256)
            with open(path, "r+b") as file:
                for at, byte in changes.items():
                    file.seek(at)
                    file.write(bytes([byte]))
                file.truncate(end)
            done = subprocess.run(words, capture_output=True, text=True, errors="replace")
            said = done.stderr.strip()
            loaded += done.returncode == 0
            sentences.add(said.split(": ")[1] if ": " in said else said)
            if done.returncode not in (0, 1) or (done.returncode == 1 and (said.count("\n") > 0 or len(said) < 20)):
                wrong.append(f"exit status {done.returncode}: {said[-300:]}")
            with open(path, "r+b") as file:
                for at in changes:
                    file.seek(at)
                    file.write(whole[at:at + 1])
                if end < size:
                    file.seek(end)
                    file.write(whole[end:])
        for w in wrong[:5]:
            print(w)
        judge(f"{count} damaged files: {loaded} load, {count - loaded} fail with a sentence ({sorted(sentences)}), "
              f"{len(wrong)} otherwise", not wrong)

        expected = []
        os.makedirs(f"{folder}/set/train/one")
        for i, (h, w) in enumerate(SIZES):
            y, x = np.mgrid[:h, :w]
            photo = np.stack([255 * y / h, 255 * x / w, 127 + 90 * np.sin(0.05 * y + 0.07 * x)], axis=-1)
            photo += np.random.default_rng(i).integers(-30, 31, photo.shape)
            photo = np.clip(photo, 0, 255).astype(np.uint8)
            Image.fromarray(photo).save(f"{folder}/set/train/one/{i}.png")
            resize = v2.Resize((480, 640), antialias=True)
            expected.append(resize(torch.from_numpy(photo).permute(2, 0, 1)).permute(1, 2, 0))
        subprocess.run([program, "batch", f"{folder}/set", "480", "640", got], check=True)
        batch = load_file(got)["images"]
        apart = (batch.int() - torch.stack(expected).int()).abs()
        judge(f"{len(SIZES)} photos at 480 x 640: {apart.max().item()} of 255 apart at most, "
              f"{(apart == 0).float().mean().item():.4%} equal, bound {ROUNDING}",
              batch.shape == (len(SIZES), 480, 640, 3) and apart.max().item() <= ROUNDING)
        trainers = os.environ.get("FRUGAL_TRAINERS", "")
        if os.path.exists(f"{trainers}/train_mobilenet"):
            end_to_end(trainers, folder, judge)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
