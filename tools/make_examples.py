#!/usr/bin/python3
"""Makes small folders of pictures and sounds, and untrained models for them: make_examples.py FOLDER [SEED]

    digits/0 … 9        PNG files of 28 × 28        cnn.onnx
    shapes/circle …     JPEG files of 24 sizes      fcn.onnx, for pictures of any size
    images/, masks/     pairs of PNG files          unet.onnx, for sizes that are multiples of 4, and 3 classes
    sounds/sine …       WAV files of two rates      sound.onnx, for 4,000 samples

Needs python3-torch. Without Pillow (python3-pil), shapes are PNG files.
"""
import pathlib
import struct
import sys
import warnings
import wave
import zlib

import numpy as np
import torch
from torch import nn

import make_cnn
import make_digits


def write_png(path, pixels):
    """Writes u8 [height, width] or [height, width, 3]."""
    height, width = pixels.shape[:2]
    rows = b''.join(b'\0' + row.tobytes() for row in pixels)
    png = b'\x89PNG\r\n\x1a\n'
    header = struct.pack('>IIBBBBB', width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    for kind, data in [(b'IHDR', header), (b'IDAT', zlib.compress(rows)), (b'IEND', b'')]:
        png += struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    path.write_bytes(png)


def make_class_folder(folder, name):
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_digits(folder, rng):
    for i in range(1500):
        digit = i % 10
        path = make_class_folder(folder / 'digits', str(digit)) / f'{i}.png'
        write_png(path, make_digits.draw(digit, rng))


def draw_shape(rng, shape, width, height):
    """Returns the pixels and where the shape is."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    size = rng.uniform(.25, .4) * min(width, height)
    dx, dy = x - rng.uniform(size, width - size), y - rng.uniform(size, height - size)
    inside = {'circle': np.hypot(dx, dy) < size,
              'square': np.maximum(abs(dx), abs(dy)) < size * .85,
              'triangle': (dy < size * .7) & (dy > 2.4 * abs(dx) - size)}[shape]
    back, front = rng.uniform(0, 110, 3), rng.uniform(145, 255, 3)
    pixels = np.where(inside[..., None], front, back) + rng.normal(0, 12, (height, width, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8), inside


def write_jpeg(path, pixels):
    try:
        from PIL import Image
    except ImportError:
        return write_png(path.with_suffix('.png'), pixels)
    Image.fromarray(pixels).save(path, quality=90)


def write_shapes(folder, rng):
    for i in range(480):
        shape = ('circle', 'square', 'triangle')[i % 3]
        pixels, _ = draw_shape(rng, shape, 40 + 8 * (i // 3 % 6), 40 + 8 * (i // 18 % 4))
        write_jpeg(make_class_folder(folder / 'shapes', shape) / f'{i}.jpg', pixels)


def write_pairs(folder, rng):
    images, masks = make_class_folder(folder, 'images'), make_class_folder(folder, 'masks')
    for i in range(240):
        kind = i % 2
        width, height = (int(n) for n in rng.integers(36, (72, 56)))
        pixels, inside = draw_shape(rng, ('circle', 'square')[kind], width, height)
        write_png(images / f'{i}.png', pixels)
        write_png(masks / f'{i}.png', (inside * (1 + kind)).astype(np.uint8))


def write_sounds(folder, rng):
    waves = {'sine': np.sin, 'square': lambda t: np.sign(np.sin(t)), 'noise': lambda t: rng.normal(0, .5, t.shape)}
    for i in range(300):
        name, rate = list(waves)[i % 3], (8000, 16000)[i % 2]
        time = np.arange(int(rate * rng.uniform(.4, .6))) / rate
        sound = .5 * waves[name](2 * np.pi * rng.uniform(150, 900) * time) + rng.normal(0, .01, time.shape)
        with wave.open(str(make_class_folder(folder / 'sounds', name) / f'{i}.wav'), 'wb') as file:
            file.setparams((1, 2, rate, 0, 'NONE', ''))
            file.writeframes((np.clip(sound, -1, 1) * 32767).astype('<i2').tobytes())


def conv(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class Fcn(nn.Sequential):
    def __init__(self):
        super().__init__(conv(3, 16), conv(16, 32, 2), conv(32, 64, 2), conv(64, 64, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down0, self.down1, self.bottom = conv(3, 16), conv(16, 32), conv(32, 64)
        self.pool = nn.MaxPool2d(2)
        self.lift1, self.lift0 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.up1, self.up0, self.head = conv(64, 32), conv(32, 16), nn.Conv2d(16, 3, 1)

    def forward(self, x):
        fine = self.down0(x)
        coarse = self.down1(self.pool(fine))
        deep = self.bottom(self.pool(coarse))
        coarse = self.up1(torch.cat([self.lift1(deep), coarse], 1))
        return self.head(self.up0(torch.cat([self.lift0(coarse), fine], 1)))


class Sound(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv1d(1, 16, 64, 8), nn.ReLU(), nn.Conv1d(16, 32, 16, 4), nn.ReLU(),
                         nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 3))

    def forward(self, x):
        return super().forward(x.unsqueeze(1))


def export(net, sample, path, free):
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):  # the exporter would merge scales that are all ones
            nn.init.normal_(layer.weight, 1, .02)
            nn.init.normal_(layer.bias, 0, .02)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        torch.onnx.export(net.train(), sample, path, training=torch.onnx.TrainingMode.TRAINING,
                          do_constant_folding=False, opset_version=16, input_names=['x'], output_names=['y'],
                          dynamic_axes={'x': free})


def main(folder, seed=0):
    folder = pathlib.Path(folder)
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    for write in (write_digits, write_shapes, write_pairs, write_sounds):
        write(folder, rng)
    make_cnn.main(str(folder / 'cnn.onnx'), seed)
    free = {0: 'batch', 2: 'height', 3: 'width'}
    export(Fcn(), torch.randn(2, 3, 48, 64), str(folder / 'fcn.onnx'), free)
    export(UNet(), torch.randn(2, 3, 48, 64), str(folder / 'unet.onnx'), free)
    export(Sound(), torch.randn(2, 4000), str(folder / 'sound.onnx'), {0: 'batch'})


if __name__ == '__main__':
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(sys.argv[1], *map(int, sys.argv[2:]))
