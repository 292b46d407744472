"""Measures the micro-batch that `--micro-batch-size auto` picks under a memory budget, and the peak memory.

    /usr/bin/python3 tools/bench/micro_batch.py --budget 2GiB mlp.onnx:400000 lenet.onnx:60000 unet.onnx:60

MODEL:BATCH is a global batch too large for one micro-batch. Each case is one run of `onnxtrain bench`; the peak is the
resident memory of the process above its value at start. Exits with 1 if a peak is outside 85 % to 100 % of the budget.
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
    line = [program, command, '--model', model, '--json', '--batch-size', batch, '--micro-batch-size', 'auto',
            '--memory-budget', str(budget)]
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
        print(f"{model.split('/')[-1]:>24} {batch:>8} {r['micro_batch']:8d} {seconds:7.2f} "
              f"{r['planned_peak_bytes'] / 2**20:9.1f} {r['process_peak_bytes'] / 2**20:9.1f} {share:9.1%}", flush=True)
    print(f'{outside or "no"} peaks are outside 85 % to 100 % of the budget')
    return outside > 0


if __name__ == '__main__':
    sys.exit(main())
