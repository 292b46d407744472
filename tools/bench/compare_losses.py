#!/usr/bin/env python3
"""Compares the losses of two runs of the same updates on different devices.

    tools/bench/compare_losses.py A/metrics.jsonl B/metrics.jsonl [TOLERANCE]

Fails where a loss differs by more than TOLERANCE (1e-4) of itself, or where the runs have different updates.
"""
import json
import sys


def losses(path):
    """Returns the training loss by update."""
    with open(path) as lines:
        rows = [json.loads(line) for line in lines]
    return {row['step']: row['loss'] for row in rows if row['event'] == 'step' and row['loss'] is not None}


def main(a, b, tolerance):
    a, b = losses(a), losses(b)
    if not a or a.keys() != b.keys():
        sys.exit(f'{len(a)} and {len(b)} updates, of which {len(a.keys() & b.keys())} are in both')
    difference = {step: abs(a[step] - b[step]) / max(abs(a[step]), 1e-6) for step in a}
    worst = max(difference, key=difference.get)
    print(f'{len(a)} updates; the largest difference is {difference[worst]:.2e}, in update {worst}')
    sys.exit(difference[worst] > tolerance)


if __name__ == '__main__':
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) == 4 else 1e-4)
