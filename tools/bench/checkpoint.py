#!/usr/bin/env python3
"""Measures what saving checkpoints costs: share of the time, and the pause of the step that starts a save.

    /usr/bin/python3 tools/bench/checkpoint.py --case bert --saves 3 --every 10
    /usr/bin/python3 tools/bench/checkpoint.py --soak 10000

Trains a case of models.py on random samples with a checkpoint every --every updates. What a save costs is the time that
the updates after it take beyond the median of those that nothing is written beside (the second half of each interval);
the share is the median of these costs over the time of 50 updates, all within one run, so that a machine whose speed
drifts over minutes does not decide it. The pause is the longest that an update waited for a save. --soak N trains a
small network for N updates with a checkpoint every ten, and compares memory and open files at a tenth and at the end of
the run. On an otherwise idle machine, and a disk as the runs will have.
"""
import argparse
import json
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


def update_seconds(path):
    """Of each update but the first, from the end of the one before."""
    with open(path) as file:
        events = [json.loads(line) for line in file]
    ends = [event['seconds'] for event in events if event['event'] == 'step']
    return [after - before for before, after in zip(ends, ends[1:])]


def measure(args, folder):
    case = models.CASES[args.case]
    batch = args.batch or case.batch
    models.export(args.case, f'{folder}/model.onnx')
    samples(case, batch * 8, folder)
    steps = (args.saves + 1) * args.every
    summary = run_json([args.program, '--model', f'{folder}/model.onnx', '--data', f'{folder}/data.npz', '--json',
                        '--quiet', '--overwrite', '--batch-size', str(batch), '--max-steps', str(steps),
                        '--save-every', str(args.every), '--keep-last', '2', '--log-every', '1', '--out',
                        f'{folder}/run'])
    seconds = update_seconds(f'{folder}/run/metrics.jsonl')
    # Update n takes seconds[n - 2]; a save after update n delays those from n + 1 on.
    after = [seconds[n - 1:n - 1 + args.every] for n in range(args.every, steps, args.every)]
    undisturbed = statistics.median(t for part in after for t in part[len(part) // 2:])
    costs = [sum(part) - len(part) * undisturbed for part in after]
    share = statistics.median(costs) / (50 * undisturbed)
    size = folder_bytes(f'{folder}/run/checkpoints/latest')
    pause = 1e3 * summary['checkpoint_pause']
    print(f'{args.case} B={batch}: a checkpoint has {size / MIB:.0f} MiB; an update takes {1e3 * undisturbed:.0f} ms; '
          f'a save costs {statistics.median(costs):.2f} s ({min(costs):.2f} to {max(costs):.2f}), {100 * share:.1f} % '
          f'of 50 updates; the longest pause is {pause:.0f} ms, {pause / (size / 1e8):.0f} ms per 100 MB')


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
    parser.add_argument('--saves', type=int, default=3)
    parser.add_argument('--every', type=int, default=10)
    parser.add_argument('--soak', type=int, metavar='N')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return soak(args, folder) if args.soak else measure(args, folder)


if __name__ == '__main__':
    sys.exit(main())
