#!/usr/bin/env python3
"""Compares onnxtrain with PyTorch on the same model (exported by PyTorch), loss, batch size, precision and optimizer.

    tools/bench/vs_torch.py --case lenet,mlp,bert4 --bf16 --json out.json
    tools/bench/vs_torch.py --case resnet50 --peer-python /usr/bin/python3 --peer-python ~/venv/bin/python
    tools/bench/vs_torch.py --case minilm --folder-of minilm=PATH --peer-python ~/venv/bin/python

Every --peer-python is an interpreter with a torch of its own (default: the one that runs this). Its processes are
PyTorch with its defaults ("stock", --no-stock leaves it out) and, with all CPUs, passive OpenMP waiting, the best
OpenBLAS kernels, channels_last, F.scaled_dot_product_attention, fused AdamW and the fastest allocator (glibc's as it is
and tuned, jemalloc and tcmalloc where installed): eager and, where there is torch.compile, compiled (default,
max-autotune); with --bf16 all of them also under bf16 autocast, with --only-bf16 under nothing else. On a GPU, cuDNN
times its algorithms, and float32 is not rounded to TF32.

A step is forward, backward, clipping to norm 1 and AdamW. Each round runs every program for about the same time, one
after the other. The table shows the median and the quartiles of all steps. The ratio is onnxtrain's median over that
of the fastest peer: of the float32 ones for float32, of all for bf16 (below 1: onnxtrain is faster).

Peak memory is the resident memory of a process above its value at start, and compares with a process whose allocator
is not tuned to keep memory. For float32 it is also split: PyTorch's activations are its peak minus parameters, buffers,
gradients and moments; onnxtrain's are the planned arena of a program that accumulates gradients. The totals cover
accumulating steps and steps in one program, where gradients share the arena. --memory-flags apply to these runs of
onnxtrain only. On a GPU, the memory of peers is what they allocated there, and that of onnxtrain is its plan.

--prepare only exports the models and starts each peer once, which fills the caches of torch.compile.

The Python that runs this needs torch (Debian: python3-torch and /usr/bin/python3).
"""
import argparse
import datetime
import json
import os
import platform
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
import peers

HERE = os.path.dirname(os.path.abspath(__file__))
MEASURABLE = 2**26  # bytes; below, allocations left over from importing torch dominate
COMPILE_MODES = ('default', 'max-autotune')


def log(text):
    print(text, flush=True)


def machine():
    """Returns one line about the machine."""
    with open('/proc/cpuinfo') as f:
        name = next((line.split(': ')[1].strip() for line in f if line.startswith('model name')), platform.machine())
    return f'{name}, {peers.cpus()} CPUs, Linux {platform.release()}'


class Ours:
    """Runs onnxtrain; every round is a new process."""

    def __init__(self, precision, model, batch, args, loss, flags=()):
        self.name, self.precision = 'onnxtrain' + (' bf16' if precision == 'bf16' else ''), precision
        self.seconds, self.peak, self.last = [], 0, {}
        self.command = [args.onnxtrain, 'bench', '--model', model, '--batch-size', str(batch), '--json', '--loss', loss,
                        '--seed', str(args.seed), '--device', args.device, '--backend', args.backend] + list(flags)
        if precision == 'bf16':
            self.command += ['--mixed-precision', 'bf16']

    def round(self, steps, extra=('--steps-only',)):
        self.last = run_json(self.command + ['--max-steps', str(steps)] + list(extra))
        self.seconds += self.last['seconds']
        self.peak = self.last['process_peak_bytes' if self.last['device'] == 'cpu' else 'planned_peak_bytes']
        return self.last['median_seconds']

    def close(self):
        pass


class Memory:
    """Compares the memory of onnxtrain, with two micro-batches and in one program, with a PyTorch process."""

    def __init__(self, model, batch, peer, args, loss):
        flags = args.memory_flags.split()
        self.flags, self.peer, self.peer_state = args.memory_flags, peer.peak, peer.facts['state_bytes']
        self.runs = {}
        for name, more in (('accumulating', ('--micro-batch-size', str(batch))), ('step', ())):
            run = Ours('f32', model, 2 * batch if more else batch, args, loss, list(more) + flags)
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


def steps_for(seconds_per_step, budget):
    return max(3, min(2000, int(budget / seconds_per_step)))


def export(name, args, pythons):
    """Exports the case, by an interpreter that has its libraries, unless the file is there."""
    path = os.path.join(args.folder, f'{name}-{args.seed}.onnx')
    if not os.path.exists(path):
        command = [pythons[0] if models.CASES[name].needs else sys.executable, os.path.join(HERE, 'models.py'), name,
                   path, str(args.seed), args.folder_of.get(name, '')]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            sys.exit(f'{" ".join(command)}: failed')
    return path


def usable_pythons(name, args):
    """Returns the interpreters that have the libraries of the case."""
    case, usable = models.CASES[name], []
    if case.folder and name not in args.folder_of:
        sys.exit(f'case {name} needs --folder-of {name}=PATH')
    for python in args.peer_python:
        missing = peers.lacks(python, ('torch',) + tuple(case.needs))
        if missing:
            log(f'  left out: {python} has no {missing}')
        else:
            usable.append(python)
    return usable or sys.exit(f'case {name}: no --peer-python has {", ".join(("torch",) + tuple(case.needs))}')


def measure_memory(spec, python, model, batch, args, loss):
    if args.device != 'cpu':
        return None
    peer = peers.Peer('memory', python, spec, peers.THREADS)
    peer.round(3)
    peer.close()
    return Memory(model, batch, peer, args, loss).json() if peer.peak > MEASURABLE else None


def run_case(name, args):
    case = models.CASES[name]
    batch, loss = args.batch or case.batch, case.loss_flag()
    log(f'{name}, batch {batch}, loss {loss}')
    pythons = usable_pythons(name, args)
    model = export(name, args, pythons)
    spec = peers.specification(name, args.folder_of.get(name, ''), batch, args.seed, args.device)
    runs = [] if args.prepare else [Ours(precision, model, batch, args, loss) for precision in args.precisions]
    for python in pythons:
        runs += peers.start_peers(python, spec, args.precisions, args.compile_modes, args.stock, log)
    if not args.prepare:
        time_runs(runs, args)
    for run in runs:
        run.close()
    return None if args.prepare else report(name, batch, runs, *measure_details(spec, pythons, model, args, loss), args)


def time_runs(runs, args):
    counts = {run: steps_for(run.round(3), args.seconds) for run in runs}
    for run in runs:
        run.seconds.clear()
    for _ in range(args.rounds):
        for run in runs:
            run.round(counts[run])


def measure_details(spec, pythons, model, args, loss):
    """Returns what `bench` says of operators and products, and the memory beside PyTorch's."""
    ours = Ours(args.precisions[0], model, spec['batch'], args, loss)
    ours.round(steps_for(ours.round(3), args.seconds), extra=())
    return ours.last, measure_memory(spec, pythons[0], model, spec['batch'], args, loss)


def quartiles(seconds):
    low, middle, high = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else seconds * 3
    return {'quartile_1': low, 'median_seconds': middle, 'quartile_3': high, 'steps': len(seconds)}


def fastest(entries, precisions):
    """Returns the name of the fastest peer of these precisions."""
    peer_names = [name for name, e in entries.items() if not e['ours'] and e['precision'] in precisions]
    return min(peer_names, key=lambda name: entries[name]['median_seconds'])


def ratios(entries):
    """Returns, by precision of onnxtrain, its time over that of the fastest peer, and which that is."""
    result = {}
    for entry in entries.values():
        if entry['ours']:
            peer = fastest(entries, ('f32',) if entry['precision'] == 'f32' else ('f32', 'bf16'))
            result[entry['precision']] = {'peer': peer,
                                          'ratio': entry['median_seconds'] / entries[peer]['median_seconds']}
    return result


def report(name, batch, runs, details, memory, args):
    entries = {run.name: dict(quartiles(run.seconds), precision=run.precision, peak_bytes=run.peak,
                              ours=isinstance(run, Ours), uses=getattr(run, 'facts', {}).get('uses', []))
               for run in runs}
    result = {'case': name, 'batch': batch, 'seed': args.seed, 'date': datetime.date.today().isoformat(),
              'machine': machine(), 'runs': entries, 'ratios': ratios(entries), 'bench': details, 'memory': memory}
    for label, e in entries.items():
        log(f'  {label:<48} {e["median_seconds"] * 1e3:10.3f} ms ({e["quartile_1"] * 1e3:.3f} to '
            f'{e["quartile_3"] * 1e3:.3f}, {e["steps"]} steps)   peak {e["peak_bytes"] / 2**20:8.0f} MiB')
    for precision, r in result['ratios'].items():
        log(f'  ratio of {precision} to the fastest, {r["peer"]}: {r["ratio"]:.2f}')
    log_products(details)
    if memory:
        log(memory_line(memory))
    return result


def log_products(details):
    if details['products_alone_seconds'] > 0:
        share = details['products_alone_seconds'] / details['median_seconds']
        log(f'  products: {details["product_flops"] / details["median_seconds"] / 1e9:.0f} GF/s of the step, '
            f'{details["probed_flops_per_second"] / 1e9:.0f} alone ({100 * share:.0f} %); arena '
            f'{details["arena_bytes"] / 2**20:.0f} MiB, '
            f'{details["arena_bytes"] / max(1, details["arena_lower_bound_bytes"]):.3f} × its lower bound; '
            f'start {details["first_step_seconds"]:.2f} s')


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


def named_path(text):
    name, equals, path = text.partition('=')
    if not equals or not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"expected CASE=FOLDER, got '{text}'")
    return name, os.path.abspath(path)


def make_parser(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--onnxtrain', default='build/release/bin/onnxtrain')
    parser.add_argument('--batch', type=at_least_one, help='override the batch size of the case')
    parser.add_argument('--backend', default='cpu')
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--rounds', type=at_least_one, default=5)
    parser.add_argument('--seconds', type=float, default=2, help='duration of each run in a round')
    parser.add_argument('--seed', type=int, default=0, help='of weights and samples')
    parser.add_argument('--peer-python', action='append', help='interpreter with a torch to compare with (repeatable)')
    parser.add_argument('--folder-of', type=named_path, action='append', default=[], metavar='CASE=FOLDER',
                        help='pre-trained model of a case (repeatable)')
    parser.add_argument('--compile-modes', type=comma_separated, default=COMPILE_MODES, metavar='MODE,…',
                        help='of torch.compile, which takes minutes for a large model; "" skips it')
    parser.add_argument('--no-stock', dest='stock', action='store_false', help='skip PyTorch with its defaults (slow)')
    parser.add_argument('--memory-flags', default='', help='flags of onnxtrain for the memory figures')
    parser.add_argument('--json', help='write the results to this JSON file')
    parser.add_argument('--folder', help='keep exported models in this folder')
    parser.set_defaults(precisions=('f32', 'bf16'), prepare=False)
    return parser


def comma_separated(text):
    return tuple(filter(None, text.split(',')))


def prepared(parser, args, work):
    """Calls `work` with the folder of exported models made and the options completed."""
    if args.device.startswith('cuda') and not torch.cuda.is_available():
        parser.error(f'--device {args.device}: this torch sees no GPU')
    args.peer_python = args.peer_python or [sys.executable]
    args.folder_of = dict(args.folder_of)
    with tempfile.TemporaryDirectory() as scratch:
        args.folder = args.folder or scratch
        os.makedirs(args.folder, exist_ok=True)
        return work()


def run_cases(names, parser, args):
    results = prepared(parser, args, lambda: [run_case(name, args) for name in names])
    if args.json and not args.prepare:
        with open(args.json, 'w') as f:
            json.dump(results, f, indent=1)
    return results


def main():
    parser = make_parser(__doc__)
    parser.add_argument('--case', type=known_cases, default='mlp,lenet,bert4',
                        help='comma-separated: ' + ','.join(models.CASES))
    parser.add_argument('--bf16', dest='precisions', action='store_const', const=('f32', 'bf16'), default=('f32',),
                        help='also bf16, against bf16 autocast')
    parser.add_argument('--only-bf16', dest='precisions', action='store_const', const=('bf16',),
                        help='bf16 alone, against bf16 autocast alone')
    parser.add_argument('--prepare', action='store_true', help='only export and start each peer once')
    args = parser.parse_args()
    run_cases(args.case, parser, args)


if __name__ == '__main__':
    main()
