#!/usr/bin/env python3
"""Compares tokenizing English text with Hugging Face's tokenizers and tiktoken (PyPI), in one run.

    ninja -C build/release tokenizer_ids
    V/bin/python tools/bench/vs_tokenizers.py build/release/bin/tokenizer_ids TEXT [--rounds N] [--tokens N]

V has tokenizers and tiktoken. TEXT is a file, each line of which is tokenized for itself. Vocabularies are made of it:
byte-level BPE with GPT-2's pieces, which all three read, and BERT's WordPiece. Everything runs on one thread; figures
are MB per second of CPU time, the median of alternating rounds, so that a busy machine disturbs them little. All ids
are compared.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ['RAYON_NUM_THREADS'] = '1'
os.environ['TOKENIZERS_PARALLELISM'] = 'false'

import tiktoken
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

END = '\x1e'
GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def make_bpe(lines, tokens, path):
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=tokens, initial_alphabet=alphabet))
    made.save(str(path))
    return made


def make_word_piece(lines, tokens, path):
    made = tokenizers.Tokenizer(models.WordPiece(unk_token='[UNK]'))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
    made.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=tokens, special_tokens=special))
    made.save(str(path))
    return made


def bytes_of_alphabet():
    """GPT-2's characters for bytes, by character."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{chr(b): b for b in plain}, **{chr(256 + i): b for i, b in enumerate(others)}}


def make_tiktoken(path):
    byte = bytes_of_alphabet()
    vocabulary = json.loads(path.read_text())['model']['vocab']
    ranks = {bytes(byte[c] for c in token): rank for token, rank in vocabulary.items()}
    return tiktoken.Encoding('made', pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})


def per_cpu_second(encode, size):
    begin = time.process_time()
    ids = encode()
    return size / (time.process_time() - begin) / 1e6, ids


def run_program(program, tokenizer, texts, *words):
    out = subprocess.run([program, str(tokenizer), str(texts), *words], stdout=subprocess.PIPE, check=True, text=True)
    return out.stdout


def read_ids(text):
    return [[int(i) for i in line.split()] for line in text.split('\n')[:-1]]


def measure(program, kind, path, texts, lines, rounds):
    hugging_face = tokenizers.Tokenizer.from_file(str(path))
    peers = {'tokenizers': lambda: [e.ids for e in hugging_face.encode_batch_fast(lines, add_special_tokens=False)]}
    if kind == 'BPE':
        encoding = make_tiktoken(path)
        peers['tiktoken'] = lambda: [encoding.encode_ordinary(line) for line in lines]
    size = sum(len(line.encode()) + 1 for line in lines)
    ours, figures = read_ids(run_program(program, path, texts)), {}
    for _ in range(rounds):
        speed = float(run_program(program, path, texts, '--time').split()[2])
        figures.setdefault('onnxtrain', []).append(speed)
        for name, encode in peers.items():
            speed, ids = per_cpu_second(encode, size)
            figures.setdefault(name, []).append(speed)
            if ids != ours:
                different = sum(a != b for a, b in zip(ids, ours))
                print(f'{kind}: {different} of {len(lines)} lines have other ids than {name}')
    median = {name: statistics.median(values) for name, values in figures.items()}
    for name, values in figures.items():
        print(f'{kind:10} {name:11} {median[name]:7.1f} MB/s/core  ({min(values):.1f} to {max(values):.1f})  '
              f'onnxtrain is {median["onnxtrain"] / median[name]:.1f} × as fast')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('program')
    parser.add_argument('text', type=pathlib.Path)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--tokens', type=int, default=32000)
    options = parser.parse_args()
    lines = [line for line in options.text.read_text(encoding='utf-8').split('\n') if line and END not in line]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        texts = folder / 'texts'
        texts.write_text(END.join(lines), encoding='utf-8')
        for kind, make in [('BPE', make_bpe), ('WordPiece', make_word_piece)]:
            path = folder / f'{kind}.json'
            make(lines, options.tokens, path)
            measure(options.program, kind, path, texts, lines, options.rounds)


if __name__ == '__main__':
    sys.exit(main())
