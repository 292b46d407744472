"""Writes resizes.bin beside this script: pictures of black, white and random pixels with those that PyPI's Pillow makes
of them with each filter. A record is a line "channels width height" of the picture with its pixels, then for each
filter, by its number, a line "width height" with the resized pixels.
"""
import pathlib

import numpy as np
from PIL import Image

SIZES = [((37, 23), (11, 9)), ((11, 9), (37, 23)), ((23, 31), (23, 7)), ((5, 40), (40, 5)), ((16, 12), (8, 8)),
         ((64, 64), (10, 12))]


def main():
    rng = np.random.default_rng(0)
    records = b""
    for channels in (1, 3):
        for (width, height), size in SIZES:
            pixels = rng.choice([0, 0, 255, 255, 60, 190], (height, width, channels)).astype(np.uint8)
            image = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
            records += f"{channels} {width} {height}\n".encode() + pixels.tobytes()
            for number in range(6):
                resized = np.asarray(image.resize(size, Image.Resampling(number)))
                records += f"{size[0]} {size[1]}\n".encode() + resized.tobytes()
    (pathlib.Path(__file__).parent / "resizes.bin").write_bytes(records)


if __name__ == "__main__":
    main()
