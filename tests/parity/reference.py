"""Trains the models of models.py in PyTorch and writes the reference values of the parity test.

    python3 reference.py FOLDER

Writes for every model NAME, next to the files of models.py:

    NAME.data.npz       x, y: the samples of STEPS consecutive batches of BATCH
    NAME.first.npz      float64: loss and gradients of the first batch in training mode
    NAME.global_batch.npz  x, y: GLOBAL_BATCH samples; loss and gradients (models without BatchNorm)
    NAME.RULE.npz       float64: losses [STEPS] and final weights and running statistics "w:…"; and the distance of
                        PyTorch's float32 runs from them, one entry per variant: loss_distance (largest difference of a
                        step's loss), "d:…" (relative norm of each tensor)

Gradients are "g:…"; gradients whose exact value is zero are "z:…". adapter_reference.py adds NAME.VARIANT.npz.
"""
import os
import sys
import time

os.environ['OMP_WAIT_POLICY'] = 'PASSIVE'  # threads that spin would slow a busy machine down

import numpy as np
import torch
from torch.nn import functional as F

import adapter_reference as adapters
import models

STEPS, BATCH, GLOBAL_BATCH = 50, 16, 27
RULES = {
    'sgd': dict(make=lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4), clip=None),
    'adamw': dict(make=lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.01), clip=1.0),
}
# PyTorch against itself.
VARIANTS = [dict(threads=threads, mkldnn=mkldnn) for threads in (1, 2) for mkldnn in (True, False)]


def load(name, folder, dtype):
    net = models.model(name)
    weights = np.load(os.path.join(folder, f'{name}.weights.npz'))
    net.load_state_dict({k: torch.from_numpy(weights[k]) for k in weights.files}, strict=False)
    return net.train().to(dtype)


def loss_of(net, x, y):
    logits = net(x)
    return F.cross_entropy(logits.flatten(0, -2), y.flatten(), ignore_index=-100)


def tensors(x, y, dtype):
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    return (x.to(dtype) if x.is_floating_point() else x), y


def gradients(name, folder, x, y):
    net = load(name, folder, torch.float64)
    loss = loss_of(net, *tensors(x, y, torch.float64))
    loss.backward()
    mark = lambda n: ('z:' if models.CASES[name].is_zero(n) else 'g:') + n
    return dict(loss=loss.item(), **{mark(n): p.grad.numpy() for n, p in net.named_parameters()})


def train(name, folder, rule, dtype, x, y, threads=1, mkldnn=True):
    torch.set_num_threads(threads)
    net = load(name, folder, dtype)
    optimizer = RULES[rule]['make'](net.parameters())
    losses = []
    with torch.backends.mkldnn.flags(enabled=mkldnn):
        for step in range(STEPS):
            at = slice(step * BATCH, (step + 1) * BATCH)
            optimizer.zero_grad()
            loss = loss_of(net, *tensors(x[at], y[at], dtype))
            loss.backward()
            if RULES[rule]['clip']:
                torch.nn.utils.clip_grad_norm_(net.parameters(), RULES[rule]['clip'])
            optimizer.step()
            losses.append(loss.item())
    weights = {k: v.double().numpy() for k, v in net.state_dict().items() if v.is_floating_point()}
    return np.array(losses), weights


def distance(got, want):
    return np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-300)


def reference(name, folder, rule, x, y):
    losses, weights = train(name, folder, rule, torch.float64, x, y)
    runs = [train(name, folder, rule, torch.float32, x, y, **v) for v in VARIANTS]
    return dict(losses=losses, loss_distance=[np.abs(l - losses).max() for l, _ in runs],
                **{'w:' + k: v for k, v in weights.items()},
                **{'d:' + k: [distance(w[k], v) for _, w in runs] for k, v in weights.items()})


def adapter_reference(name, folder, variant, x, y):
    batches = (tensors(x[i:i + BATCH], y[i:i + BATCH], torch.float64) for i in range(0, STEPS * BATCH, BATCH))
    rule = RULES['adamw']
    return adapters.train(load(name, folder, torch.float64), variant, batches, loss_of, rule['make'], rule['clip'])


def main(folder):
    models.export_all(folder)
    for name, case in models.CASES.items():
        start = time.time()
        save = lambda kind, arrays: np.savez(os.path.join(folder, f'{name}.{kind}.npz'), **arrays)
        rng = np.random.default_rng(7)
        x, y = case.batch(rng, STEPS * BATCH)
        save('data', dict(x=x, y=y))
        save('first', gradients(name, folder, x[:BATCH], y[:BATCH]))
        if name != 'resnet':
            x1, y1 = case.batch(rng, GLOBAL_BATCH)
            save('global_batch', dict(x=x1, y=y1, **gradients(name, folder, x1, y1)))
        for rule in RULES:
            save(rule, reference(name, folder, rule, x, y))
        for variant in adapters.CASES.get(name, ()):
            save(variant, adapter_reference(name, folder, variant, x, y))
        print(f'{name}: {time.time() - start:.1f} s in PyTorch', flush=True)


if __name__ == '__main__':
    main(sys.argv[1])
