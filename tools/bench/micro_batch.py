"""Micro-batches that fit a budget: the size that `--micro-batch-size auto` picks and the peak that its steps reach.

    /usr/bin/python3 tools/bench/micro_batch.py --budget 2GiB mlp.onnx:400000 lenet.onnx:60000 unet.onnx:60 resnet18.onnx:100 bert4.onnx:40

MODEL:BATCH: a batch too large to be run as one. Each is one run of `onnxtrain bench`; the peak is that of the process above its start.
Ends with 1 where a peak is not between 85 % and 100 % of the budget.
"""
import argparse
import sys
import time

from program import run_json

UNITS = {'KiB': 1 << 10, 'MiB': 1 << 20, 'GiB': 1 << 30}


def size(text):
    unit = next((unit for unit in UNITS if text.endswith(unit)), None)
    return int(float(text[:-3]) * UNITS[unit]) if unit else int(text)


def run(program, command, model, batch, budget, *flags):
    line = [program, command, '--model', model, '--json', '--batch-size', batch, '--micro-batch-size', 'auto', '--memory-budget', str(budget)]
    begin = time.time()
    return run_json(line + list(flags)), time.time() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', default='build/release/bin/onnxtrain')
    parser.add_argument('--budget', default='2GiB')
    parser.add_argument('cases', nargs='+', metavar='MODEL:BATCH')
    args = parser.parse_args()
    budget = size(args.budget)
    outside = 0
    print(f"{'model':>24} {'batch':>8} {'micro':>8} {'plan s':>7} {'planned':>9} {'measured':>9} {'of budget':>9}")
    for case in args.cases:
        model, batch = case.rsplit(':', 1)
        _, seconds = run(args.program, 'plan', model, batch, budget)
        r, _ = run(args.program, 'bench', model, batch, budget, '--steps-only', '--max-steps', '1')
        share = r['process_peak_bytes'] / budget
        outside += not 0.85 <= share <= 1
        print(f"{model.split('/')[-1]:>24} {batch:>8} {r['micro_batch']:8d} {seconds:7.2f} {r['planned_peak_bytes'] / 2**20:9.1f} "
              f"{r['process_peak_bytes'] / 2**20:9.1f} {share:9.1%}", flush=True)
    print('every peak is between 85 % and 100 % of the budget' if outside == 0 else f'{outside} peaks are outside 85 % to 100 % of the budget')
    return outside > 0


if __name__ == '__main__':
    sys.exit(main())
