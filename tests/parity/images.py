"""Compares decoded and resized pictures with Pillow's. Needs PyPI's Pillow, numpy and, for more kinds of
TIFF, tifffile; run by hand:

    ninja -C build/release decode_pictures
    python3 tests/parity/images.py build/release/bin/decode_pictures [FOLDER…]

Writes pictures of every format and form that Pillow can write, and takes those of the folders. Decoded pixels must be
equal (16-bit grey: to the upper byte), resized ones may differ by one level. Ends with 1 if one does not agree.
"""
import io
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image, ImageOps

SIZES = [(1, 1), (3, 2), (17, 33), (64, 48), (127, 255), (500, 375)]


def photo(width, height, rng):
    """Smooth shapes with some noise, so that compression has something to do."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / rng.uniform(3, 40) + y / rng.uniform(3, 40) + rng.uniform(0, 6)) for _ in range(4)]
    planes = [127 + 60 * waves[c] + 50 * waves[3] + rng.normal(0, 8, (height, width)) for c in range(3)]
    return Image.fromarray(np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8))


def variants(image):
    """(name, bytes) of all forms."""
    def save(picture, **options):
        out = io.BytesIO()
        picture.save(out, **options)
        return out.getvalue()

    grey, palette = image.convert("L"), image.quantize(37)
    alpha = image.copy()
    alpha.putalpha(grey)
    wide = Image.fromarray((np.asarray(grey).astype(np.uint16) * 251 + 17))
    for quality, sampling in [(75, 2), (90, 1), (95, 0), (30, 2)]:
        for progressive in (False, True):
            yield f"q{quality}s{sampling}p{progressive}.jpg", save(
                image, format="JPEG", quality=quality, subsampling=sampling, progressive=progressive)
    yield "restart.jpg", save(image, format="JPEG", restart_marker_blocks=3)
    yield "grey.jpg", save(grey, format="JPEG")
    yield "cmyk.jpg", save(image.convert("CMYK"), format="JPEG")
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        for kind in ("JPEG", "PNG", "WEBP"):
            yield f"turn{turn}.{kind}", save(image, format=kind, exif=exif)
    for name, picture in [("rgb", image), ("grey", grey), ("palette", palette), ("rgba", alpha),
                          ("la", alpha.convert("LA")), ("grey16", wide), ("bit", image.convert("1"))]:
        yield name + ".png", save(picture, format="PNG")
    for bits in (1, 2, 4):
        yield f"palette{bits}.png", save(image.quantize(2**bits), format="PNG", bits=bits)
    yield "trns.png", save(palette, format="PNG", transparency=3)
    yield "trns_rgb.png", save(image, format="PNG", transparency=(1, 2, 3))
    for name, picture in [("rgb", image), ("grey", grey), ("palette", palette), ("bit", image.convert("1")),
                          ("rgba", alpha)]:
        yield name + ".bmp", save(picture, format="BMP")
    yield "lossy.webp", save(image, format="WEBP", quality=70)
    yield "lossless.webp", save(image, format="WEBP", lossless=True)
    yield "alpha.webp", save(alpha, format="WEBP", lossless=True, exact=True)
    yield "animated.webp", save(image, format="WEBP", save_all=True, append_images=[image.rotate(180)], lossless=True)
    for interlace in (0, 1):
        yield f"i{interlace}.gif", save(palette, format="GIF", interlace=interlace)
    yield "grey.gif", save(grey, format="GIF")
    yield "trns.gif", save(palette, format="GIF", transparency=3)
    yield "animated.gif", save(palette, format="GIF", save_all=True, append_images=[palette.rotate(180)])
    deflate, wide_rgb = "tiff_adobe_deflate", np.asarray(image).astype(np.uint16) * 251 + 17
    for packing in ("raw", "tiff_lzw", deflate, "packbits", "jpeg", "zstd", "lzma"):
        yield f"rgb_{packing}.tif", save(image, format="TIFF", compression=packing)
    for name, picture in [("grey", grey), ("palette", palette), ("rgba", alpha), ("grey16", wide),
                          ("cmyk", image.convert("CMYK")), ("bit", image.convert("1"))]:
        yield name + ".tif", save(picture, format="TIFF", compression=deflate)
    yield "fax.tif", save(image.convert("1"), format="TIFF", compression="group4")
    for turn in (3, 6):
        yield f"turn{turn}.tif", save(image, format="TIFF", tiffinfo={274: turn})
    yield "pages.tif", save(image, format="TIFF", save_all=True, append_images=[image.rotate(180)])
    try:
        import tifffile
    except ImportError:
        return
    for name, pixels, options in [
            ("tiles", np.asarray(image), {"tile": (16, 32)}),
            ("planes", np.asarray(image), {"planarconfig": "separate"}),
            ("big_endian", np.asarray(grey), {"byteorder": ">"}), ("big", np.asarray(image), {"bigtiff": True}),
            ("white", 255 - np.asarray(grey), {"photometric": "miniswhite"}),
            ("wide_rgb", wide_rgb, {"byteorder": ">", "compression": "zlib"}),
            ("tiled_palette", np.asarray(palette), {"tile": (16, 16), "photometric": "palette", "colormap": (
                np.arange(768).reshape(3, 256) * 85).astype(np.uint16)})]:
        out = io.BytesIO()
        color = {"photometric": "rgb"} if pixels.ndim == 3 else {}
        if name == "planes":
            pixels = pixels.transpose(2, 0, 1).copy()
        tifffile.imwrite(out, pixels, **{**color, **options}, metadata=None)
        yield name + ".tif", out.getvalue()


def run(tool, mode, paths):
    """Yields an array, or the text of the error, for each path."""
    out = subprocess.run([tool, mode, *map(str, paths)], stdout=subprocess.PIPE, check=True).stdout
    at = 0
    for _ in paths:
        end = out.index(b"\n", at)
        words = out[at:end].decode().split(" ", 1)
        at = end + 1
        if words[0] == "ERROR":
            yield words[1]
            continue
        width, height, channels = map(int, words[1].split())
        size = width * height * channels
        yield np.frombuffer(out, np.uint8, size, at).reshape(height, width, channels)
        at += size


def reference(path, channels, upright=True):
    """What Pillow decodes, or the text of its error."""
    try:
        with Image.open(path) as image:
            image.load()
            if upright:
                image = ImageOps.exif_transpose(image)
            if image.mode.startswith("I"):
                return (np.asarray(image).astype(np.int64) >> 8).astype(np.uint8)[..., None]
            pixels = np.asarray(image.convert("RGB" if channels == 3 else "L"))
            return pixels.reshape(image.height, image.width, channels)
    except Exception as error:  # Pillow raises many kinds
        return f"{type(error).__name__}: {error}"


class Tally:
    def __init__(self):
        self.equal = self.wrong = self.both_refuse = self.only_here = 0

    def compare(self, what, mine, theirs, tolerance=0):
        if isinstance(mine, str) and isinstance(theirs, str):
            self.both_refuse += 1
        elif isinstance(theirs, str):
            print(f"{what}: decoded here alone; Pillow: {theirs}")
            self.only_here += 1
        elif isinstance(mine, str):
            print(f"{what}: refused here: {mine}")
            self.wrong += 1
        elif mine.shape != theirs.shape or np.abs(mine.astype(int) - theirs.astype(int)).max() > tolerance:
            most = np.abs(mine.astype(int) - theirs.astype(int)).max() if mine.shape == theirs.shape else "shape"
            print(f"{what}: differs by {most}, {mine.shape} and {theirs.shape}")
            self.wrong += 1
        else:
            self.equal += 1


def main():
    tool, folders = sys.argv[1], sys.argv[2:]
    decode, resize, parts = Tally(), Tally(), Tally()
    with tempfile.TemporaryDirectory() as scratch:
        paths = []
        for size in SIZES:
            for name, data in variants(photo(*size, np.random.default_rng(size[0]))):
                paths.append(pathlib.Path(scratch) / f"{size[0]}x{size[1]}_{name}")
                paths[-1].write_bytes(data)
        paths += [p for f in folders for p in sorted(pathlib.Path(f).rglob("*")) if p.is_file()]
        for path, mine in zip(paths, run(tool, "colors", paths)):
            decode.compare(path, mine, reference(path, 3 if isinstance(mine, str) else mine.shape[2]))
        rng = random.Random(0)
        for path in paths[::5]:
            try:
                with Image.open(path) as image:
                    width, height = image.size
            except OSError:
                continue
            w, h = rng.randint(1, width), rng.randint(1, height)
            x, y = rng.randint(0, width - w), rng.randint(0, height - h)
            to = rng.choice([(32, 32), (w, h), (2 * w + 1, 7), (224, 224), (1, 1)])
            mine = next(run(tool, f"box:{x},{y},{w},{h}:{to[0]}x{to[1]}", [path]))
            whole = reference(path, 3 if isinstance(mine, str) else mine.shape[2], upright=False)
            if isinstance(whole, str):
                continue
            theirs = Image.fromarray(whole.squeeze(2) if whole.shape[2] == 1 else whole).crop((x, y, x + w, y + h))
            theirs = np.asarray(theirs.resize(to, Image.BILINEAR))
            theirs = theirs[..., None] if theirs.ndim == 2 else theirs
            resize.compare(f"{path} {x},{y},{w},{h} to {to}", mine, theirs, 1)
            same = next(run(tool, f"box:{x},{y},{w},{h}:{w}x{h}", [path]))
            parts.compare(f"{path} part {x},{y},{w},{h}", same, whole[y:y + h, x:x + w])
    for name, tally in [("decoded", decode), ("resized", resize), ("decoded in part", parts)]:
        print(f"{name}: {tally.equal} agree, {tally.wrong} do not, {tally.both_refuse} refused by both, "
              f"{tally.only_here} by Pillow alone")
    return int(decode.wrong + resize.wrong + parts.wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
