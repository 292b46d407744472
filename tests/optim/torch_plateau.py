"""PyTorch's ReduceLROnPlateau on a recorded sequence of metrics.

    python3 torch_plateau.py FILE.npz     metrics, and for each case the rate after every evaluation
"""
import sys

import numpy as np
import torch

CASES = {
    'plain': dict(patience=2),
    'cooling': dict(factor=0.5, patience=1, cooldown=3, threshold=0.01),
    'rising': dict(mode='max', factor=0.3, patience=0, threshold=0.05),
    'bounded': dict(factor=0.1, patience=0, threshold=0.5, min_lr=3e-3),
}


def main(path):
    steps = np.arange(60)
    metrics = 2 + np.exp(-steps / 9) + 0.15 * np.random.default_rng(3).standard_normal(60)
    arrays = {'metrics': metrics}
    for name, options in CASES.items():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        rates = []
        for metric in metrics:
            schedule.step(float(metric))
            rates.append(optimizer.param_groups[0]['lr'])
        arrays[name] = np.array(rates)
    np.savez(path, **arrays)


if __name__ == '__main__':
    main(*sys.argv[1:])
