"""Writes PyTorch's losses in float64 and their gradients.

    python3 torch_losses.py FILE.npz     for each case CASE:x, CASE:label (CASE:label:1 …), CASE:loss and CASE:grad
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F

RNG = np.random.default_rng(11)


def logits(*shape):
    return torch.tensor(RNG.standard_normal(shape) * 1.5, requires_grad=True)


def classes(shape, count, ignored=0.0):
    labels = RNG.integers(0, count, shape)
    labels[RNG.random(shape) < ignored] = -100
    return torch.tensor(labels)


def coins(*shape):
    return torch.tensor(RNG.integers(0, 2, shape).astype(np.float64))


def shares(*shape):
    return torch.softmax(torch.tensor(RNG.standard_normal(shape)), -1)


def weights(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def padded(rows):
    longest = max(map(len, rows))
    return torch.tensor([row + [-100] * (longest - len(row)) for row in rows])


# torchvision.ops.sigmoid_focal_loss, reduction='mean'
def focal_coins(y, t, gamma=2, alpha=0.25):
    p = torch.sigmoid(y)
    ce = F.binary_cross_entropy_with_logits(y, t, reduction='none')
    p_t = p * t + (1 - p) * (1 - t)
    return ((alpha * t + (1 - alpha) * (1 - t)) * ce * (1 - p_t) ** gamma).mean()


def focal_classes(y, t, gamma=2, alpha=1):
    kept = t != -100
    log_p = F.log_softmax(y, 1).gather(1, t.clamp(min=0).unsqueeze(1)).squeeze(1)
    return (-alpha * (1 - log_p.exp()) ** gamma * log_p)[kept].sum() / kept.sum()


def focal_shares(y, t, gamma=2):
    log_p = F.log_softmax(y, -1)
    return -(t * (1 - log_p.exp()) ** gamma * log_p).sum() / t[..., 0].numel()


# p and t: [N, regions, …]
def dice(p, t, smooth=1):
    p, t = p.flatten(2), t.flatten(2)
    return (1 - (2 * (p * t).sum(2) + smooth) / (p.sum(2) + t.sum(2) + smooth)).mean()


def dice_classes(y, t, smooth=1):
    kept = (t != -100).unsqueeze(1)
    one_hot = F.one_hot(t.clamp(min=0), y.shape[1]).movedim(-1, 1) * kept
    return dice(torch.softmax(y, 1) * kept, one_hot, smooth)


def ctc(y, t, blank=0, reduction='mean'):
    lengths = (t != -100).sum(1)
    log_p = F.log_softmax(y, -1).transpose(0, 1)
    return F.ctc_loss(log_p, t.clamp(min=0), torch.full((len(y),), y.shape[1]), lengths, blank=blank,
                      reduction=reduction, zero_infinity=True)


# name → (x, [labels], loss of y and the labels); the model's output is y = 2·x
CASES = {
    'ce': (logits(6, 5), [classes(6, 5)], F.cross_entropy),
    'ce_pixels_ignored': (logits(2, 4, 3, 5), [classes((2, 3, 5), 4, 0.3)], F.cross_entropy),
    'ce_shares': (logits(6, 5), [shares(6, 5)], F.cross_entropy),
    'nll': (logits(6, 5), [classes(6, 5, 0.3)], F.nll_loss),
    'bce': (logits(4, 3), [coins(4, 3)], F.binary_cross_entropy_with_logits),
    'mse': (logits(4, 3), [torch.tensor(RNG.standard_normal((4, 3)))], F.mse_loss),
    'l1': (logits(4, 3), [torch.tensor(RNG.standard_normal((4, 3)))], F.l1_loss),
    'dot': (logits(4, 3), [torch.tensor(RNG.standard_normal((4, 3)))], lambda y, t: (y * t).sum() / 4),
    'huber': (logits(4, 3), [torch.tensor(RNG.standard_normal((4, 3)))], lambda y, t: F.huber_loss(y, t, delta=0.5)),
    'focal_coins': (logits(4, 3), [coins(4, 3)], focal_coins),
    'focal_coins_sharp': (logits(4, 3), [coins(4, 3)], lambda y, t: focal_coins(y, t, 0.5, 0.6)),
    'focal_classes': (logits(6, 5), [classes(6, 5, 0.3)], lambda y, t: focal_classes(y, t, 3, 0.5)),
    'focal_shares': (logits(6, 5), [shares(6, 5)], focal_shares),
    'dice_pixels': (logits(2, 4, 3, 5), [classes((2, 3, 5), 4, 0.3)], dice_classes),
    'dice_steps': (logits(2, 7, 4), [classes((2, 7), 4, 0.3)], lambda y, t: dice_classes(y.transpose(1, 2), t, 0.5)),
    'dice_coins': (logits(3, 2, 4, 5), [coins(3, 2, 4, 5)], lambda y, t: dice(torch.sigmoid(y), t)),
    'dice_mask': (logits(3, 1, 4, 5), [coins(3, 4, 5)], lambda y, t: dice(torch.sigmoid(y), t.unsqueeze(1))),
    'ctc': (logits(5, 9, 6), [padded([[1, 2, 2, 5], [3], [4, 4], [], [1, 2, 3, 4]])], ctc),
    'ctc_blank_last': (logits(3, 7, 5), [padded([[0, 0, 3], [1, 2], [3, 0, 1]])], lambda y, t: ctc(y, t, 4)),
    'ctc_too_few_steps': (logits(4, 4, 5), [padded([[1, 2], [1, 1, 1], [3], [2, 4, 3]])], ctc),
    'ctc_sums': (logits(4, 4, 5), [padded([[1, 2], [1, 1, 1], [3], [1, 2, 3, 4, 1]])],
                 lambda y, t: ctc(y, t, reduction='sum') / 4),
    'ctc_ties': (torch.zeros(2, 6, 4, dtype=torch.float64, requires_grad=True), [padded([[1, 1], [2, 3]])], ctc),
    'sum': (logits(6, 5), [classes(6, 5, 0.3), torch.tensor(RNG.standard_normal((6, 5)))],
            lambda y, t, u: 0.5 * F.cross_entropy(y, t) + 2 * F.l1_loss(y, u)),
    'sum_of_one_label': (logits(2, 4, 3, 5), [classes((2, 3, 5), 4, 0.3)],
                         lambda y, t: F.cross_entropy(y, t) + dice_classes(y, t)),
    'ce_weighted': (logits(6, 5), [classes(6, 5, 0.3)], lambda y, t: F.cross_entropy(y, t, weights(0.5, 2, 0, 3, 1))),
    'ce_weighted_smooth': (logits(2, 4, 3, 5), [classes((2, 3, 5), 4, 0.3)],
                           lambda y, t: F.cross_entropy(y, t, weights(0.5, 2, 0.25, 3), label_smoothing=0.1)),
    'ce_weighted_shares': (logits(6, 4), [shares(6, 4)],
                           lambda y, t: F.cross_entropy(y, t, weights(0.5, 2, 0, 3), label_smoothing=0.2)),
    'nll_weighted': (logits(6, 5), [classes(6, 5, 0.3)], lambda y, t: F.nll_loss(y, t, weights(0.5, 2, 0, 3, 1))),
}


def main(path):
    arrays = {}
    for name, (x, labels, loss) in CASES.items():
        value = loss(x * 2, *labels)
        value.backward()
        arrays[name + ':x'] = x.detach().numpy()
        arrays[name + ':loss'] = value.detach().numpy()
        arrays[name + ':grad'] = x.grad.numpy()
        for i, label in enumerate(labels):
            arrays[name + ':label' + (f':{i}' if i else '')] = label.numpy()
    np.savez(path, **arrays)


if __name__ == '__main__':
    main(*sys.argv[1:])
