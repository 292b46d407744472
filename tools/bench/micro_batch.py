"""Measures the micro-batch that `--micro-batch-size auto` picks under a memory budget, and the peak memory.

    /usr/bin/python3 tools/bench/micro_batch.py --budget 2GiB mlp.onnx:400000 lenet.onnx:60000 unet.onnx:60

MODEL:BATCH is a global batch too large for one micro-batch, which is divided into the fewest equal ones that fit. Each
case is one run of `onnxtrain bench`; the peak is the resident memory of the process above its value at start. Exits
with 1 if a peak is above the budget, or if one micro-batch fewer would fit by its plan with the margin of 5 %.
"""
import argparse
import sys
import time

from program import run_json

MARGIN = 0.05
UNITS = {'KiB': 1 << 10, 'MiB': 1 << 20, 'GiB': 1 << 30}


def size(text):
    unit = next((unit for unit in UNITS if text.endswith(unit)), None)
    return int(float(text[:-3]) * UNITS[unit]) if unit else int(text)


def run(program, command, model, batch, budget, *flags, micro='auto'):
    line = [program, command, '--model', model, '--json', '--batch-size', batch, '--micro-batch-size', str(micro),
            '--memory-budget', str(budget)]
    begin = time.time()
    return run_json(line + list(flags)), time.time() - begin


def fewer_fit(program, model, batch, budget, count):
    """Whether the plan of one micro-batch fewer, with nothing recomputed, leaves the margin of the budget."""
    if count == 1:
        return False
    larger = -(-int(batch) // (count - 1))
    plan, _ = run(program, 'plan', model, batch, 1 << 50, micro=larger)
    return plan['peak_bytes'] <= (1 - MARGIN) * budget


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', default='build/release/bin/onnxtrain')
    parser.add_argument('--budget', default='2GiB')
    parser.add_argument('cases', nargs='+', metavar='MODEL:BATCH')
    args = parser.parse_args()
    budget = size(args.budget)
    wrong = 0
    print(f"{'model':>24} {'batch':>8} {'micro':>8} {'number':>6} {'plan s':>7} {'planned':>9} {'measured':>9} "
          f"{'of budget':>9}")
    for case in args.cases:
        model, batch = case.rsplit(':', 1)
        _, seconds = run(args.program, 'plan', model, batch, budget)
        r, _ = run(args.program, 'bench', model, batch, budget, '--steps-only', '--max-steps', '1')
        share = r['process_peak_bytes'] / budget
        count = -(-int(batch) // r['micro_batch'])
        wrong += share > 1 or fewer_fit(args.program, model, batch, budget, count)
        print(f"{model.split('/')[-1]:>24} {batch:>8} {r['micro_batch']:8d} {count:6d} {seconds:7.2f} "
              f"{r['planned_peak_bytes'] / 2**20:9.1f} {r['process_peak_bytes'] / 2**20:9.1f} {share:9.1%}", flush=True)
    print(f'{wrong or "no"} cases are above the budget, or fewer micro-batches would fit')
    return wrong > 0


if __name__ == '__main__':
    sys.exit(main())
