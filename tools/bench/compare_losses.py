#!/usr/bin/env python3
"""Compares the losses of two runs of the same updates on different devices.

    tools/bench/compare_losses.py A/metrics.jsonl B/metrics.jsonl [TOLERANCE [NUDGED/metrics.jsonl…]]

Fails where a loss differs by more than TOLERANCE (1e-4) of itself, or where the runs have different updates. NUDGED
are runs like A from weights that moved by a few units in the last place: what rounding does to this model. With them, B
may differ from A by three times the largest distance between them and A up to that update, if that is more; in the
first update, whose weights no gradient has changed, by 1e-5 at most.
"""
import itertools
import json
import sys

FIRST_TOLERANCE, SPREAD = 1e-5, 3


def losses(path):
    """Returns the training loss by update."""
    with open(path) as lines:
        rows = [json.loads(line) for line in lines]
    return {row['step']: row['loss'] for row in rows if row['event'] == 'step' and row['loss'] is not None}


def differences(a, b):
    """Returns the relative difference of each update, in order."""
    if not a or a.keys() != b.keys():
        sys.exit(f'{len(a)} and {len(b)} updates, of which {len(a.keys() & b.keys())} are in both')
    return [abs(a[step] - b[step]) / max(abs(a[step]), 1e-6) for step in sorted(a)]


def main(a, b, tolerance=1e-4, *nudged):
    a = losses(a)
    found = differences(a, losses(b))
    allowed = [float(tolerance)] * len(found)
    if nudged:
        moved = itertools.accumulate(map(max, zip(*(differences(a, losses(run)) for run in nudged))), max)
        allowed = [max(float(tolerance), SPREAD * m) for m in moved]
        allowed[0] = FIRST_TOLERANCE
    worst = max(range(len(found)), key=lambda i: found[i] / allowed[i])
    print(f'{len(found)} updates; the largest difference is {found[worst]:.2e} of {allowed[worst]:.2e} allowed, '
          f'in update {sorted(a)[worst]}')
    sys.exit(found[worst] > allowed[worst])


if __name__ == '__main__':
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
