"""Compares the rate that `--lr-find` takes with a grid of rates: networks × data sets × optimizers.

    /usr/bin/python3 tools/bench/learning_rates.py --mnist ../shared/data/mnist_idx --nets lenet,tanh_mlp --updates 400

Every run trains an untrained network for so many updates of 32 samples. A row shows the accuracy on evaluation samples
with the rate that was found and with the best one of the grid. Exits with 1 where a found rate is more than two points
below the best. Needs Debian's python3-torch.
"""
import argparse
import gzip
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch import nn

GRID = {'sgd': [0.003, 0.01, 0.03, 0.1, 0.3, 1], 'momentum': [0.001, 0.003, 0.01, 0.03, 0.1],
        'adamw': [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]}
OPTIMIZERS = {'sgd': ['--optimizer', 'sgd'], 'momentum': ['--optimizer', 'sgd', '--momentum', '0.9'],
              'adamw': ['--optimizer', 'adamw']}
SIDE = 28


def mlp(*widths, activation=nn.ReLU):
    layers = [nn.Flatten()]
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers[:-1])


def convolutions(*channels, activation=nn.ReLU, norm=False, kernel=3):
    layers, size = [], SIDE
    for a, b in zip((1, *channels), channels):
        layers += [nn.Conv2d(a, b, kernel, padding=kernel // 2)] + ([nn.BatchNorm2d(b)] if norm else [])
        layers += [activation(), nn.MaxPool2d(2)]
        size //= 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels[-1] * size * size, 10))


class Residual(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Conv2d(1, width, 3, 2, 1)
        self.a, self.b = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width * 49, 10)

    def forward(self, x):
        h = torch.relu(self.first(x))
        h = torch.relu(h + self.b(torch.relu(self.a(h))))
        return self.head(torch.flatten(nn.functional.max_pool2d(h, 2), 1))


class Rows(nn.Module):
    """Reads a picture row by row with a recurrent network."""

    def __init__(self, kind, width=64):
        super().__init__()
        self.network, self.head = kind(SIDE, width, batch_first=True), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.network(x.reshape(-1, SIDE, SIDE))[0][:, -1])


def lenet5():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5),
                         nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.Tanh(),
                         nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10))


PIXELS = SIDE * SIDE
NETS = {
    'linear': lambda: mlp(PIXELS, 10),
    'mlp': lambda: mlp(PIXELS, 128, 10),
    'deep_mlp': lambda: mlp(PIXELS, 64, 64, 64, 64, 10),
    'tanh_mlp': lambda: mlp(PIXELS, 100, 100, 10, activation=nn.Tanh),
    'sigmoid_mlp': lambda: mlp(PIXELS, 100, 10, activation=nn.Sigmoid),
    'lenet': lenet,
    'lenet5': lenet5,
    'conv': lambda: convolutions(16, 32),
    'conv_norm': lambda: convolutions(16, 32, norm=True),
    'conv_gelu': lambda: convolutions(8, 16, 32, activation=nn.GELU),
    'residual': Residual,
    'lstm': lambda: Rows(nn.LSTM),
}


def read_idx(path):
    with (gzip.open if path.suffix == '.gz' else open)(path, 'rb') as file:
        data = file.read()
    rank = data[3]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(struct.unpack(f'>{rank}I', data[4:4 + 4 * rank]))


def mnist(folder):
    def find(name):
        return next(p for p in sorted(pathlib.Path(folder).glob('**/*')) if p.name.startswith(name))
    arrays = [read_idx(find(name)) for name in ('train-images', 'train-labels', 't10k-images', 't10k-labels')]
    return arrays[0][:12000], arrays[1][:12000], arrays[2][:2000], arrays[3][:2000]


def mnist_inverted(folder):
    """Dark on light and shifted: most pixels are near 1."""
    x, y, ex, ey = mnist(folder)
    return 255 - np.roll(x, 3, 2), y, 255 - np.roll(ex, 3, 2), ey


def stripes(_):
    """Ten directions of stripes under noise."""
    rng = np.random.default_rng(0)
    y = np.arange(14000) % 10
    at = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing='ij'), -1)
    waves = at @ np.stack([np.cos(np.pi * y / 10), np.sin(np.pi * y / 10)])  # [side, side, samples]
    pixels = np.sin(waves.transpose(2, 0, 1) * 0.9 + rng.uniform(0, 6.3, (14000, 1, 1)))
    x = np.clip(127 + 50 * pixels + rng.normal(0, 40, pixels.shape), 0, 255).astype(np.uint8)
    return x[:12000], y[:12000], x[12000:], y[12000:]


DATA = {'mnist': mnist, 'inverted': mnist_inverted, 'stripes': stripes}


def save(arrays, folder, name):
    for part, x, y in ((name, *arrays[:2]), (f'{name}-eval', *arrays[2:])):
        np.savez(folder / f'{part}.npz', x=(x[:, None] / 255).astype(np.float32), label=y.astype(np.int64))


def train(program, net, data, optimizer, updates, rate):
    """Accuracy at the end and the rate."""
    line = [program, '--model', f'{net}.onnx', '--data', f'{data}.npz', '--eval-data', f'{data}-eval.npz', '--backend',
            'cpu', '--batch-size', '32', '--max-steps', str(updates), '--eval-every', str(updates), '--save-every',
            'end', '--lr-scheduler', 'constant', '--json', '--quiet', '--overwrite', '--out', 'run',
            *OPTIMIZERS[optimizer]]
    result = subprocess.run(line + (['--lr-find'] if rate is None else ['--lr', str(rate)]), capture_output=True,
                            text=True, check=False)
    if not result.stdout:
        return 0, rate or 0  # the loss was not finite
    summary = json.loads(result.stdout)
    return summary['eval']['accuracy'], summary['lr']


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', default='build/release/bin/onnxtrain')
    parser.add_argument('--mnist', default='../shared/data/mnist_idx')
    parser.add_argument('--nets', default=','.join(NETS))
    parser.add_argument('--data', default=','.join(DATA))
    parser.add_argument('--optimizers', default=','.join(OPTIMIZERS))
    parser.add_argument('--updates', type=int, default=400)
    args = parser.parse_args()
    program, source = str(pathlib.Path(args.program).resolve()), pathlib.Path(args.mnist).resolve()
    worse = rows = 0
    print(f"{'data':>10} {'network':>12} {'optimizer':>10} {'found lr':>9} {'accuracy':>9} {'best lr':>9} "
          f"{'accuracy':>9}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for net in args.nets.split(','):
            torch.manual_seed(0)
            torch.onnx.export(NETS[net]().eval(), torch.zeros(2, 1, SIDE, SIDE), f'{net}.onnx', input_names=['x'],
                              output_names=['y'], dynamic_axes={'x': {0: 'n'}}, do_constant_folding=False,
                              training=torch.onnx.TrainingMode.TRAINING, opset_version=14)
        for data in args.data.split(','):
            save(DATA[data](source), pathlib.Path(folder), data)
            for net in args.nets.split(','):
                for optimizer in args.optimizers.split(','):
                    found, lr = train(program, net, data, optimizer, args.updates, None)
                    grid = [(train(program, net, data, optimizer, args.updates, r)[0], r) for r in GRID[optimizer]]
                    best, best_lr = max(grid)
                    below = found < best - 0.02
                    worse, rows = worse + below, rows + 1
                    print(f'{data:>10} {net:>12} {optimizer:>10} {lr:9.2g} {found:9.1%} {best_lr:9.2g} {best:9.1%} '
                          f"{'BELOW' if below else ''}", flush=True)
    print(f'{rows - worse} of {rows} rates are within two points of the best of the grid')
    return worse > 0


if __name__ == '__main__':
    sys.exit(main())
