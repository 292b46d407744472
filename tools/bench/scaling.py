"""Measures how the time from file to first step grows with the size of the graph.

    /usr/bin/python3 tools/bench/scaling.py --graphs chain,tree,dense,rnn --sizes 1000,10000,100000
    /usr/bin/python3 tools/bench/scaling.py --graphs chain --sizes 2000,4000,8000 --phases inspect,plan

Each phase is one run of the program on a generated model (graph_files.py): `inspect`, `plan`, and `step`, a training
run of one step. `compile` is the part of `step` that the program spends on compiling. The last row of a graph is the
exponent b of seconds = a·nodes^b, fitted to all sizes that take at least a tenth of a second more than one node: 1 is
linear.
"""
import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time

from graph_files import GENERATORS

# On a busy machine, the CPU time of the finished runs says more.
CLOCKS = {'wall': time.monotonic, 'cpu': lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])}
PHASES = ('inspect', 'plan', 'step', 'compile')


def command(args, phase, model, folder):
    line = [args.program, 'train' if phase == 'step' else phase, '--model', model]
    if phase != 'inspect':
        line += ['--batch-size', '2']
    if phase == 'step':
        line += ['--quiet', '--max-steps', '1', '--overwrite', '--out', os.path.join(folder, 'run')]
    return line + args.flags.split()


def measure(args, phase, model, folder):
    """Returns seconds by phase; None where the run failed or took longer than the limit."""
    clock = CLOCKS[args.clock]
    start = clock()
    try:
        result = subprocess.run(command(args, phase, model, folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                timeout=args.limit)
    except subprocess.TimeoutExpired:
        return {phase: None}
    seconds = {phase: clock() - start}
    if result.returncode != 0:
        print(f'{phase} ended with {result.returncode}: {result.stderr.decode()[:200].strip()}', file=sys.stderr)
        return {phase: None}
    if phase == 'step':
        with open(os.path.join(folder, 'run', 'summary.json')) as file:
            seconds['compile'] = json.load(file)['time_split']['compile']
    return seconds


def exponent(sizes, seconds, empty):
    """Fits log(seconds − empty) over log(size)."""
    points = [(math.log(n), math.log(s - empty)) for n, s in zip(sizes, seconds) if s is not None and s - empty > 0.1]
    if len(points) < 2:
        return None
    x = sum(p[0] for p in points) / len(points)
    y = sum(p[1] for p in points) / len(points)
    return sum((p[0] - x) * (p[1] - y) for p in points) / sum((p[0] - x)**2 for p in points)


def text(value, digits):
    return f"{'-' if value is None else f'{value:.{digits}f}':>10}"


def run_graph(args, graph, phases, folder):
    sizes = [int(size) for size in args.sizes.split(',')]
    table = []
    for size in [1] + sizes:
        model = os.path.join(folder, f'{graph}.onnx')
        with open(model, 'wb') as file:
            file.write(GENERATORS[graph](size))
        seconds = {}
        for phase in phases:
            if phase != 'compile':
                seconds.update(measure(args, phase, model, folder))
        table.append([seconds.get(phase) for phase in phases])
        if size != 1:
            print(f'{graph:>12} {size:8d}' + ''.join(text(s, 2) for s in table[-1]), flush=True)
    fits = [exponent(sizes, [row[i] for row in table[1:]], table[0][i] or 0) for i in range(len(phases))]
    print(f'{graph:>12} exponent' + ''.join(text(fit, 2) for fit in fits), flush=True)
    return {'graph': graph, 'sizes': sizes, 'seconds': dict(zip(phases, zip(*table[1:]))),
            'exponents': dict(zip(phases, fits))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', default='build/release/bin/onnxtrain')
    parser.add_argument('--graphs', default='chain,tree,dense,rnn')
    parser.add_argument('--sizes', default='1000,10000,100000')
    parser.add_argument('--phases', default=','.join(PHASES))
    parser.add_argument('--clock', choices=CLOCKS, default='wall')
    parser.add_argument('--limit', type=float, default=300, help='seconds of one run')
    parser.add_argument('--flags', default='', help='further flags of every run')
    parser.add_argument('--out', help='JSON')
    args = parser.parse_args()
    phases = [phase for phase in PHASES if phase in args.phases.split(',')]
    print(f"{'graph':>12} {'nodes':>8}" + ''.join(f'{phase:>10}' for phase in phases))
    with tempfile.TemporaryDirectory() as folder:
        results = [run_graph(args, graph, phases, folder) for graph in args.graphs.split(',')]
    if args.out:
        with open(args.out, 'w') as file:
            json.dump(results, file, indent=2)


if __name__ == '__main__':
    main()
