"""Writes PyTorch's learning rates.

    python3 torch_schedules.py FILE.npz

For each schedule the rates of 100 updates; metrics, and for each plateau schedule the rate after every evaluation.
"""
import sys

import numpy as np
import torch
import torch.optim.lr_scheduler as S

SCHEDULES = {
    'linear': lambda o: S.LinearLR(o, start_factor=1, end_factor=0, total_iters=100),
    'cosine': lambda o: S.CosineAnnealingLR(o, T_max=100, eta_min=1e-3),
    'cosine_restarts': lambda o: S.CosineAnnealingWarmRestarts(o, T_0=10, T_mult=2),
    'polynomial': lambda o: S.PolynomialLR(o, total_iters=100, power=2),
    'step': lambda o: S.StepLR(o, step_size=30, gamma=0.5),
    'multistep': lambda o: S.MultiStepLR(o, milestones=[20, 50], gamma=0.2),
    'exponential': lambda o: S.ExponentialLR(o, gamma=0.97),
    'one_cycle': lambda o: S.OneCycleLR(o, max_lr=0.1, total_steps=100, cycle_momentum=False),
}

PLATEAUS = {
    'plain': dict(patience=2),
    'cooling': dict(factor=0.5, patience=1, cooldown=3, threshold=0.01),
    'rising': dict(mode='max', factor=0.3, patience=0, threshold=0.05),
    'bounded': dict(factor=0.1, patience=0, threshold=0.5, min_lr=3e-3),
}


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def rate(o):
    return o.param_groups[0]['lr']


def main(path):
    steps = np.arange(60)
    metrics = 2 + np.exp(-steps / 9) + 0.15 * np.random.default_rng(3).standard_normal(60)
    arrays = {'metrics': metrics}
    for name, make in SCHEDULES.items():
        o = optimizer()
        schedule = make(o)
        rates = []
        for _ in range(100):
            rates.append(rate(o))
            o.step()
            schedule.step()
        arrays[name] = np.array(rates)
    for name, options in PLATEAUS.items():
        o = optimizer()
        schedule = S.ReduceLROnPlateau(o, **options)
        rates = []
        for metric in metrics:
            schedule.step(float(metric))
            rates.append(rate(o))
        arrays[name] = np.array(rates)
    np.savez(path, **arrays)


if __name__ == '__main__':
    main(*sys.argv[1:])
