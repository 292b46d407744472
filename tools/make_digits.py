#!/usr/bin/python3
"""Generates images of handwritten-looking digits: make_digits.py FILE.npz COUNT SEED

Writes image u8 [COUNT, 28, 28] and label i64 [COUNT]. Every digit is a few strokes with jittered control points under a
random affine map, with random thickness and noise. Needs numpy only.
"""
import sys

import numpy as np


def arc(x, y, rx, ry, begin, end, points=9):
    """Part of an ellipse as a polyline; angles in degrees, clockwise from the right (y points down)."""
    t = np.radians(np.linspace(begin, end, points))
    return np.stack([x + rx * np.cos(t), y + ry * np.sin(t)], 1)


def line(*points):
    return np.array(points, float)


# Strokes in a box from (-1, -1) at the upper left to (1, 1).
STROKES = {
    0: [arc(0, 0, .55, .9, 0, 360, 15)],
    1: [line((-.35, -.55), (.05, -.9), (.05, .9))],
    2: [np.concatenate([arc(0, -.4, .5, .5, 190, 380), line((-.55, .9), (.6, .9))])],
    3: [arc(-.05, -.45, .5, .45, 200, 450), arc(-.05, .42, .55, .48, 270, 520)],
    4: [line((.25, .9), (.25, -.9), (-.6, .35), (.6, .35))],
    5: [np.concatenate([line((.5, -.9), (-.4, -.9), (-.45, -.1)), arc(-.05, .35, .55, .52, 230, 510)])],
    6: [np.concatenate([line((.35, -.9), (-.25, -.3)), arc(0, .4, .5, .48, 190, 550, 13)])],
    7: [line((-.55, -.9), (.55, -.9), (-.15, .9))],
    8: [arc(0, -.45, .42, .43, 90, 450, 12), arc(0, .43, .52, .46, -90, 270, 12)],
    9: [np.concatenate([arc(0, -.4, .5, .48, 10, 370, 13), line((.48, -.3), (.3, .9))])],
}

AXIS = (np.arange(28) - 13.5) / 10  # the box is 20 pixels high
PIXELS = np.stack(np.meshgrid(AXIS, AXIS), -1).reshape(-1, 1, 2)


def distance(a, b):
    """Of every pixel to the nearest of the segments a[i]–b[i]."""
    along = b - a
    t = ((PIXELS - a) * along).sum(-1) / np.maximum((along ** 2).sum(-1), 1e-9)
    nearest = a + np.clip(t, 0, 1)[..., None] * along
    return np.sqrt(((PIXELS - nearest) ** 2).sum(-1)).min(1)


def draw(digit, rng):
    angle, shear = rng.normal(0, .12), rng.normal(0, .15)
    scale = np.diag(rng.uniform(.75, 1.1, 2))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    affine = turn @ np.array([[1, shear], [0, 1]]) @ scale
    shift = rng.uniform(-.25, .25, 2)
    strokes = [(s + rng.normal(0, .04, s.shape)) @ affine.T + shift for s in STROKES[digit]]
    d = distance(np.concatenate([s[:-1] for s in strokes]), np.concatenate([s[1:] for s in strokes]))
    ink = np.clip((rng.uniform(.08, .17) - d) / .1 + .5, 0, 1) * rng.uniform(.7, 1)
    return np.clip(255 * (ink + rng.normal(0, .06, ink.shape)), 0, 255).astype(np.uint8).reshape(28, 28)


def main(path, count, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    np.savez_compressed(path, image=np.stack([draw(d, rng) for d in labels]), label=labels)


if __name__ == '__main__':
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
