#!/usr/bin/env python3
"""Compares loading of training data with that of Python programs, in one run.

    cmake --build --preset release --target loader_speed
    V/bin/python tools/bench/vs_loader.py build/release/bin/loader_speed [--folder JPEGS] [--seconds S] [--rounds N]

V has PyPI's torch, torchvision, Pillow, numpy and, if installed, simplejpeg. Images: random-resized-crop to 224 and
a flip, from JPEG files (default: made here, 500 × 375, about 110 KB). Everything runs on one thread; figures are
images per second of CPU time, the median of the rounds, so that a busy machine disturbs them little.
"""
import argparse
import io
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torchvision import io as vision_io
from torchvision.transforms import v2

WIDTH, HEIGHT, BYTES = 500, 375, 110_000


def make_jpegs(folder, count=32):
    """Shapes with texture and noise, at the quality that gives about BYTES."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    for i in range(count):
        image = np.full((HEIGHT, WIDTH, 3), 128, np.float32)
        for _ in range(10):
            distance = np.hypot(x - rng.uniform(0, WIDTH), y - rng.uniform(0, HEIGHT)) - rng.uniform(15, 140)
            image += rng.uniform(-90, 90, 3).astype(np.float32) * (distance < 0)[..., None]
        texture = rng.normal(0, 9, (HEIGHT // 2 + 1, WIDTH // 2 + 1, 3)).repeat(2, 0).repeat(2, 1)[:HEIGHT, :WIDTH]
        image += texture + rng.normal(0, 5, (HEIGHT, WIDTH, 1))
        picture, low, high = Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)), 40, 98
        while low < high:
            middle, out = (low + high + 1) // 2, io.BytesIO()
            picture.save(out, format='JPEG', quality=middle)
            low, high = (middle, high) if out.tell() <= BYTES else (low, middle - 1)
        picture.save(folder / f'{i}.jpg', quality=low)


def per_cpu_second(load, paths, seconds):
    begin, done = time.process_time(), 0
    while (spent := time.process_time() - begin) < seconds or done == 0:
        load(paths[done % len(paths)])
        done += 1
    return done / spent


def peers():
    crop = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()])
    to_tensor = v2.PILToTensor()

    def pillow(path):
        with Image.open(path) as image:
            return to_tensor(crop(image.convert('RGB')))

    def torchvision(path):
        return crop(vision_io.decode_jpeg(vision_io.read_file(str(path)), mode=vision_io.ImageReadMode.RGB))

    yield 'torch DataLoader, Pillow', pillow
    yield 'torchvision decode_jpeg', torchvision
    try:
        import simplejpeg
    except ImportError:
        return

    def simple(path):
        pixels = simplejpeg.decode_jpeg(path.read_bytes())
        return crop(torch.from_numpy(pixels).permute(2, 0, 1))

    yield 'simplejpeg', simple


class Files(torch.utils.data.Dataset):
    def __init__(self, load, paths):
        self.load, self.paths = load, paths

    def __len__(self):
        return 1 << 30

    def __getitem__(self, i):
        return self.load(self.paths[i % len(self.paths)])


def through_data_loader(load, paths, seconds):
    """Images per CPU second of a DataLoader without further processes."""
    batches = iter(torch.utils.data.DataLoader(Files(load, paths), batch_size=32))
    return 32 * per_cpu_second(lambda _: next(batches), paths, seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('program')
    parser.add_argument('--folder', type=pathlib.Path)
    parser.add_argument('--seconds', type=float, default=3)
    parser.add_argument('--rounds', type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or pathlib.Path(scratch)
        if options.folder is None:
            make_jpegs(folder)
        paths = sorted(p for p in folder.rglob('*.jpg'))
        print(f'{len(paths)} files of {sum(p.stat().st_size for p in paths) / len(paths) / 1000:.0f} KB on average')
        for _ in range(options.rounds):
            for name, words in [('onnxtrain', []), ('onnxtrain, decode scaling', ['scaling'])]:
                out = subprocess.run([options.program, str(folder), str(options.seconds), *words],
                                     stdout=subprocess.PIPE, check=True).stdout
                figures.setdefault(name, []).append(float(out))
            for name, load in peers():
                figures.setdefault(name, []).append(through_data_loader(load, paths, options.seconds))
    best = max(statistics.median(v) for k, v in figures.items() if not k.startswith('onnxtrain'))
    for name, values in figures.items():
        median = statistics.median(values)
        print(f'{name:28} {median:8.0f} images/s/core  ({min(values):.0f} to {max(values):.0f})  '
              f'{median / best:.2f} of the fastest peer')


if __name__ == '__main__':
    sys.exit(main())
