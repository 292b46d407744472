"""Measures memory and time of a step with recomputation under memory budgets, relative to no recomputation.

    /usr/bin/python3 tools/bench/memory.py --model resnet50.onnx --batch-size 16 --parts 1/2,1/4
    /usr/bin/python3 tools/bench/memory.py --model bert.onnx --batch-size 16 --micro-batch-size 8 --sweep 10

--parts lists budgets as fractions of the activation memory of `--gradient-checkpointing none`. --sweep N takes N
budgets, evenly spaced from the smallest feasible one to the largest that matters. Each budget is one run of
`onnxtrain bench`; the baseline `none` runs first and last.
"""
import argparse
import json
import sys
from fractions import Fraction

from program import run_json

MIB = 1 << 20


def run(args, command, *flags):
    line = [args.program, command, '--model', args.model, '--json', '--batch-size', str(args.batch_size)]
    if args.micro_batch_size:
        line += ['--micro-batch-size', str(args.micro_batch_size)]
    return run_json(line + list(flags))


def bench(args, *flags):
    return run(args, 'bench', '--steps-only', '--max-steps', str(args.steps), *flags)


def show(name, r, none):
    r['time_ratio'] = r['median_seconds'] / none['median_seconds']
    print(f"{name:>12} {r['arena_bytes'] / MIB:9.1f} {r['arena_bytes'] / none['arena_bytes']:6.3f} "
          f"{r['planned_peak_bytes'] / MIB:9.1f} {r['process_peak_bytes'] / MIB:9.1f} {r['repeated_nodes']:6d} "
          f"{r['median_seconds'] * 1e3:10.1f} {r['time_ratio']:7.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', default='build/release/bin/onnxtrain')
    parser.add_argument('--model', required=True)
    parser.add_argument('--batch-size', type=int, default=8)
    parser.add_argument('--micro-batch-size', type=int)
    parser.add_argument('--parts', default='')
    parser.add_argument('--sweep', type=int, default=0)
    parser.add_argument('--steps', type=int, default=5)
    parser.add_argument('--out', help='JSON')
    args = parser.parse_args()

    columns = {'budget MiB': 12, 'arena': 9, 'part': 6, 'planned': 9, 'measured': 9, 'clones': 6, 'ms': 10, 'time': 7}
    print(' '.join(f'{name:>{width}}' for name, width in columns.items()))
    none = bench(args, '--gradient-checkpointing', 'none')
    show('none', none, none)
    others = none['planned_peak_bytes'] - none['arena_bytes']
    parts = [Fraction(part) for part in args.parts.split(',') if part]
    budgets = [int((others + int(part * none['arena_bytes'])) / 0.98) for part in parts]
    if args.sweep:
        plans = run(args, 'plan')['budgets']
        low, high = (int((others + plans[i]['activation_bytes']) / 0.98) + 64 for i in (-1, 0))
        budgets += [low + (high - low) * i // (args.sweep - 1) for i in range(args.sweep)]
    results = [none]
    for budget in budgets:
        r = bench(args, '--memory-budget', str(budget))
        r['budget_bytes'] = budget
        show(f'{budget / MIB:.0f}', r, none)
        results.append(r)
    results.append(bench(args, '--gradient-checkpointing', 'none'))
    show('none', results[-1], none)
    over = [r for r in results if r.get('process_peak_bytes', 0) > r.get('budget_bytes', float('inf'))]
    print(f'{len(over)} measured peaks exceed their budgets' if over else 'every measured peak is within its budget')
    if args.out:
        with open(args.out, 'w') as file:
            json.dump(results, file, indent=2)


if __name__ == '__main__':
    main()
