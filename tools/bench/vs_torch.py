#!/usr/bin/env python3
"""Compares onnxtrain with PyTorch on the same model (exported by PyTorch), batch size, precision and optimizer.

    tools/bench/vs_torch.py --onnxtrain build/release/bin/onnxtrain --case lenet,mlp,bert4 --json out.json

Peers are PyTorch eager with its defaults ("stock") and with all CPUs, passive OpenMP waiting and the best OpenBLAS
kernels ("tuned"). --bf16 adds PyTorch's bf16 autocast and onnxtrain's --mixed-precision bf16; --compile adds
torch.compile (torch 2.x). A step is forward, backward, clipping to norm 1 and AdamW. Each round runs every program for
about the same time, one after the other. The table shows medians over all rounds and the ratio of onnxtrain's time to
each peer's (below 1: onnxtrain is faster).

Peak memory is the resident memory of a process above its value at start. For float32 it is also split: PyTorch's
activations are its peak minus parameters, buffers, gradients and moments; onnxtrain's are the planned arena of a
program that accumulates gradients. The totals cover accumulating steps and steps in one program, where gradients share
the arena. --memory-flags apply to these runs of onnxtrain only.

The Python that runs this needs torch (Debian: python3-torch and /usr/bin/python3).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from program import run_json

try:
    import torch
except ImportError:
    sys.exit(f'{sys.executable} has no torch (Debian: python3-torch and /usr/bin/python3)')
import models

HERE = os.path.dirname(os.path.abspath(__file__))


def cpus():
    return len(os.sched_getaffinity(0))


TUNED = {'OPENBLAS_CORETYPE': 'SkylakeX', 'OMP_WAIT_POLICY': 'PASSIVE'}


class Peer:
    def __init__(self, name, case, batch, args, precision='f32', tuned=True, compiled=''):
        self.name, self.seconds, self.peak = name, [], 0
        environment = dict(os.environ, **(TUNED if tuned else {}))
        command = [sys.executable, os.path.join(HERE, 'peer.py'), case, str(batch), precision, args.device,
                   str(cpus() if tuned else 0), compiled]
        self.process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.facts = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f'{self.name}: ended without a result')
        return json.loads(line)

    def round(self, steps):
        self.process.stdin.write(f'{steps}\n')
        self.process.stdin.flush()
        result = self.read()
        self.seconds += result['seconds']
        self.peak = result['peak_bytes']
        return statistics.median(result['seconds'])

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Ours:
    """Runs onnxtrain; every round is a new process."""

    def __init__(self, name, model, batch, args, flags=()):
        self.name, self.seconds, self.peak, self.last = name, [], 0, {}
        self.command = [args.onnxtrain, 'bench', '--model', model, '--batch-size', str(batch), '--json',
                        '--loss', 'cross_entropy', '--device', args.device, '--backend', args.backend] + list(flags)

    def round(self, steps, extra=('--steps-only',)):
        self.last = run_json(self.command + ['--max-steps', str(steps)] + list(extra))
        self.seconds += self.last['seconds']
        self.peak = self.last['process_peak_bytes']
        return self.last['median_seconds']

    def close(self):
        pass


class Memory:
    """Compares the memory of onnxtrain, with two micro-batches and in one program, with a PyTorch process."""

    def __init__(self, model, batch, peer, args):
        flags = args.memory_flags.split()
        self.flags, self.peer, self.peer_state = args.memory_flags, peer.peak, peer.facts['state_bytes']
        self.runs = {}
        for name, more in (('accumulating', ('--micro-batch-size', str(batch))), ('step', ())):
            run = Ours(name, model, 2 * batch if more else batch, args, list(more) + flags)
            run.round(1)
            self.runs[name] = run.last

    def json(self):
        activations = self.runs['accumulating']['arena_bytes']
        peer_activations = self.peer - self.peer_state
        result = {'flags': self.flags, 'activation_bytes': activations, 'peer_activation_bytes': peer_activations,
                  'peer_peak_bytes': self.peer, 'activations_over_peer': activations / peer_activations}
        for name, run in self.runs.items():
            result[name] = {'planned_bytes': run['planned_peak_bytes'], 'peak_bytes': run['process_peak_bytes'],
                            'over_peer': run['process_peak_bytes'] / self.peer, 'repeated_nodes': run['repeated_nodes']}
        return result


def memory_line(memory):
    mib = lambda n: f'{n / 2**20:.0f} MiB'
    text = (f'  memory{memory["flags"] and " with " + memory["flags"]}: activations + workspace '
            f'{mib(memory["activation_bytes"])} to {mib(memory["peer_activation_bytes"])} '
            f'({memory["activations_over_peer"]:.2f})')
    for name in ('accumulating', 'step'):
        run = memory[name]
        text += (f'; {name} {mib(run["peak_bytes"])} to {mib(memory["peer_peak_bytes"])} ({run["over_peer"]:.2f}), '
                 f'planned {mib(run["planned_bytes"])}')
    return text


BF16 = 'onnxtrain bf16'
TUNED_PEER = 'torch tuned'
MEASURABLE = 2**26  # below, allocations left over from importing torch dominate


def steps_for(seconds_per_step, budget):
    return max(3, min(2000, int(budget / seconds_per_step)))


def run_case(name, args):
    case = models.CASES[name]
    batch = args.batch or case.batch
    model = os.path.join(args.folder, name + '.onnx')
    if not os.path.exists(model):
        models.export(name, model)
    runs = [Ours('onnxtrain', model, batch, args), Peer(TUNED_PEER, name, batch, args)]
    if args.stock:
        runs.insert(1, Peer('torch stock', name, batch, args, tuned=False))
    if args.bf16:
        runs.insert(1, Ours(BF16, model, batch, args, ('--mixed-precision', 'bf16')))
        runs.append(Peer('torch bf16 autocast', name, batch, args, precision='bf16'))
    if args.compile:
        runs.append(Peer('torch.compile', name, batch, args, compiled='compile'))
    counts = {run.name: steps_for(run.round(3), args.seconds) for run in runs}
    for run in runs:
        run.seconds.clear()
    for _ in range(args.rounds):
        for run in runs:
            run.round(counts[run.name])
    details = Ours('details', model, batch, args)
    details.round(counts['onnxtrain'], extra=())
    for run in runs:
        run.close()
    tuned = next(run for run in runs if run.name == TUNED_PEER)
    memory = Memory(model, batch, tuned, args).json() if tuned.peak > MEASURABLE else None
    return report(name, batch, runs, details.last, memory)


def report(name, batch, runs, details, parts):
    medians = {run.name: statistics.median(run.seconds) for run in runs}
    ours = medians['onnxtrain']
    result = {'case': name, 'batch': batch, 'bench': details, 'memory': parts, 'runs': {}}
    print(f'{name}, batch {batch}')
    for run in runs:
        entry = {'median_seconds': medians[run.name], 'ours_over_it': ours / medians[run.name], 'peak_bytes': run.peak,
                 'our_peak_over_it': runs[0].peak / run.peak if run.peak > MEASURABLE else None}
        result['runs'][run.name] = entry
        bf16 = ''
        if BF16 in medians:
            entry['our_bf16_over_it'] = medians[BF16] / medians[run.name]
            bf16 = f'   bf16 {entry["our_bf16_over_it"]:5.2f}'
        memory = f'   ratio {entry["our_peak_over_it"]:5.2f}' if entry['our_peak_over_it'] else ''
        print(f'  {run.name:<20} {medians[run.name] * 1e3:10.3f} ms   ratio {entry["ours_over_it"]:5.2f}{bf16}'
              f'   peak {run.peak / 2**20:8.0f} MiB{memory}')
    rate = details['product_flops'] / ours
    probed = details['probed_flops_per_second']
    if probed:
        print(f'  products {rate / 1e9:.0f} GF/s of the step, {probed / 1e9:.0f} alone ({100 * rate / probed:.0f} %); '
              f'arena {details["arena_bytes"] / 2**20:.0f} MiB, '
              f'{details["arena_bytes"] / max(1, details["arena_lower_bound_bytes"]):.3f} × its lower bound; '
              f'start {details["first_step_seconds"]:.2f} s', flush=True)
    if parts:
        print(memory_line(parts), flush=True)
    return result


def known_cases(text):
    names = text.split(',')
    for name in names:
        if name not in models.CASES:
            raise argparse.ArgumentTypeError(f"unknown case '{name}'; the cases are {','.join(models.CASES)}")
    return names


def at_least_one(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got '{text}'")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--onnxtrain', default='build/release/bin/onnxtrain')
    parser.add_argument('--case', type=known_cases, default='mlp,lenet,bert4',
                        help='comma-separated: ' + ','.join(models.CASES))
    parser.add_argument('--batch', type=at_least_one, help='override the batch size of the case')
    parser.add_argument('--backend', default='cpu')
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--rounds', type=at_least_one, default=5)
    parser.add_argument('--seconds', type=float, default=2, help='duration of each run in a round')
    parser.add_argument('--bf16', action='store_true')
    parser.add_argument('--compile', action='store_true')
    parser.add_argument('--no-stock', dest='stock', action='store_false', help='skip PyTorch with its defaults (slow)')
    parser.add_argument('--memory-flags', default='', help='flags of onnxtrain for the memory figures')
    parser.add_argument('--json', help='write the results to this JSON file')
    parser.add_argument('--folder', help='keep exported models in this folder')
    args = parser.parse_args()
    if args.device.startswith('cuda') and not torch.cuda.is_available():
        parser.error(f'--device {args.device}: this torch sees no GPU')
    if args.compile and not hasattr(torch, 'compile'):
        parser.error(f'--compile: torch {torch.__version__} has no torch.compile')
    with tempfile.TemporaryDirectory() as scratch:
        args.folder = args.folder or scratch
        os.makedirs(args.folder, exist_ok=True)
        results = [run_case(name, args) for name in args.case]
    if args.json:
        with open(args.json, 'w') as f:
            json.dump(results, f, indent=1)


if __name__ == '__main__':
    main()
