#!/usr/bin/env python3
"""Predicts the step of training on up to thousands of ranks from the pieces of a measured one.

    tools/bench/cluster.py measure --case bert6_512 --processes 2 --out pieces.json
    tools/bench/cluster.py predict pieces.json --link 25gbit --latency 20us --per-machine 8 --inside 100gbit
    tools/bench/cluster.py predict pieces.json --link 25gbit --shard full
    tools/bench/cluster.py predict pieces.json --link 25gbit --plan tensor.json  of `onnxtrain plan --tensor T --json`
    tools/bench/cluster.py check --case bert6_512 --ranks 2,4 --links 100mbit,1gbit           as root: netns.sh
    tools/bench/cluster.py check --case bert6_512 --ranks 2 --links loopback,1gbit --with '--shard full'

`measure` trains with processes that know nothing of each other, one per rank, and writes seconds of forward, backward
and update, and the bytes of the gradient. Then it trains with as many ranks of this machine: what a step takes longer,
by the bytes that a rank sends, is what handling them takes of its CPUs, which compute meanwhile. `predict` plays one
update: buckets of 4 MiB become ready while the backward pass of the last micro-batch runs, evenly by their bytes, and a
thread sums one after the other. A ring of N ranks sums b bytes in 2(N - 1) steps, each of which takes the latency and
the time of b/N bytes on the slowest edge; N - 1 more gather the losses, and with --shard optimizer the weights. With
--shard gradients every micro-batch sums its buckets, in N - 1 steps, and waits for the last. With --shard full it
gathers the weights in as many equal pieces as there are buckets, each while the readers of the one before compute,
forward and again backward; gathers and sums share the link in the order in which they begin. The plan of --tensor or
--pipeline says what is computed and sent: sums within a layer hide behind nothing, and a pipeline takes its slowest
stage M + P - 1 times, as many messages late as it fills.
`check` compares predictions with measured runs on shaped links, or on the loopback, of pieces in the micro-batches that
the plan of --pipeline has.

Not in the model: congestion of switches, threads of communication that wait for the one CPU of a rank, and ranks that
compute at different speeds (--spread has all wait for the slowest of N whose steps vary by that share, as a normal
distribution).
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
    shard: str = 'none'   # of the state among the ranks
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


class Link:
    """Of a rank: what is sent waits for what was sent before."""

    def __init__(self):
        self.free = self.busy = 0

    def send(self, ready, seconds):
        """Returns when something has arrived that is sent from `ready` on."""
        self.free = max(ready, self.free) + seconds
        self.busy += seconds
        return self.free


def handling_seconds(pieces, ranks, size):
    """Seconds of a rank's CPUs for its part of `size` bytes that each rank passes on once."""
    return pieces.get('handling', 0) * size * (ranks - 1) / ranks


def sum_once(pieces, network, ranks, share, wire, link):
    """All micro-batches, and the sums of their gradients, which begin in the last one. Returns when all is done."""
    work = 2 * handling_seconds(pieces, ranks, pieces['gradient_bytes'] / wire)
    computed = (pieces['forward'] + pieces['backward']) * share + work
    overlap, ready, end = pieces['backward'] * share / pieces['accumulation'] + work, 0, computed
    for size in buckets(pieces['gradient_bytes']):
        ready += size
        begin = computed - overlap * (1 - ready / pieces['gradient_bytes'])
        end = link.send(begin, network.reduce(ranks, size / wire))
    return max(computed, end)


def gather_and_sum(pieces, network, ranks, share, wire, link, gathers):
    """The same where every micro-batch sums its gradients, each to one rank, and where `gathers` says so, gathers its
    weights."""
    sizes, rounds = buckets(pieces['gradient_bytes']), pieces['accumulation']
    parts = len(sizes)
    now = 0
    for _ in range(rounds):
        # The last part of the forward pass is the first one of the backward pass, and is gathered once.
        order = [(p, 'forward') for p in range(parts)] + [(p, 'backward') for p in reversed(range(parts))]
        arrived, summed = [0] * len(order), now
        wanted = [i for i in range(len(order)) if gathers and i != parts]
        gather = lambda i, ready: link.send(ready, network.gather(ranks, sizes[order[i][0]]))
        if wanted:
            arrived[0] = gather(0, now)
        for i, (p, direction) in enumerate(order):
            now = max(now, arrived[i])
            following = i + 1 if i + 1 != parts else i + 2
            if gathers and following < len(order) and i != parts:
                arrived[following] = gather(following, now)
            now += pieces[direction] * share / rounds / parts
            if i in wanted:
                now += handling_seconds(pieces, ranks, sizes[p])
            if direction == 'backward':
                now += handling_seconds(pieces, ranks, sizes[p] / wire)
                summed = link.send(now, network.gather(ranks, sizes[p] / wire))
        now = max(now, summed)
    return now


def predict(pieces, network, ranks, choice=Choice()):
    """Returns seconds and bytes of an update of each of `ranks` ranks."""
    share = (1 / ranks if choice.strong else 1) * slowest(ranks, choice.spread)
    gradient, divided = pieces['gradient_bytes'], choice.shard != 'none' and ranks > 1
    update = pieces['update'] / (ranks if divided else 1)
    wire, link = 2 if choice.rounds else 1, Link()
    often, gathers = choice.shard in ('gradients', 'full'), divided and choice.shard != 'full'
    sums = pieces['accumulation'] if often else 2
    gathered = pieces['accumulation'] * (2 * gradient - buckets(gradient)[-1]) if choice.shard == 'full' else 0
    handled = handling_seconds(pieces, ranks, sums / wire * gradient + gathered)
    computed = end = (pieces['forward'] + pieces['backward']) * share + handled
    if ranks > 1 and often:
        end = gather_and_sum(pieces, network, ranks, share, wire, link, choice.shard == 'full')
    elif ranks > 1:
        end = sum_once(pieces, network, ranks, share, wire, link)
    losses = network.gather(ranks, 64 * ranks) if ranks > 1 else 0
    weights = network.gather(ranks, gradient) + handling_seconds(pieces, ranks, gradient) if gathers else 0
    exposed = end - computed + losses + weights
    step = computed + exposed + update + pieces['other']
    sent = (sums / wire * gradient + gathered + (gradient if gathers else 0)) * (ranks - 1) / ranks
    samples = pieces['batch'] * (1 if choice.strong else ranks)
    return {'ranks': ranks, 'seconds': step, 'exposed': exposed, 'communication': link.busy + losses + weights,
            'sent_bytes': sent, 'samples_per_second': samples / step}


def predict_tensor(pieces, network, plan):
    """Of the ranks of a plan with --tensor, on the batch of the pieces."""
    ranks, divided = plan['tensor'], plan['divided_elements'] / plan['trained_elements']
    share = 1 - divided + divided / ranks
    sent = plan['wire_bytes'] * pieces['batch'] / plan['batch']
    summed = sent / plan['exchanges'] * ranks / (2 * (ranks - 1))  # a ring sends 2(N - 1)/N of the bytes that it sums
    communication = (plan['exchanges'] * network.reduce(ranks, summed) + network.gather(ranks, 64 * ranks) +
                     pieces.get('handling', 0) * sent)
    step = (pieces['forward'] + pieces['backward'] + pieces['update']) * share + pieces['other'] + communication
    return {'ranks': ranks, 'seconds': step, 'exposed': communication, 'communication': communication,
            'sent_bytes': sent, 'samples_per_second': pieces['batch'] / step}


def predict_pipeline(pieces, network, plan):
    """Of the stages of a plan with --pipeline, on the batch of the pieces."""
    stages, micros = len(plan['stages']), plan['accumulation']
    sent = max(stage['wire_bytes'] for stage in plan['stages']) * pieces['batch'] / plan['batch']
    computed = ((pieces['forward'] + pieces['backward']) * max(stage['time_share'] for stage in plan['stages']) +
                pieces.get('handling', 0) * sent)
    message = network.step(stages, sent / micros / 2)  # activations one way, gradients the other
    slot = max(computed / micros, message)
    waits = slot * (micros + stages - 1) - computed + 2 * (stages - 1) * message
    exposed = waits + network.gather(stages, 64 * stages)
    step = computed + exposed + pieces['update'] / stages + pieces['other']
    return {'ranks': stages, 'seconds': step, 'exposed': exposed, 'communication': 2 * micros * message,
            'sent_bytes': sent, 'samples_per_second': pieces['batch'] / step}


def predict_plan(pieces, network, plan):
    """Of a model that is divided as the JSON of `onnxtrain plan` says."""
    return (predict_tensor if 'tensor' in plan else predict_pipeline)(pieces, network, plan)


def parse_rate(text):
    """Returns bytes per second of 1gbit, 200mbit, as tc has them, that carry data. The loopback takes CPUs alone."""
    if text == 'loopback':
        return math.inf
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


def measure_handling(args, model, ranks, alone, gradient, folder, micros):
    """Seconds by which a byte that a rank sends makes its step longer than `alone`, on this machine."""
    import models
    if ranks == 1:
        return 0
    batch = (args.batch or models.CASES[args.case].batch) * ranks
    tool, *flags = train(args, model, batch, f'{folder}/together')
    step = summaries([[tool, 'launch', '--nproc', str(ranks), '--'] + flags + micros])[0]['step_seconds']['median']
    return max(0, step - alone) / (2 * gradient * (ranks - 1) / ranks)


def measure(args, model, processes, folder, micro_batch=0):
    """Returns the pieces of a step of one of so many processes, which share this machine, in micro-batches of the given
    size; 0: in one."""
    import models
    batch = args.batch or models.CASES[args.case].batch
    micros = ['--micro-batch-size', str(micro_batch)] if micro_batch > 0 else []
    runs = summaries([bind(p, processes) + train(args, model, batch, f'{folder}/alone{p}') + micros
                      for p in range(processes)])
    slow = max(runs, key=lambda s: s['step_seconds']['median'])
    step, split = slow['step_seconds']['median'], slow['time_split']
    part = {name: split[name] / split['compute'] * step for name in ('forward', 'backward', 'optimizer')}
    gradient = slow['planned_bytes']['gradients'] or 4 * slow['trainable_parameters']
    return {'case': args.case, 'batch': batch, 'accumulation': slow['accumulation'], 'forward': part['forward'],
            'backward': part['backward'], 'update': part['optimizer'], 'other': step - sum(part.values()),
            'gradient_bytes': gradient,
            'handling': measure_handling(args, model, processes, step, gradient, folder, micros)}


def run_ranks(args, model, ranks, link, folder):
    """Trains on network namespaces, or on the loopback of this one; returns the summary of rank 0."""
    import models
    divides = '--tensor' in args.flags or '--pipeline' in args.flags
    batch = (args.batch or models.CASES[args.case].batch) * (1 if divides else ranks)
    tool, *flags = train(args, model, batch, f'{folder}/ranks') + args.flags.split()
    if link == 'loopback':
        return summaries([[tool, 'launch', '--nproc', str(ranks), '--'] + flags])[0]
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'netns.sh')
    return summaries([[script, str(ranks), link, tool] + flags])[0]


def plan_parts(args, model):
    """What `onnxtrain plan` says of a model that --tensor or --pipeline divides."""
    import models
    batch = args.batch or models.CASES[args.case].batch
    command = [args.onnxtrain, 'plan', '--model', model, '--batch-size', str(batch), '--loss',
               models.CASES[args.case].loss_flag(), '--json'] + args.flags.split()
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def expect(args, plan, pieces, network, ranks):
    """The prediction of what run_ranks measures. `plan`: of plan_parts, or None."""
    flags = args.flags.split()
    if plan:
        return predict_plan(pieces, network, plan)
    value = lambda flag, default: flags[flags.index(flag) + 1] if flag in flags else default
    return predict(pieces, network, ranks,
                   Choice(rounds=value('--comm-dtype', 'f32') == 'bf16', shard=value('--shard', 'none')))


def check(args, model, folder):
    rows = []
    plan = plan_parts(args, model) if '--tensor' in args.flags or '--pipeline' in args.flags else None
    micro_batch = plan['micro_batch'] if plan else 0
    for ranks in map(int, args.ranks.split(',')):
        pieces = measure(args, model, ranks, folder, micro_batch)
        for link in args.links.split(','):
            summary = run_ranks(args, model, ranks, link, folder)
            network = Network(parse_rate(link), 0 if link == 'loopback' else parse_time(args.latency))
            expected = expect(args, plan, pieces, network, ranks)
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
    choice = Choice(args.comm_dtype == 'bf16', args.shard, args.strong, args.spread)
    if args.plan:
        with open(args.plan) as f:
            rows = [predict_plan(pieces, network, json.load(f))]
    else:
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
    one.add_argument('--shard', choices=('none', 'optimizer', 'gradients', 'full'), default='none')
    one.add_argument('--plan', help='file with the JSON of `onnxtrain plan` with --tensor or --pipeline: of its ranks')
    one.add_argument('--strong', action='store_true', help='divide one batch; else each rank has that of the pieces')
    one.add_argument('--spread', type=float, default=0, help='standard deviation of a step, as a share of it')
    one.add_argument('--json', help='file to write')
    one.set_defaults(run=run_predict)
    one = commands.add_parser('check')
    add_measured(one)
    one.add_argument('--ranks', default='2,4')
    one.add_argument('--links', default='100mbit,1gbit', help='also: loopback, which needs no root')
    one.add_argument('--latency', default='100us')
    one.add_argument('--with', dest='flags', default='', help='flags of the ranks: --shard, --tensor, --pipeline …')
    one.add_argument('--json', help='file to write')
    one.set_defaults(run=run_check)
    return parser.parse_args()


if __name__ == '__main__':
    arguments = parse()
    arguments.run(arguments)
