"""Recomputation under budgets: planned and measured memory and time of a step, against keeping everything.

    /usr/bin/python3 tools/bench/memory.py --model resnet50.onnx --batch-size 16 --parts 1/2,1/4
    /usr/bin/python3 tools/bench/memory.py --model bert.onnx --batch-size 16 --micro-batch-size 8 --sweep 10

--parts: budgets that leave so much of the activations of `--gradient-checkpointing none`. --sweep: so many budgets, evenly spread from
the smallest that does to the largest that matters. Each budget is one run of `onnxtrain bench`; the runs of `none` come first and last.
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

    print(f"{'budget MiB':>12} {'arena':>9} {'part':>6} {'planned':>9} {'measured':>9} {'again':>6} {'ms':>10} {'time':>7}")
    none = bench(args, '--gradient-checkpointing', 'none')
    show('none', none, none)
    others = none['planned_peak_bytes'] - none['arena_bytes']
    budgets = [int((others + int(Fraction(part) * none['arena_bytes'])) / 0.98) for part in args.parts.split(',') if part]
    if args.sweep:
        plans = run(args, 'plan')['budgets']
        least, most = (int((others + plans[i]['activation_bytes']) / 0.98) + 64 for i in (-1, 0))
        budgets += [least + (most - least) * i // (args.sweep - 1) for i in range(args.sweep)]
    results = [none]
    for budget in budgets:
        r = bench(args, '--memory-budget', str(budget))
        r['budget_bytes'] = budget
        show(f'{budget / MIB:.0f}', r, none)
        results.append(r)
    results.append(bench(args, '--gradient-checkpointing', 'none'))
    show('none again', results[-1], none)
    over = [r for r in results if r.get('process_peak_bytes', 0) > r.get('budget_bytes', float('inf'))]
    print('every measured peak is within its budget' if not over else f'{len(over)} measured peaks are above their budgets')
    if args.out:
        with open(args.out, 'w') as file:
            json.dump(results, file, indent=2)


if __name__ == '__main__':
    main()
