"""Replays PyTorch's update rules on a recorded sequence of gradients in float64.

    python3 torch_rules.py FILE.npz

Writes start, gradients [steps, n], and for each case the parameters after every update [steps, n].
"""
import sys

import numpy as np
import torch

STEPS, SIZE = 200, 1031  # more than a tile of vectors, with a tail

# The names are those of the cases in torch_rules_test.cc.
CASES = {
    'sgd': lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.01),
    'sgd_momentum': lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    'sgd_dampened': lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, dampening=0.3),
    'sgd_nesterov': lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    'adam': lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    'adamw': lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    'rmsprop': lambda p: torch.optim.RMSprop(p, lr=0.01, weight_decay=0.01),
    'rmsprop_momentum': lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9),
    'sgd_cosine': lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    'adagrad': lambda p: torch.optim.Adagrad(p, lr=0.1, weight_decay=0.01),
}
SCHEDULES = {'sgd_cosine': lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=STEPS)}


def main(path):
    rng = np.random.default_rng(5)
    start = rng.standard_normal(SIZE)
    gradients = rng.standard_normal((STEPS, SIZE)) * np.exp(-0.01 * np.arange(STEPS))[:, None]
    arrays = {'start': start, 'gradients': gradients}
    for name, make in CASES.items():
        parameter = torch.nn.Parameter(torch.tensor(start))
        optimizer = make([parameter])
        schedule = SCHEDULES[name](optimizer) if name in SCHEDULES else None
        trajectory = []
        for gradient in gradients:
            parameter.grad = torch.tensor(gradient)
            optimizer.step()
            if schedule:
                schedule.step()
            trajectory.append(parameter.detach().numpy().copy())
        arrays[name] = np.stack(trajectory)
    np.savez(path, **arrays)


if __name__ == '__main__':
    main(*sys.argv[1:])
