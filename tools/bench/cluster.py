#!/usr/bin/env python3
"""Predicts the step of data parallel training on up to thousands of ranks from the pieces of a measured one.

    tools/bench/cluster.py measure --case bert6_512 --processes 2 --out pieces.json
    tools/bench/cluster.py predict pieces.json --link 25gbit --latency 20us --per-machine 8 --inside 100gbit
    tools/bench/cluster.py check --case bert6_512 --ranks 2,4 --links 100mbit,1gbit           as root: netns.sh

`measure` trains with processes that know nothing of each other, one per rank, and writes seconds of forward, backward
and update, and the bytes of the gradient. `predict` plays one update: buckets of 4 MiB become ready while the backward
pass of the last micro-batch runs, evenly by their bytes, and a thread sums one after the other. A ring of N ranks sums
b bytes in 2(N - 1) steps, each of which takes the latency and the time of b/N bytes on the slowest edge; N - 1 more
gather the losses, and with --shard optimizer the weights. `check` compares predictions with measured runs on shaped
links.

Not in the model: congestion of switches, and ranks that compute at different speeds (--spread has all wait for the
slowest of N whose steps vary by that share, as a normal distribution).
"""
import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

BUCKET = 4 << 20
HEADERS = 1448 / 1514  # of an Ethernet frame of TCP, this part is data


@dataclass
class Network:
    """Of machines with `per_machine` ranks. Bytes per second, each way; seconds."""
    bandwidth: float
    latency: float
    per_machine: int = 1
    inside_bandwidth: float = math.inf
    inside_latency: float = 0

    def step(self, ranks, size):
        """Seconds until every rank of a ring has passed `size` bytes to the next one."""
        edges = []
        if ranks > self.per_machine:
            edges.append(self.latency + size / self.bandwidth)
        if self.per_machine > 1:
            edges.append(self.inside_latency + size / self.inside_bandwidth)
        return max(edges)

    def gather(self, ranks, size):
        """`size`: bytes of all ranks together."""
        return (ranks - 1) * self.step(ranks, size / ranks)

    def reduce(self, ranks, size):
        return 2 * self.gather(ranks, size)


@dataclass
class Choice:
    """How a training uses the ranks."""
    rounds: bool = False  # gradients are sent as bfloat16
    shard: bool = False   # each rank updates a share of the weights
    strong: bool = False  # the global batch stays; else that of a rank
    spread: float = 0


def buckets(size):
    """Sizes of the buckets of a gradient."""
    return [min(BUCKET, size - at) for at in range(0, size, BUCKET)]


def slowest(ranks, spread):
    """The longest of the steps of N ranks, relative to their mean."""
    if ranks == 1 or spread == 0:
        return 1
    return 1 + spread * statistics.NormalDist().inv_cdf(1 - 1 / (ranks + 1))


def predict(pieces, network, ranks, choice=Choice()):
    """Returns seconds and bytes of an update of each of `ranks` ranks."""
    share = (1 / ranks if choice.strong else 1) * slowest(ranks, choice.spread)
    computed = (pieces['forward'] + pieces['backward']) * share
    update = pieces['update'] / (ranks if choice.shard else 1)
    sizes = buckets(pieces['gradient_bytes'])
    overlap = pieces['backward'] * share / pieces['accumulation']
    wire, ready, summed, busy = 2 if choice.rounds else 1, 0, 0, 0
    for size in sizes if ranks > 1 else []:
        ready += size
        begin = max(summed, computed - overlap * (1 - ready / pieces['gradient_bytes']))
        seconds = network.reduce(ranks, size / wire)
        summed, busy = begin + seconds, busy + seconds
    losses = network.gather(ranks, 64 * ranks) if ranks > 1 else 0
    weights = network.gather(ranks, pieces['gradient_bytes']) if choice.shard and ranks > 1 else 0
    exposed = max(0, summed - computed) + losses + weights
    step = computed + exposed + update + pieces['other']
    sent = (2 / wire + choice.shard) * pieces['gradient_bytes'] * (ranks - 1) / ranks
    samples = pieces['batch'] * (1 if choice.strong else ranks)
    return {'ranks': ranks, 'seconds': step, 'exposed': exposed, 'communication': busy + losses + weights,
            'sent_bytes': sent, 'samples_per_second': samples / step}


def parse_rate(text):
    """Returns bytes per second of 1gbit, 200mbit, as tc has them, that carry data."""
    for unit, bits in (('gbit', 1e9), ('mbit', 1e6), ('kbit', 1e3)):
        if text.endswith(unit):
            return float(text[:-len(unit)]) * bits / 8 * HEADERS
    sys.exit(f'{text}: expected a rate like 1gbit or 200mbit')


def parse_time(text):
    for unit, seconds in (('us', 1e-6), ('ms', 1e-3), ('s', 1)):
        if text.endswith(unit):
            return float(text[:-len(unit)]) * seconds
    sys.exit(f'{text}: expected a time like 20us or 1ms')


def table(rows):
    first = rows[0]
    print(f'{"ranks":>6} {"step s":>9} {"exposed s":>10} {"hidden":>7} {"MB sent":>9} {"samples/s":>11} '
          f'{"efficiency":>11}')
    for row in rows:
        hidden = 1 - row['exposed'] / row['communication'] if row['communication'] > 0 else 1
        efficiency = row['samples_per_second'] / first['samples_per_second'] * first['ranks'] / row['ranks']
        print(f'{row["ranks"]:6} {row["seconds"]:9.4f} {row["exposed"]:10.4f} {100 * hidden:6.0f}% '
              f'{row["sent_bytes"] / 1e6:9.1f} {row["samples_per_second"]:11.1f} {100 * efficiency:10.1f}%')


# --- Measurements


def bind(process, processes):
    """The command that gives a process its share of the CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    width = max(1, len(cpus) // processes)
    first = process * width % len(cpus)
    return ['taskset', '-c', ','.join(map(str, cpus[first:first + width]))]


def train(args, model, batch, out):
    import models
    return [args.onnxtrain, '--model', model, '--batch-size', str(batch), '--max-steps', str(args.steps), '--loss',
            models.CASES[args.case].loss_flag(), '--optimizer', 'adamw', '--lr', '1e-6', '--max-grad-norm', '1',
            '--quiet', '--json', '--overwrite', '--out', out]


def summaries(commands):
    """Runs the commands at the same time and returns what they print."""
    processes = [subprocess.Popen(c, stdout=subprocess.PIPE) for c in commands]
    texts = [p.communicate()[0] for p in processes]
    for process, command in zip(processes, commands):
        if process.returncode != 0:
            sys.exit(f'{" ".join(command)}: ended with {process.returncode}')
    return [json.loads(text) for text in texts]


def measure(args, model, processes, folder):
    """Returns the pieces of a step of one of so many processes, which share this machine."""
    import models
    batch = args.batch or models.CASES[args.case].batch
    runs = summaries([bind(p, processes) + train(args, model, batch, f'{folder}/alone{p}') for p in range(processes)])
    slow = max(runs, key=lambda s: s['step_seconds']['median'])
    step, split = slow['step_seconds']['median'], slow['time_split']
    part = {name: split[name] / split['compute'] * step for name in ('forward', 'backward', 'optimizer')}
    return {'case': args.case, 'batch': batch, 'accumulation': slow['accumulation'], 'forward': part['forward'],
            'backward': part['backward'], 'update': part['optimizer'], 'other': step - sum(part.values()),
            'gradient_bytes': slow['planned_bytes']['gradients'] or 4 * slow['trainable_parameters']}


def run_ranks(args, model, ranks, link, folder):
    """Trains on network namespaces; returns the summary of rank 0."""
    import models
    batch = (args.batch or models.CASES[args.case].batch) * ranks
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'netns.sh')
    return summaries([[script, str(ranks), link] + train(args, model, batch, f'{folder}/ranks')])[0]


def check(args, model, folder):
    rows = []
    for ranks in map(int, args.ranks.split(',')):
        pieces = measure(args, model, ranks, folder)
        for link in args.links.split(','):
            summary = run_ranks(args, model, ranks, link, folder)
            expected = predict(pieces, Network(parse_rate(link), parse_time(args.latency)), ranks)
            measured = summary['step_seconds']['median']
            rows.append({'ranks': ranks, 'link': link, 'predicted': expected['seconds'], 'measured': measured,
                         'exposed': expected['exposed'],
                         'measured_exposed': summary['communication']['exposed_seconds'] /
                         summary['communication']['updates']})
            print(f'{ranks} ranks, {link}: predicted {expected["seconds"]:.3f} s, measured {measured:.3f} s '
                  f'({expected["seconds"] / measured:.2f}); exposed {expected["exposed"]:.3f} s, measured '
                  f'{rows[-1]["measured_exposed"]:.3f} s', flush=True)
    return rows


def with_model(args, work):
    """Calls work(model, folder) with an export of the case."""
    import models
    folder = tempfile.mkdtemp(prefix='cluster-')
    try:
        models.export(args.case, f'{folder}/model.onnx', 0)
        return work(f'{folder}/model.onnx', folder)
    finally:
        shutil.rmtree(folder)


def write(path, value):
    if path:
        with open(path, 'w') as f:
            json.dump(value, f, indent=2)


def run_measure(args):
    write(args.out, with_model(args, lambda model, folder: measure(args, model, args.processes, folder)))


def run_predict(args):
    with open(args.pieces) as f:
        pieces = json.load(f)
    network = Network(parse_rate(args.link), parse_time(args.latency), args.per_machine, parse_rate(args.inside),
                      parse_time(args.inside_latency))
    choice = Choice(args.comm_dtype == 'bf16', args.shard == 'optimizer', args.strong, args.spread)
    rows = [predict(pieces, network, ranks, choice) for ranks in map(int, args.ranks.split(','))]
    table(rows)
    write(args.json, rows)


def run_check(args):
    write(args.json, with_model(args, lambda model, folder: check(args, model, folder)))


def add_measured(parser):
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument('--onnxtrain', default=os.path.join(here, '../../build/release/bin/onnxtrain'))
    parser.add_argument('--case', default='bert6_512', help='of models.py')
    parser.add_argument('--batch', type=int, default=0, help='of a rank; 0: that of the case')
    parser.add_argument('--steps', type=int, default=10)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser('measure')
    add_measured(one)
    one.add_argument('--processes', type=int, default=1, help='that train at the same time, as ranks would')
    one.add_argument('--out', required=True, help='file of the pieces')
    one.set_defaults(run=run_measure)
    one = commands.add_parser('predict')
    one.add_argument('pieces')
    one.add_argument('--ranks', default=','.join(str(2**i) for i in range(11)))
    one.add_argument('--link', default='10gbit', help='of a machine')
    one.add_argument('--latency', default='50us')
    one.add_argument('--per-machine', type=int, default=1, help='ranks')
    one.add_argument('--inside', default='100gbit', help='between ranks of a machine')
    one.add_argument('--inside-latency', default='10us')
    one.add_argument('--comm-dtype', choices=('f32', 'bf16'), default='f32')
    one.add_argument('--shard', choices=('none', 'optimizer'), default='none')
    one.add_argument('--strong', action='store_true', help='divide one batch; else each rank has that of the pieces')
    one.add_argument('--spread', type=float, default=0, help='standard deviation of a step, as a share of it')
    one.add_argument('--json', help='file to write')
    one.set_defaults(run=run_predict)
    one = commands.add_parser('check')
    add_measured(one)
    one.add_argument('--ranks', default='2,4')
    one.add_argument('--links', default='100mbit,1gbit')
    one.add_argument('--latency', default='100us')
    one.add_argument('--json', help='file to write')
    one.set_defaults(run=run_check)
    return parser.parse_args()


if __name__ == '__main__':
    arguments = parse()
    arguments.run(arguments)
