#!/usr/bin/env python3
"""Measures what saving checkpoints costs: share of the time, and the pause of the step that starts a save.

    /usr/bin/python3 tools/bench/checkpoint.py --case bert --steps 100 --every 50
    /usr/bin/python3 tools/bench/checkpoint.py --soak 10000

Trains a case of models.py on random samples, in turns with a checkpoint every --every updates and with none but that of
the end. The share is the median time of a run with them over that of a run without; the pause is what a save holds the
loop for, without that of the end, which waits for the disk. --soak N trains a small network for N updates with a
checkpoint every ten, and compares memory and open files at a tenth and at the end of the run. On an otherwise idle
machine, and a disk as the runs will have.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import models
from program import run_json

MIB = 1 << 20


def samples(case, count, folder):
    inputs = [x.numpy() for x in case.inputs(count)]
    names = ['input'] if len(inputs) == 1 else [f'input{i}' for i in range(len(inputs))]
    np.savez(f'{folder}/data.npz', label=case.labels(count).numpy(), **dict(zip(names, inputs)))


def folder_bytes(folder):
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))


def train(args, folder, batch, every, run):
    command = [args.program, '--model', f'{folder}/model.onnx', '--data', f'{folder}/data.npz', '--json', '--quiet',
               '--overwrite', '--batch-size', str(batch), '--max-steps', str(args.steps), '--save-every', every,
               '--keep-last', '2', '--log-every', '10', '--out', f'{folder}/{run}']
    return run_json(command)


def measure(args, folder):
    case = models.CASES[args.case]
    batch = args.batch or case.batch
    models.export(args.case, f'{folder}/model.onnx')
    samples(case, batch * 8, folder)
    times, saves = ({'with': [], 'without': []} for _ in range(2))
    intermediate = (args.steps - 1) // args.every
    for _ in range(args.rounds):
        for run, every in (('with', str(args.every)), ('without', 'end')):
            summary = train(args, folder, batch, every, run)
            split = summary['time_split']
            times[run].append(summary['seconds'] - split['compile'])
            saves[run].append(split['checkpoint'])
    size = folder_bytes(f'{folder}/with/checkpoints/latest')
    with_, without = (statistics.median(times[run]) for run in ('with', 'without'))
    pause = 1e3 * (statistics.median(saves['with']) - statistics.median(saves['without'])) / intermediate
    print(f'{args.case} B={batch}: a checkpoint has {size / MIB:.0f} MiB; {args.steps} updates take {with_:.2f} s with '
          f'one every {args.every}, {without:.2f} s without: {100 * (with_ / without - 1):+.1f} %; a save holds the '
          f'loop for {pause:.0f} ms, {pause / (size / 1e8):.0f} ms per 100 MB')


def resident(pid):
    with open(f'/proc/{pid}/status') as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith('VmRSS'))


def soak(args, folder):
    models.export('mlp', f'{folder}/model.onnx')
    samples(models.CASES['mlp'], 640, folder)
    log = f'{folder}/run/metrics.jsonl'
    command = [args.program, '--model', f'{folder}/model.onnx', '--data', f'{folder}/data.npz', '--quiet',
               '--max-steps', str(args.soak), '--save-every', '10', '--log-every', '100', '--out', f'{folder}/run']
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    rows = []
    while process.poll() is None:
        try:
            with open(log, 'rb') as f:
                step = f.read().count(b'\n') * 100
            rows.append((step, resident(process.pid), len(os.listdir(f'/proc/{process.pid}/fd'))))
        except (OSError, StopIteration):
            pass
        time.sleep(0.05)
    early = [row for row in rows if args.soak // 10 <= row[0] < args.soak // 5]
    late = [row for row in rows if row[0] >= args.soak - args.soak // 10]
    first, last = ([max(column) for column in zip(*part)] for part in (early, late))
    print(f'update {first[0]}: {first[1] / MIB:.1f} MiB, {first[2]} descriptors; update {last[0]}: '
          f'{last[1] / MIB:.1f} MiB ({100 * (last[1] / first[1] - 1):+.2f} %), {last[2]} descriptors; '
          f'exit code {process.returncode}')
    return process.returncode != 0 or last[1] > 1.01 * first[1] or last[2] > first[2] + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', default='build/release/bin/onnxtrain')
    parser.add_argument('--case', default='bert', choices=list(models.CASES))
    parser.add_argument('--batch', type=int)
    parser.add_argument('--steps', type=int, default=100)
    parser.add_argument('--every', type=int, default=50)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--soak', type=int, metavar='N')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return soak(args, folder) if args.soak else measure(args, folder)


if __name__ == '__main__':
    sys.exit(main())
