#!/usr/bin/env python3
"""Measures every case of vs_torch.py in float32 and bf16 and prints the table of docs/benchmarks.md.

    tools/bench/all.py --peer-python /usr/bin/python3 --peer-python ~/venv/bin/python --folder-of minilm=PATH

Takes the options of vs_torch.py. Cases whose libraries no --peer-python has, or whose folder is not given, are named
and left out. On an otherwise idle machine.
"""
import json
import sys

import models
import peers
import vs_torch


def measurable(args):
    """Returns the cases that can be measured here; names the others."""
    names, folders = [], dict(args.folder_of)
    for name, case in models.CASES.items():
        if case.folder and name not in folders:
            print(f'left out: {name} needs --folder-of {name}=PATH', file=sys.stderr)
        elif all(peers.lacks(python, case.needs) for python in args.peer_python or [sys.executable]):
            print(f'left out: {name} needs {", ".join(case.needs)}', file=sys.stderr)
        else:
            names.append(name)
    return names


def milliseconds(entry):
    return (f'{entry["median_seconds"] * 1e3:.3g} ({entry["quartile_1"] * 1e3:.3g} to '
            f'{entry["quartile_3"] * 1e3:.3g})')


def row(result, precision):
    ours = next(e for e in result['runs'].values() if e['ours'] and e['precision'] == precision)
    ratio = result['ratios'][precision]
    peer = result['runs'][ratio['peer']]
    memory = result['memory']
    peak = f'{memory["step"]["over_peer"]:.2f}' if memory and precision == 'f32' else ''
    return (f'| {result["case"]} B={result["batch"]} | {precision} | {milliseconds(ours)} | {milliseconds(peer)} '
            f'| {ratio["peer"]} | {ratio["ratio"]:.2f} | {peak} |')


def table(results):
    """Returns the lines of the table; the median and the quartiles of a step in ms."""
    first = results[0]
    lines = [f'{first["date"]}, {first["machine"]}, seed {first["seed"]}', '',
             '| case | precision | onnxtrain, ms | fastest peer, ms | which | ratio | peak memory |',
             '|---|---|---|---|---|---|---|']
    for result in results:
        lines += [row(result, precision) for precision in result['ratios']]
    return lines


def main():
    if sys.argv[1:2] == ['--table']:  # of an earlier run's --json
        with open(sys.argv[2]) as f:
            return print('\n'.join(table(json.load(f))))
    parser = vs_torch.make_parser(__doc__)
    parser.add_argument('--table', metavar='FILE', help='only print the table of a --json FILE')
    args = parser.parse_args()
    print('\n'.join(table(vs_torch.run_cases(measurable(args), parser, args))))


if __name__ == '__main__':
    main()
