"""Checks that runs stay within their memory budgets, on texts of all lengths and pictures of several sizes, with saves,
evaluations and the exported model.

    /usr/bin/python3 tools/bench/budgets.py --cases mlp,lenet,encoder,decoder,unet

Each case runs without a budget, then under three: the least that a refusal names, the one between that and the plan
without a budget, and that plan. The peak is the resident memory of the process above its value at start. Exits with 1
where a run fails or its peak is above its budget. Needs Debian's python3-torch.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch import nn

from program import run_json

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from make_examples import write_png  # noqa: E402

MIB = 1 << 20


def export(module, sample, path, dynamic):
    torch.onnx.export(module.eval(), sample, path, input_names=['x'], output_names=['y'], dynamic_axes={'x': dynamic},
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=14)


class Transformer(nn.Module):
    """Tokens to a class for each text, or, causal, to the next token."""

    def __init__(self, vocabulary, width, layers, classes=0, positions=512):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(positions, width) * 0.02)
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width),
                           nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)])
            for _ in range(layers))
        self.head = nn.Linear(width, classes or vocabulary)
        self.causal, self.heads = classes == 0, max(1, width // 64)

    def attention(self, x, qkv, out):
        batch, length, width = x.shape
        q, k, v = (t.reshape(batch, length, self.heads, -1).transpose(1, 2) for t in qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / (width // self.heads)**0.5
        if self.causal:
            at = torch.arange(length)
            scores = scores.masked_fill(at[None, :] > at[:, None], -1e9)
        return out((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        h = self.tokens(x) + self.positions[:x.shape[1]]
        for norm, qkv, out, norm2, up, down in self.layers:
            h = h + self.attention(norm(h), qkv, out)
            h = h + down(nn.functional.gelu(up(norm2(h))))
        return self.head(h if self.causal else h.mean(1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 24, 3, padding=1), nn.Conv2d(24, 48, 3, 2, 1), nn.Conv2d(48, 48, 3, 1, 1)
        self.up, self.out = nn.ConvTranspose2d(48, 24, 2, 2), nn.Conv2d(48, 3, 3, padding=1)

    def forward(self, x):
        a = torch.relu(self.a(x))
        up = torch.relu(self.up(torch.relu(self.c(torch.relu(self.b(a))))))
        return self.out(torch.cat([a, up], 1))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3136, 256), nn.ReLU(), nn.Linear(256, 10))


def write_texts(folder, rows):
    """A CSV file of texts of 2 to 120 words in four classes, and the vocabulary of a WordPiece tokenizer."""
    rng = np.random.default_rng(0)
    words = [''.join(chr(97 + (i // 26**d) % 26) for d in range(4)) for i in range(3000)]
    (folder / 'vocab.txt').write_text('\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *words]) + '\n')
    with open(folder / 'texts.csv', 'w', encoding='utf-8') as out:
        out.write('label,text\n')
        for i in range(rows):
            length = int(np.clip(rng.lognormal(3, 0.8), 2, 120))
            out.write(f"{i % 4},{' '.join(words[(w * 4 + i) % 3000] for w in rng.integers(0, 700, length))}\n")


def write_pictures(folder, count):
    rng = np.random.default_rng(0)
    (folder / 'pictures').mkdir()
    for kind in ('a', 'b'):
        (folder / 'pictures' / kind).mkdir()
        for i in range(count // 2):
            pixels = rng.integers(0, 255, (*rng.integers(24, 97, 2), 3), dtype=np.uint8)
            write_png(folder / 'pictures' / kind / f'{i}.png', pixels)


def make_mlp(folder):
    export(nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)),
           torch.zeros(2, 512), folder / 'mlp.onnx', {0: 'n'})
    rng = np.random.default_rng(0)
    np.savez(folder / 'mlp.npz', x=rng.standard_normal((4000, 512), dtype=np.float32), label=np.arange(4000) % 10)
    return ['--data', 'mlp.npz', '--batch-size', '512', '--eval-split', '0.2', '--ema-decay', '0.9']


def make_lenet(folder):
    export(lenet(), torch.zeros(2, 1, 28, 28), folder / 'lenet.onnx', {0: 'n'})
    rng = np.random.default_rng(0)
    np.savez(folder / 'lenet.npz', x=rng.standard_normal((2000, 1, 28, 28), dtype=np.float32),
             label=np.arange(2000) % 10)
    return ['--data', 'lenet.npz', '--batch-size', '256', '--eval-split', '0.2', '--export-weights', 'best']


def make_encoder(folder):
    export(Transformer(3005, 192, 4, classes=4), torch.zeros(2, 16, dtype=torch.int64), folder / 'encoder.onnx',
           {0: 'n', 1: 'length'})
    write_texts(folder, 1200)
    return ['--data', 'texts.csv', '--text', 'text', '--label', 'label', '--tokenizer', 'vocab.txt', '--max-length',
            '128', '--length-grouping', '--batch-size', '32', '--eval-split', '0.2']


def make_decoder(folder):
    export(Transformer(4096, 384, 5), torch.zeros(2, 16, dtype=torch.int64), folder / 'decoder.onnx',
           {0: 'n', 1: 'length'})
    np.random.default_rng(0).integers(0, 4096, 40000).astype(np.uint16).tofile(folder / 'tokens.bin')
    return ['--data', 'u16:tokens.bin', '--max-length', '128', '--batch-size', '16', '--eval-split', '0.1',
            '--micro-batch-size', 'auto']


def make_pictures(folder):
    export(nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2)),
           torch.zeros(2, 3, 64, 64), folder / 'pictures.onnx', {0: 'n', 2: 'height', 3: 'width'})
    write_pictures(folder, 160)
    return ['--data', 'pictures', '--batch-size', '16', '--eval-split', '0.2']


class Last(nn.Module):
    """The last output of a recurrent network."""

    def __init__(self, kind):
        super().__init__()
        self.network, self.head = kind(32, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.network(x)[0][:, -1])


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))

    def forward(self, x):
        return torch.relu(x + self.body(x))


def depthwise(a, b, stride):
    return nn.Sequential(nn.Conv2d(a, a, 3, stride, 1, groups=a), nn.ReLU(), nn.Conv2d(a, b, 1), nn.ReLU())


def classifier(width):
    return nn.Sequential(nn.Flatten(), nn.Linear(width, 10))


# Classifiers of 10 classes: shape of a sample, network, flags.
CLASSIFIERS = {
    'conv1d': ((2, 1024), lambda: nn.Sequential(nn.Conv1d(2, 32, 9, 4, 4), nn.ReLU(), nn.Conv1d(32, 64, 9, 4, 4),
                                                nn.ReLU(), classifier(64 * 64)), '--batch-size 64'),
    'conv3d': ((1, 16, 16, 16), lambda: nn.Sequential(nn.Conv3d(1, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool3d(2),
                                                      nn.Conv3d(16, 32, 3, 1, 1), nn.ReLU(), classifier(32 * 512)),
               '--batch-size 32 --optimizer sgd --momentum 0.9'),
    'lstm': ((24, 32), lambda: Last(nn.LSTM), '--batch-size 128'),
    'gru': ((24, 32), lambda: Last(nn.GRU), '--batch-size 128 --micro-batch-size auto'),
    'residual': ((3, 32, 32), lambda: nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), Residual(32), Residual(32),
                                                    nn.AvgPool2d(4), classifier(32 * 64)),
                 '--batch-size 64 --ema-decay 0.99'),
    'depthwise': ((3, 48, 48), lambda: nn.Sequential(depthwise(3, 32, 2), depthwise(32, 64, 1), depthwise(64, 128, 2),
                                                     nn.AdaptiveAvgPool2d(1), classifier(128)),
                  '--batch-size 32 --mixed-precision bf16'),
    'deep': ((256,), lambda: nn.Sequential(*(layer for _ in range(24) for layer in (nn.Linear(256, 256), nn.ReLU())),
                                           classifier(256)), '--batch-size 1024 --optimizer lion'),
    'wide': ((64,), lambda: nn.Sequential(nn.Linear(64, 8192), nn.ReLU(), nn.Linear(8192, 512), nn.ReLU(),
                                          classifier(512)), '--batch-size 64 --optimizer adafactor'),
}


def make_classifier(name):
    shape, network, flags = CLASSIFIERS[name]

    def make(folder):
        export(network(), torch.zeros(2, *shape), folder / f'{name}.onnx', {0: 'n'})
        rng = np.random.default_rng(0)
        np.savez(folder / f'{name}.npz', x=rng.standard_normal((400, *shape), dtype=np.float32),
                 label=np.arange(400) % 10)
        return ['--data', f'{name}.npz', '--eval-split', '0.2', *flags.split()]

    return make


def make_unet(folder):
    export(UNet(), torch.zeros(2, 3, 64, 64), folder / 'unet.onnx', {0: 'n'})
    rng = np.random.default_rng(0)
    pixels = rng.standard_normal((160, 3, 64, 64), dtype=np.float32)
    np.savez(folder / 'unet.npz', x=pixels, target=np.roll(pixels, 1, 3))
    return ['--data', 'unet.npz', '--label', 'target', '--loss', 'mse', '--batch-size', '32', '--eval-split', '0.2',
            '--checkpoint-compression', 'zstd']


CASES = {'mlp': make_mlp, 'lenet': make_lenet, 'encoder': make_encoder, 'decoder': make_decoder,
         'pictures': make_pictures, 'unet': make_unet, **{name: make_classifier(name) for name in CLASSIFIERS}}


def train(program, name, flags, steps, budget=None):
    line = [program, '--model', f'{name}.onnx', '--backend', 'cpu', '--json', '--quiet', '--overwrite', '--out', 'run',
            '--max-steps', str(steps), '--save-every', '4', *flags]
    return line + (['--memory-budget', f'{budget}MiB'] if budget else [])


def least_budget(line):
    """The budget in MiB that the refusal of a tiny one names."""
    refused = subprocess.run(line, capture_output=True, text=True, check=False)
    found = re.search(r'the smallest that does is (\d+)MiB', refused.stderr)
    if found is None:
        raise SystemExit(f'{" ".join(line)}: names no budget: {refused.stderr}')
    return int(found.group(1))


def check(program, name, flags, steps):
    """Prints a row for each run; returns the number of those that are above their budget."""
    whole = run_json(train(program, name, flags, steps))
    least = least_budget(train(program, name, flags, steps, 1))
    most = -(-int(whole['planned_peak_bytes'] * 1.03) // MIB)
    above = 0
    for budget in (None, least, (least + most) // 2, most):
        run = whole if budget is None else run_json(train(program, name, flags, steps, budget))
        measured, planned = run['measured_peak_bytes'] / MIB, run['planned_peak_bytes'] / MIB
        over = budget is not None and measured > budget
        above += over
        print(f"{name:>10} {budget or 'none':>8} {planned:9.1f} {measured:9.1f} {measured / planned:7.3f} "
              f"{run['micro_batch']:6d} {run['final_loss']:9.4f} {'ABOVE' if over else ''}", flush=True)
    return above


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', default='build/release/bin/onnxtrain')
    parser.add_argument('--cases', default=','.join(CASES))
    parser.add_argument('--steps', type=int, default=24)
    args = parser.parse_args()
    program = str(pathlib.Path(args.program).resolve())
    above = 0
    print(f"{'model':>10} {'budget':>8} {'planned':>9} {'measured':>9} {'ratio':>7} {'micro':>6} {'loss':>9}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in args.cases.split(','):
            torch.manual_seed(0)
            above += check(program, name, CASES[name](pathlib.Path(folder)), args.steps)
    print(f'{above or "no"} runs are above their budget')
    return above > 0


if __name__ == '__main__':
    sys.exit(main())
