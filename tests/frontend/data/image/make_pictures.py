"""Writes pictures.bin beside this script: small pictures of all forms with the pixels that PyPI's Pillow decodes, and
those of a part resized. Each record is a line "name bytes width height channels" followed by the file, the pixels and
7 × 5 pixels of the part (2, 1, 9, 7), which is cut before EXIF turns the picture.
"""
import pathlib
import sys

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "parity"))
import images  # noqa: E402

GREY = ("grey.jpg", "grey.png", "la.png", "grey16.png", "bit.png", "grey.tif", "grey16.tif", "bit.tif", "fax.tif",
        "big_endian.tif", "white.tif")


def main():
    records = b""
    scratch = HERE / "scratch.picture"
    for name, data in images.variants(images.photo(13, 9, np.random.default_rng(0))):
        scratch.write_bytes(data)
        channels = 1 if name in GREY else 3
        pixels = images.reference(scratch, channels)
        stored = images.reference(scratch, channels, upright=False)
        part = Image.fromarray(stored.squeeze(2) if channels == 1 else stored).crop((2, 1, 11, 8))
        part = np.asarray(part.resize((7, 5), Image.BILINEAR))
        head = f"{name} {len(data)} {pixels.shape[1]} {pixels.shape[0]} {channels}\n"
        records += head.encode() + data + pixels.tobytes() + part.tobytes()
    scratch.unlink()
    (HERE / "pictures.bin").write_bytes(records)


if __name__ == "__main__":
    main()
