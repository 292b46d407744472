#!/usr/bin/env python3
"""Measures a training step beside another process that takes a CPU, of onnxtrain and of PyTorch eager.

    tools/bench/busy_machine.py --case resnet50 --peer-python ~/venv/bin/python --limit 1.6

Rounds alternate between an idle machine and one on which --busy processes (default 1) compute without end. The factor
is the busy median over the idle one. Exits with 1 if onnxtrain's is above --limit. With B of C CPUs taken, a program
that loses nothing has a factor of C / (C − B / 2): the scheduler shares a taken CPU.
"""
import contextlib
import json
import statistics
import subprocess
import sys

import models
import peers
import vs_torch


@contextlib.contextmanager
def busy_processes(count):
    """Keeps `count` CPUs busy."""
    started = [subprocess.Popen([sys.executable, '-c', 'while True: pass']) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


class Times:
    """Seconds of the steps of one program, idle and busy."""

    def __init__(self, run):
        self.run, self.idle, self.busy = run, [], []

    def round(self, steps, target):
        self.run.seconds.clear()
        self.run.round(steps)
        target += self.run.seconds

    def json(self):
        idle, busy = statistics.median(self.idle), statistics.median(self.busy)
        return {'name': self.run.name, 'idle': vs_torch.quartiles(self.idle), 'busy': vs_torch.quartiles(self.busy),
                'factor': busy / idle}


def start(args):
    """Returns the programs: onnxtrain in float32 and bf16, then each interpreter's peers."""
    case = models.CASES[args.case]
    batch, loss = args.batch or case.batch, case.loss_flag()
    pythons = vs_torch.usable_pythons(args.case, args)
    model = vs_torch.export(args.case, args, pythons)
    spec = peers.specification(args.case, args.folder_of.get(args.case, ''), batch, args.seed, 'cpu')
    runs = [vs_torch.Ours(precision, model, batch, args, loss) for precision in ('f32', 'bf16')]
    for python in pythons:
        runs += peers.start_peers(python, spec, ('f32', 'bf16'), (), False, vs_torch.log)
    return [Times(run) for run in runs]


def measure(args):
    programs = start(args)
    counts = [vs_torch.steps_for(t.run.round(3), args.seconds) for t in programs]
    for _ in range(args.rounds):
        for times, steps in zip(programs, counts):
            times.round(steps, times.idle)
            with busy_processes(args.busy):
                times.round(steps, times.busy)
    for times in programs:
        times.run.close()
    return [times.json() for times in programs]


def report(results, args):
    print(f'{args.case}, {args.busy} of {peers.cpus()} CPUs taken; {vs_torch.machine()}')
    print(f'{"":<48} {"idle ms":>10} {"busy ms":>10} {"factor":>7}')
    for r in results:
        idle, busy = r['idle']['median_seconds'] * 1e3, r['busy']['median_seconds'] * 1e3
        print(f'{r["name"]:<48} {idle:10.2f} {busy:10.2f} {r["factor"]:7.2f}')


def main():
    parser = vs_torch.make_parser(__doc__)
    parser.add_argument('--case', default='resnet50', choices=list(models.CASES))
    parser.add_argument('--busy', type=vs_torch.at_least_one, default=1, help='processes that take a CPU each')
    parser.add_argument('--limit', type=float, help='largest factor of onnxtrain that passes')
    args = parser.parse_args()
    results = []
    vs_torch.prepared(parser, args, lambda: results.extend(measure(args)))
    report(results, args)
    if args.json:
        with open(args.json, 'w') as f:
            json.dump(results, f, indent=1)
    slow = [r['name'] for r in results if r['name'].startswith('onnxtrain') and r['factor'] > (args.limit or 1e9)]
    return f'above {args.limit}: {", ".join(slow)}' if slow else 0


if __name__ == '__main__':
    sys.exit(main())
