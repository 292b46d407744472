#!/usr/bin/python3
"""Writes seeds for the fuzzing targets: DIR/TARGET/NAME.

    make_seeds.py DIR

Models are the small ones of Debian's libonnx-testdata; all other seeds are made here.
"""
import base64
import gzip
import io
import json
import os
import struct
import sys
import wave

import numpy as np

ONNX_CASES = '/usr/share/libonnx-testdata/data/node'
LARGEST_MODEL = 1500


def models():
    for case in sorted(os.listdir(ONNX_CASES)):
        path = os.path.join(ONNX_CASES, case, 'model.onnx')
        if os.path.exists(path) and os.path.getsize(path) <= LARGEST_MODEL:
            with open(path, 'rb') as file:
                yield case, file.read()


def saved(save, *arguments, **arrays):
    buffer = io.BytesIO()
    save(buffer, *arguments, **arrays)
    return buffer.getvalue()


def arrays():
    for dtype in ('f4', 'f8', 'f2', 'i8', 'u1', '?', '>i4'):
        yield dtype.strip('>?') or 'bool', np.arange(6).reshape(3, 2).astype(dtype)
    yield 'fortran', np.asfortranarray(np.ones((3, 2), 'f4'))
    yield 'scalar', np.float32(1)
    yield 'empty', np.zeros((0, 3), 'f4')


def npy():
    for name, array in arrays():
        yield name, saved(np.save, array)
    yield 'texts', saved(np.save, np.array(['cat', '\u00e4\U0001f600', '']))
    yield 'bytes', saved(np.save, np.array([b'cat', b'd', b'']))


def npz():
    for name, array in arrays():
        yield name, saved(np.savez, x=array, y=np.arange(3))
    yield 'texts', saved(np.savez, x=np.ones((3, 2), 'f4'), kind=np.array(['cat', '\u00e4\U0001f600', '']))
    yield 'deflated', saved(np.savez_compressed, image=np.zeros((3, 1, 4, 4), 'u1'), label=np.arange(3))


def idx():
    images = struct.pack('>HBBIII', 0, 8, 3, 2, 3, 3) + bytes(18)
    yield 'images', images
    yield 'packed', gzip.compress(images, mtime=0)
    yield 'floats', struct.pack('>HBBII', 0, 13, 2, 2, 2) + bytes(16)
    yield 'labels', struct.pack('>HBBI', 0, 8, 1, 4) + bytes([0, 1, 2, 1])


def csv():
    yield 'header', b'a,b,kind\n1,2.5,cat\n3,4e-1,dog\n'
    yield 'numbers', b'1,2,0\r\n3,4,1\r\n'
    yield 'quoted', b'text,label\n"a ""b"", c\nd",1\nplain,0\n'
    yield 'marked', b'\xef\xbb\xbfx,y\n1,NA\n,2\n\n'
    yield 'packed', gzip.compress(b'x,y\n1,2\n', mtime=0)
    yield 'comments', b'# made by x,,\na,b,y\n# units: m, s\n1,2,0\n3,4,1\n#\n'
    yield 'blanks', b'1.5 2 0\n# a comment of words\n2.5  4 1\n'
    yield 'counts', b'2,2,setosa,virginica\n5.1,3.5,0\n6.2,2.9,1\n'
    yield 'semicolons', b'a;b;y\n1,5;2;ja\n2,5;3;nein\n'
    yield 'separator', b'sep=|\na|y\n1|2\n'
    for encoding in ('utf-16-le', 'utf-16-be'):
        yield encoding, '\ufeffname,y\n\u00e4\U0001f600,1\nb,2\n'.encode(encoding)


def pictures():
    """The files of tests/frontend/data/image/pictures.bin: see make_pictures.py there."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../frontend/data/image/pictures.bin')
    with open(path, 'rb') as file:
        while line := file.readline():
            name, size, width, height, channels = line.split()
            yield name.decode(), file.read(int(size))
            file.read((int(width) * int(height) + 7 * 5) * int(channels))


def graph():
    yield 'mlp', b'''graph(feed %x: f32[2,4], param %fc.weight: f32[3,4], state %2 "the mean": f32[3]) {
  %3 "hidden layer": f32[2,3] = MatMul(%x, %fc.weight) {trans_a=0, trans_b=1} @"fc/gemm"
  %4: f32[] = Constant() {value=f32[](0.5)}
  %y: f32[2,3] = Add(%3, %4)
  feed %lr "learning rate" as "lr": f32[]
  %mean: f32[3], %8: f32[3] = Moments(%y, _, %lr) {alpha=0.1, axes=[0, 1], betas=[0.5, 1.0], mode="a \\"b\\""}
  return %y "logits", %mean, %8 "new mean" into %2
}
'''
    yield 'conv', b'''graph(feed %x: f32[2,3,8,8], param %w: f32[4,3,3,3]) {
  %y: f32[2,4,8,8] = Conv(%x, %w, _) {strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1}
  %z: f32[2,4,8,8] = Relu(%y)
  %c: i64[2] = Constant() {value=i64[2](1, -2)}
  %s: bf16[3] = Constant() {value=bf16[3](splat 1)}
  return %z "z"
}
'''


def sounds():
    for channels, width, rate in [(1, 2, 8000), (2, 2, 4000), (1, 1, 11025), (1, 3, 48000)]:
        buffer = io.BytesIO()
        with wave.open(buffer, 'wb') as file:
            file.setparams((channels, width, rate, 0, 'NONE', ''))
            file.writeframes(bytes(i * 7 % 256 for i in range(channels * width * 90)))
        yield f'{channels}x{width}.wav', buffer.getvalue()
    yield 'sine.flac', base64.b64decode(
        'ZkxhQwAAACIQABAAAADrAADrAfQA8AAAASyinpymj/n92BJBmWrPwkayhAAAKCAAAAByZWZlcmVuY2UgbGliRkxBQyAxLjQuMyAy'
        'MDIzMDYyMwAAAAD/+HQIAAErUUYAAAveFpIfEbQeVTWeN4EAmGGHHHkErVqqqyy3388YYYcceQStWqqrLLffzxhhhxx5BK1aqqss'
        't9/PGGGHHHkErVqqqyy3388YYYcceQStWqqrLLffzxhhhxx5BK1aqqsst9/PGGGHHHkErVqqqyy3388YYYcceQStWqqrLLffzxhh'
        'hxx5BK1aqqsst9/PGGGHHHkErVqqqyy3388YYYcceQStWqqrLLffzxhhhxx5BK1aqqsst9/PGGGHHHkErVqqqyy3388YYYcceQSt'
        'WqqrLLffzxhhhxx5BK1aqqsstgKG')  # 300 samples at 8 kHz


def preprocess():
    yield 'all', json.dumps({
        'normalize': '0.5,0.5,0.5/0.2,0.2,0.2', 'inputs': {'x': {'columns': ['image'], 'layout': [3, 4, 4]}},
        'label': ['label'], 'classes': ['cat', 'dog'], 'loss': 'cross_entropy', 'output': 'probs'}).encode()
    yield 'little', b'{"normalize": "unit"}'


def flags():
    yield 'train', b'--model\nx.onnx\n--epochs=3\n--lr\nfc=1e-2\n--lr\n1e-3\n--no-shuffle'
    yield 'plan', b'plan\n--model\nx.onnx\n--batch_size\n16\n--shuffle\nfalse'
    yield 'lines', b'--model x.onnx\n--epochs 3\n# a comment\n\n--shuffle\n'
    yield 'file', b'--flagfile\na.flags\n'
    yield 'help', b'train\n--help'


def main(folder):
    seeds = {'model': models, 'import': models, 'graph': graph, 'npy': npy, 'npz': npz, 'idx': idx, 'csv': csv,
             'picture': pictures, 'sound': sounds, 'preprocess': preprocess, 'flags': flags}
    for target, make in seeds.items():
        os.makedirs(os.path.join(folder, target), exist_ok=True)
        for name, content in make():
            with open(os.path.join(folder, target, name), 'wb') as file:
                file.write(content)


if __name__ == '__main__':
    main(sys.argv[1])
