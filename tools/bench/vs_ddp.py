#!/usr/bin/env python3
"""Compares data parallel training with PyTorch's DistributedDataParallel, both over Gloo, on the same CPUs.

    tools/bench/vs_ddp.py --case bert6_512 --json out.json
    tools/bench/vs_ddp.py --case bert6_512 --link 1gbit        as root: ranks in network namespaces with shaped links

A step is forward, backward, the sum of the gradients over the ranks, clipping to norm 1 and AdamW, in float32, of a
model that PyTorch exported. Each round runs every program in new processes, one after the other; the first steps are
not counted. The ratio is onnxtrain's median step over DDP's (below 1: onnxtrain is faster).

Of onnxtrain, the table also has what summary.json of rank 0 says about communication: its time, the part of it in which
nothing is computed, and the share that is hidden; and the step of the ranks without communication, as trainings of
their own at the same time, with the batch of one rank. --peer-python: an interpreter with torch (default: this one).
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import models

HERE = os.path.dirname(os.path.abspath(__file__))
WARM_UPS = 2


def wait_for(processes, command):
    """Returns what the first process printed; exits with one line if one fails."""
    outputs = [p.communicate()[0] for p in processes]
    for p in processes:
        if p.returncode != 0:
            sys.exit(f'{" ".join(command)}: ended with {p.returncode}')
    return outputs[0]


class Runner:
    """Starts ranks: in network namespaces, or on this machine with a share of its CPUs each."""

    def __init__(self, args):
        self.args, self.cpus = args, sorted(os.sched_getaffinity(0))
        self.width = max(1, len(self.cpus) // args.ranks)

    def bound(self, rank):
        first = rank * self.width % len(self.cpus)
        return ['taskset', '-c', ','.join(map(str, self.cpus[first:first + self.width]))]

    def run(self, command):
        if self.args.link:
            command = [os.path.join(HERE, 'netns.sh'), str(self.args.ranks), self.args.link] + command
            return wait_for([subprocess.Popen(command, stdout=subprocess.PIPE)], command)
        processes = []
        for rank in range(self.args.ranks):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(self.args.ranks), LOCAL_RANK='0',
                       LOCAL_WORLD_SIZE='1', MASTER_ADDR='127.0.0.1', MASTER_PORT=str(self.args.port),
                       GLOO_SOCKET_IFNAME='lo')
            processes.append(subprocess.Popen(self.bound(rank) + command, stdout=subprocess.PIPE, env=env))
        return wait_for(processes, command)

    def run_alone(self, make_command):
        """Runs one process per rank, none of which knows of the others."""
        commands = [self.bound(rank) + make_command(rank) for rank in range(self.args.ranks)]
        return wait_for([subprocess.Popen(c, stdout=subprocess.PIPE) for c in commands], commands[0])


def train_command(args, model, batch, folder):
    return [args.onnxtrain, '--model', model, '--batch-size', str(batch), '--max-steps', str(args.steps + WARM_UPS),
            '--loss', models.CASES[args.case].loss_flag(), '--optimizer', 'adamw', '--lr', '1e-6', '--max-grad-norm',
            '1', '--seed', str(args.seed), '--quiet', '--json', '--overwrite', '--out', folder] + args.flags.split()


def run_rounds(args, folder):
    model = os.path.join(folder, 'model.onnx')
    models.export(args.case, model, args.seed)
    runner, batch = Runner(args), args.batch or models.CASES[args.case].batch * args.ranks
    peer = [args.peer_python, os.path.join(HERE, 'ddp_peer.py'),
            json.dumps({'case': args.case, 'batch': batch, 'steps': args.steps + WARM_UPS, 'seed': args.seed})]
    ours, alone, ddp, communication = [], [], [], []
    for number in range(args.rounds):
        out = os.path.join(folder, 'out')
        summary = json.loads(runner.run(train_command(args, model, batch, out)))
        ours.append(summary['step_seconds']['median'])
        communication.append(summary['communication'])
        facts = json.loads(runner.run(peer))
        ddp.append(statistics.median(facts['seconds'][WARM_UPS:]))
        single = runner.run_alone(lambda r: train_command(args, model, batch // args.ranks, f'{out}{r}'))
        alone.append(json.loads(single)['step_seconds']['median'])
        print(f'  round {number + 1}: onnxtrain {ours[-1]:.3f} s, DDP {ddp[-1]:.3f} s, without communication '
              f'{alone[-1]:.3f} s, hidden {communication[-1]["hidden"]:.2f}', file=sys.stderr, flush=True)
    return batch, facts, ours, ddp, alone, communication


def report(args, batch, facts, ours, ddp, alone, communication):
    total = {key: sum(c[key] for c in communication) for key in ('updates', 'seconds', 'exposed_seconds',
                                                                 'gradient_bytes')}
    per_update = {key: total[key] / total['updates'] for key in total if key != 'updates'}
    return {'case': args.case, 'ranks': args.ranks, 'cpus_per_rank': max(1, len(os.sched_getaffinity(0)) // args.ranks),
            'link': args.link or 'loopback', 'batch': batch, 'parameters': facts['parameters'],
            'torch': facts['torch'], 'onnxtrain_seconds': statistics.median(ours),
            'ddp_seconds': statistics.median(ddp),
            'ratio': statistics.median(a / b for a, b in zip(ours, ddp)),
            'alone_seconds': statistics.median(alone), 'communication_per_update': per_update,
            'hidden': 1 - total['exposed_seconds'] / total['seconds'], 'rounds': args.rounds, 'steps': args.steps}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--onnxtrain', default=os.path.join(HERE, '../../build/release/bin/onnxtrain'))
    parser.add_argument('--case', default='bert6_512', choices=[n for n, c in models.CASES.items() if not c.needs])
    parser.add_argument('--batch', type=int, default=0, help='of all ranks; 0: that of the case for each')
    parser.add_argument('--ranks', type=int, default=2)
    parser.add_argument('--link', default='', help='rate for tc: 1gbit; "": loopback')
    parser.add_argument('--port', type=int, default=29517)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--steps', type=int, default=8)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--flags', default='', help='further flags of onnxtrain')
    parser.add_argument('--peer-python', default=sys.executable)
    parser.add_argument('--json', help='file to write')
    return parser.parse_args()


def main():
    args = parse()
    folder = tempfile.mkdtemp(prefix='vs-ddp-')
    try:
        result = report(args, *run_rounds(args, folder))
    finally:
        shutil.rmtree(folder)
    each = result['communication_per_update']
    print(f'{result["case"]}, {result["parameters"] / 1e6:.1f} M parameters, batch {result["batch"]} on '
          f'{result["ranks"]} ranks of {result["cpus_per_rank"]} CPUs, {result["link"]}\n'
          f'  onnxtrain {result["onnxtrain_seconds"]:.3f} s, DDP of torch {result["torch"]} '
          f'{result["ddp_seconds"]:.3f} s: ratio {result["ratio"]:.2f}\n'
          f'  without communication {result["alone_seconds"]:.3f} s; communication {each["seconds"]:.3f} s for '
          f'{each["gradient_bytes"] / 1e6:.1f} MB, of these {each["exposed_seconds"]:.3f} s exposed: '
          f'{100 * result["hidden"]:.0f} % hidden')
    if args.json:
        with open(args.json, 'w') as f:
            json.dump(result, f, indent=2)


if __name__ == '__main__':
    main()
