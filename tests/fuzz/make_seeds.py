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
import tarfile
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


def pictures(*endings):
    """Those of tests/frontend/data/image/pictures.bin with these endings: see make_pictures.py there."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../frontend/data/image/pictures.bin')
    with open(path, 'rb') as file:
        while line := file.readline():
            name, size, width, height, channels = line.split()
            content = file.read(int(size))
            file.read((int(width) * int(height) + 7 * 5) * int(channels))
            if name.decode().lower().endswith(endings):
                yield name.decode(), content


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


def wav():
    for channels, width, rate in [(1, 2, 8000), (2, 2, 4000), (1, 1, 11025), (1, 3, 48000)]:
        buffer = io.BytesIO()
        with wave.open(buffer, 'wb') as file:
            file.setparams((channels, width, rate, 0, 'NONE', ''))
            file.writeframes(bytes(i * 7 % 256 for i in range(channels * width * 90)))
        yield f'{channels}x{width}', buffer.getvalue()

def flac():
    yield 'sine', base64.b64decode(
        'ZkxhQwAAACIQABAAAADrAADrAfQA8AAAASyinpymj/n92BJBmWrPwkayhAAAKCAAAAByZWZlcmVuY2UgbGliRkxBQyAxLjQuMyAy'
        'MDIzMDYyMwAAAAD/+HQIAAErUUYAAAveFpIfEbQeVTWeN4EAmGGHHHkErVqqqyy3388YYYcceQStWqqrLLffzxhhhxx5BK1aqqss'
        't9/PGGGHHHkErVqqqyy3388YYYcceQStWqqrLLffzxhhhxx5BK1aqqsst9/PGGGHHHkErVqqqyy3388YYYcceQStWqqrLLffzxhh'
        'hxx5BK1aqqsst9/PGGGHHHkErVqqqyy3388YYYcceQStWqqrLLffzxhhhxx5BK1aqqsst9/PGGGHHHkErVqqqyy3388YYYcceQSt'
        'WqqrLLffzxhhhxx5BK1aqqsstgKG')  # 300 samples at 8 kHz


def safetensors():
    def pack(header, size):
        text = json.dumps(header).encode()
        return struct.pack('<Q', len(text)) + text + bytes(i % 251 for i in range(size))
    x = {'dtype': 'F32', 'shape': [3, 2], 'data_offsets': [0, 24]}
    y = {'dtype': 'I64', 'shape': [3], 'data_offsets': [24, 48]}
    yield 'two', pack({'x': x, 'y': y, '__metadata__': {'format': 'pt'}}, 48)
    yield 'half', pack({'x': {'dtype': 'F16', 'shape': [2, 2], 'data_offsets': [0, 8]}}, 8)
    yield 'bf16', pack({'x': {'dtype': 'BF16', 'shape': [4], 'data_offsets': [0, 8]}}, 8)


def jsonl():
    yield 'numbers', b'{"a": 1, "b": 2.5, "kind": "cat"}\n{"a": 3, "b": -4e-1, "kind": "dog"}\n'
    yield 'lists', b'{"x": [1, 2, 3], "y": 0}\n{"x": [4, 5, 6], "y": 1}\n'
    yield 'texts', '{"text": "a \\"b\\" \\u00e4\U0001f600", "label": "x"}\n{"text": "", "label": "y"}\n'.encode()
    yield 'nested', b'{"x": [[1, 2], [3, 4]], "ok": true, "y": null}\n{"x": [[1, 2], [3, 5]], "ok": false, "y": 1}\n'


def json_files():
    for name, content in jsonl():
        yield name, content
        yield name + '_array', b'[' + content.strip().replace(b'\n', b',\n') + b']'
    yield 'parallel', b'{"x": [[1, 2], [3, 4], [5, 6]], "y": [0, 1, 0]}'
    yield 'named', b'{"data": [{"a": 1, "y": 0}, {"a": 2, "y": 1}]}'


def tars():
    def pack(members, **options):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode='w', **options) as file:
            for name, content in members:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))
        return buffer.getvalue()
    png = next(pictures('rgb.png'))[1]
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        yield f'pictures{form}', pack([('0.png', png), ('0.cls', b'1'), ('1.png', png), ('1.cls', b'0')], format=form)
    yield 'texts', pack([('a/0.txt', b'some text'), ('b/1.txt', b'other')])
    yield 'objects', pack([('0.json', b'{"a": 1, "y": 2}'), ('1.json', b'{"a": 2, "y": 1}')])
    array = saved(np.save, np.ones((2, 2), 'f4'))
    yield 'arrays', pack([('0.npy', array), ('0.cls', b'1'), ('1.npy', array), ('1.cls', b'0')])


def gzips():
    yield 'table', gzip.compress(b'x,y\n1,2\n3,4\n', mtime=0)
    yield 'long', gzip.compress(b'x,y\n' + b'1,2\n' * 3000, mtime=0)
    yield 'two', gzip.compress(b'x,y\n', mtime=0) + gzip.compress(b'1,2\n', mtime=0)


def zstds():
    """Frames of one block, stored or repeated."""
    def frame(content, repeat=None):
        size = len(content) * (repeat or 1)
        block = struct.pack('<I', size << 3 | (2 if repeat else 0) | 1)[:3]
        return struct.pack('<IBH', 0xfd2fb528, 0x60, size - 256) + block + content
    table = b'x,y\n' + b'1,2\n' * 80
    yield 'stored', frame(table)
    yield 'two', frame(table) + frame(b'1,2\n' * 70)
    yield 'repeated', frame(table) + frame(b'1', 300)


def texts():
    yield 'plain', b'one line\nand another\n\na paragraph'
    yield 'wide', 'na\u00efve \u6771\u4eac \U0001f600\r\n'.encode()


def tokens():
    yield 'plain', struct.pack('<8H', *range(8))
    yield 'llmc', struct.pack('<256i', 20240520, 1, 8, *[0] * 253) + struct.pack('<8H', *range(8))
    yield 'llmc4', struct.pack('<256i', 20240801, 7, 8, *[0] * 253) + struct.pack('<8I', *range(8))


def shard_info():
    yield 'all', json.dumps({
        'dtype': 'uint16', 'tokens': 8, 'vocabulary': 300, 'max_id': 7, 'end_of_text': 5, 'documents': 2, 'bytes': 30,
        'tokenizer': 'tokenizer.json', 'sha256': '00' * 32}).encode()


def class_maps():
    yield 'names', b'cat\ndog\n\nbird\n'
    yield 'pairs', b'cat,1\n"a, b",0\n'


def tokenizer_files():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../frontend/data/tokenizers')
    for name in sorted(os.listdir(folder)):
        if name.endswith('.json') and name != 'cases.json':
            with open(os.path.join(folder, name), 'rb') as file:
                yield name, file.read()
    yield 'words', json.dumps({
        'model': {'type': 'WordLevel', 'vocab': {'[UNK]': 0, 'a': 1}, 'unk_token': '[UNK]'},
        'normalizer': {'type': 'Sequence', 'normalizers': [
            {'type': 'Replace', 'pattern': {'Regex': ' {2,}'}, 'content': ' '}, {'type': 'NFKD'}]},
        'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': '(?s).'}, 'behavior': 'Isolated', 'invert': False},
        'added_tokens': [{'id': 2, 'content': '[MASK]', 'special': True, 'lstrip': True}]}).encode()


def vocabularies():
    yield 'bert', b'[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\ncab\n##b\n##c\n'


def merges():
    yield 'two', b'#version: 0.2\na b\nab c\n'


def sentence_pieces():
    """Unigram and BPE models as their protocol buffers: pieces, the kind of model, a normalizer of no rules."""
    def field(number, content):
        return bytes([number << 3 | 2]) + bytes([len(content)]) + content

    def piece(text, score, kind):
        return field(1, field(1, text.encode()) + b'\x15' + struct.pack('<f', score) + bytes([3 << 3, kind]))
    pieces = [piece('<unk>', 0, 2), piece('<s>', 0, 3), piece('</s>', 0, 3), piece('\u2581', -1, 1), piece('a', -2, 1),
              piece('b', -3, 1), piece('ab', -2.5, 1), piece('\u2581a', -2, 1)]
    for name, kind in (('unigram', 1), ('bpe', 2)):
        yield name, b''.join(pieces) + field(2, bytes([3 << 3, kind])) + field(3, field(1, b'identity'))


def preprocess():
    yield 'all', json.dumps({
        'normalize': '0.5,0.5,0.5/0.2,0.2,0.2', 'inputs': {'x': {'columns': ['image'], 'layout': [3, 4, 4]}},
        'label': ['label'], 'classes': ['cat', 'dog'], 'loss': 'cross_entropy', 'output': 'probs'}).encode()
    yield 'little', b'{"normalize": "unit"}'


def chat_templates():
    expressions = (
        "1 + 2 * 3 ** 2 // 4 % 5 - 6 / 7", "1 < 2 <= 3 != 4", "'a' in messages[0].content", "not bos_token or x and y",
        "messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | tojson(indent=2)",
        "messages[::-1][1:]['content'] ~ {'k': [1, (2,)]}", "'%s %5.2f' % ('a', 2.5)", "'{0:>5} {x!r}'.format(1, x=2)",
        "messages[1].content.strip().split(none, 1) | join('-') | upper", "range(9) | batch(2) | sum(start=[]) | sort",
        "messages | groupby('role') | first | dictsort",
        "'\\u00e9\\x41\\n' | title | indent(3, true) | replace('a', 'bb')",
        "strftime_now('%d %B %Y')", "dict(a=1, **{'b': 2}).items() | list", "-2.5 | round(1, 'floor') | abs | int",
        "raise_exception('no') if nothing is defined else 'x' is string")
    for index, expression in enumerate(expressions):
        yield f'expression{index}', ('{{ ' + expression + ' }}').encode()
    statements = (
        "{%- for m in messages if m.role != 'tool' %}{{ loop.index }}{{ loop.previtem.role }}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% else %}none{% endfor -%}",
        "{% macro f(a, b=1) %}{{ a }}{{ caller() if caller }}{{ varargs }}{% endmacro %}"
        "{% call f(2, 3, 4) %}x{% endcall %}",
        "{% set ns = namespace(x=[]) %}{% for t in tools %}{% set ns.x = ns.x + [t] %}{% endfor %}{{ ns.x | tojson }}",
        "{% set a, b = 1, 2 %}{% set c %}{{ a }}{% endset %}{% filter upper %}{{ c }}{% endfilter %}",
        "{% for x in [[1, [2]], [3]] recursive %}{{ loop(x) if x is iterable else x }}{% break %}{% endfor %}",
        "{% with x = 1 %}{% raw %}{{ y }}{% endraw %}{# no #}{% endwith %}{%+ if true +%}\n{% elif x %}{% endif %}")
    for index, statement in enumerate(statements):
        yield f'statement{index}', statement.encode()


def flags():
    yield 'train', b'--model\nx.onnx\n--epochs=3\n--lr\nfc=1e-2\n--lr\n1e-3\n--no-shuffle'
    yield 'plan', b'plan\n--model\nx.onnx\n--batch_size\n16\n--shuffle\nfalse'
    yield 'lines', b'--model x.onnx\n--epochs 3\n# a comment\n\n--shuffle\n'
    yield 'file', b'--flagfile\na.flags\n'
    yield 'help', b'train\n--help'


def main(folder):
    def pictures_of(*endings):
        return lambda: pictures(*endings)
    seeds = {'model': models, 'import': models, 'passes': models, 'graph': graph, 'npy': npy, 'npz': npz, 'idx': idx,
             'csv': csv,
             'gzip': gzips, 'zstd': zstds, 'safetensors': safetensors, 'jsonl': jsonl, 'json': json_files, 'tar': tars,
             'text': texts, 'tokens': tokens, 'shard_info': shard_info, 'class_map': class_maps,
             'jpeg': pictures_of('.jpg', '.jpeg'), 'png': pictures_of('.png'), 'webp': pictures_of('.webp'),
             'gif': pictures_of('.gif'), 'bmp': pictures_of('.bmp'), 'tiff': pictures_of('.tif'),
             'wav': wav, 'flac': flac,
             'tokenizer': tokenizer_files, 'vocabulary': vocabularies, 'merges': merges,
             'sentence_piece': sentence_pieces, 'chat_template': chat_templates,
             'preprocess': preprocess, 'flags': flags}
    for target, make in seeds.items():
        os.makedirs(os.path.join(folder, target), exist_ok=True)
        for name, content in make():
            with open(os.path.join(folder, target, name), 'wb') as file:
                file.write(content)


if __name__ == '__main__':
    main(sys.argv[1])
