#!/usr/bin/env python3
"""Compares exported models with the framework that they come from: trained parameters, loss, norm of the gradient.

    tools/exports_sweep.py OUT [--python torch=ENV/bin/python …] [--only GLOB] [--exporter NAME] [--table FILE.md]

Makes small models of many architectures with random weights, exports each by every exporter into OUT/exports, and runs
`onnxtrain inspect` and `onnxtrain grad` on the same weights and batch. OUT/results.jsonl holds a line for each exported
file; a sweep that was interrupted goes on, exports are kept, and comparisons are repeated when the tool has changed.
docs/internals/exports.md says how to install the frameworks and shows the results.
"""
import argparse
import fnmatch
import hashlib
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

from exports import architectures, records, report

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-6, 1e-5
TOOL_LIMIT = 120  # seconds for one run of the tool


class Worker:
    """A process that exports cases; see exports/worker.py."""

    def __init__(self, python, framework, folder):
        self.log = folder / f'worker-{framework}.log'
        with open(self.log, 'w', encoding='utf-8') as stderr:
            self.process = subprocess.Popen([python, '-m', 'exports.worker', framework], cwd=REPOSITORY / 'tools',
                                            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
        if versions := self.process.stdout.readline():
            (folder / f'versions-{framework}.json').write_text(versions, encoding='utf-8')

    def export(self, case):
        try:
            self.process.stdin.write(json.dumps(case) + '\n')
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ''
        if answer:
            return json.loads(answer)
        error = self.log.read_text(encoding='utf-8').strip().splitlines()
        return {'status': 'not installed', 'problem': error[-1] if error else 'the worker ended'}


def cases(args):
    """Yields (architecture, exporter, framework) of the tables, as the command line chooses."""
    for exporter, (framework, families) in architectures.EXPORTERS.items():
        if args.exporter and exporter not in args.exporter:
            continue
        for name in architectures.names(families):
            if not args.only or any(fnmatch.fnmatch(name, glob) for glob in args.only):
                yield name, exporter, framework


def export(args, workers, architecture, exporter, framework):
    """Returns the folder of the exported files, what the exporter answered, and whether it ran now: both are kept."""
    folder = args.out.resolve() / 'exports' / architecture / exporter
    done = folder / 'done.json'
    if done.exists() and not args.fresh:
        return folder, json.loads(done.read_text()), False
    subprocess.run(['rm', '-rf', folder], check=True)
    folder.mkdir(parents=True)
    if framework not in workers:
        python = args.python.get(framework, args.python[''])
        workers[framework] = Worker(python, framework, args.out)
    answer = workers[framework].export({'architecture': architecture, 'exporter': exporter, 'folder': str(folder),
                                        'limit': args.limit, 'untrained': args.untrained})
    if answer['status'] != 'not installed':
        answer = json.loads(json.dumps(answer).replace(f'{folder}/', '').replace(f'{args.out.resolve()}/', ''))
        done.write_text(json.dumps(answer))
    return folder, answer, True


def run_tool(args, *words):
    """Returns the standard output, or raises ValueError with the tool's one line."""
    try:
        run = subprocess.run([args.tool, *words], capture_output=True, text=True, timeout=TOOL_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f'longer than {TOOL_LIMIT} s')
    if run.returncode != 0:
        lines = [line for line in run.stderr.splitlines() if line.strip()]
        raise ValueError(f'exit code {run.returncode}: ' + (lines[-1] if lines else ''))
    return run.stdout


def inspect(args, model):
    return json.loads(run_tool(args, 'inspect', '--json', '--model', str(model)))


def gradients(args, model, facts, has_batch_norm):
    """Returns the loss and the gradients of the recorded batch by name."""
    loss = '+'.join(f'mse:label={records.LOSS_LABEL.format(i)}@{name}' for i, name in enumerate(facts['outputs']))
    words = ['--model', str(model), '--data', str(model.with_suffix('.npz')), '--loss', loss, '--backend', 'cpu']
    for name, file in facts['constants'].items():
        words += ['--input', f'{name}=@{model.parent / file}']
    if has_batch_norm and not facts['train']:
        words += ['--batch-norm', 'frozen']
    with tempfile.TemporaryDirectory() as folder:
        run_tool(args, 'grad', *words, '--out', f'{folder}/g.npz')
        with np.load(f'{folder}/g.npz') as file:
            return float(file['loss']), {k.removeprefix('grad:'): file[k] for k in file.files if k.startswith('grad:')}


def relative(ours, theirs):
    return abs(ours - theirs) / max(abs(theirs), 1e-12)


def unmatched(ours, theirs, last):
    """Names of parameters without a counterpart: of the same name and size, else of the same size and gradient norm,
    else (where an exporter has multiplied a weight) of the same size, else two pieces of such a size and norm.
    Those in `last` are matched last, as exporters fold them into others."""
    extra = {name: (g.size, float(np.linalg.norm(g.astype(np.float64)))) for name, g in ours.items()}
    missing = {name: (int(np.prod(shape)), norm) for name, (shape, norm) in theirs.items()}
    same = lambda a, b: a[0] == b[0] and abs(a[1] - b[1]) <= 1e-3 * max(abs(b[1]), 1e-6)
    for name in [n for n in missing if n in extra and extra[n][0] == missing[n][0]]:
        del extra[name], missing[name]
    for matches in (same, lambda a, b: a[0] == b[0]):
        for name, value in sorted(missing.items(), key=lambda item: item[0] in last):
            partner = next((n for n, v in extra.items() if matches(v, value)), None)
            if partner:
                del extra[partner], missing[name]
    for name, value in list(missing.items()):
        pairs = itertools.combinations(extra, 2)
        pieces = next((pair for pair in pairs if same(joined(*map(extra.get, pair)), value)), ())
        for piece in pieces:
            del extra[piece]
        if pieces:
            del missing[name]
    return sorted(missing), sorted(extra)


def joined(a, b):
    """The size and the norm of two gradients together."""
    return a[0] + b[0], float(np.hypot(a[1], b[1]))


def only_batch_norm(missing, parameters):
    """True if nothing is missing but some of these parameters of BatchNorm, each of which may absorb a bias."""
    others = set(missing) - set(parameters)
    return 0 < len(missing) >= 2 * len(others) and all(name.endswith('bias') for name in others)


def compare(args, model):
    """Returns the row of one exported file."""
    facts = json.loads(model.with_suffix('.json').read_text())
    row = {'theirs': sum(int(np.prod(shape)) for shape, _ in facts['parameters'].values()), 'notes': facts['notes'],
           'file_error': facts.get('file_error'), 'not_loaded': facts.get('not_loaded')}
    try:
        inspection = inspect(args, model)
        row['inspected'] = sum(int(np.prod(w['shape'])) for w in inspection['weights'] if w['trained'])
        loss, ours = gradients(args, model, facts, 'BatchNormalization' in inspection['operators'])
        ours = without_second_biases(ours, inspection['notes'])
    except ValueError as error:
        return row | {'status': 'not trained', 'problem': str(error).replace(str(model.parent) + '/', '')}
    norm = float(np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in ours.values())))
    missing, extra = unmatched(ours, facts['parameters'], facts['batch_norm'])
    row |= {'ours': sum(g.size for g in ours.values()), 'loss_error': relative(loss, facts['loss']),
            'gradient_error': relative(norm, facts['gradient_norm']), 'missing': missing, 'extra': extra,
            'only_batch_norm': only_batch_norm(missing, facts['batch_norm'])}
    errors = zip((row['loss_error'], row['gradient_error']), tolerances(facts))
    equal = row['ours'] == row['theirs'] and all(error <= tolerance for error, tolerance in errors)
    return row | {'status': 'equal' if equal else 'differs'}


def without_second_biases(gradients, notes):
    """Cuts the halves off that the tool does not train in recurrent layers with one bias, of which it has a note."""
    pattern = re.compile("the second half of '(.*)' is zeros: not trained")
    halves = {match[1] for note in notes if (match := pattern.match(note))}
    return {name: g[:, :g.shape[1] // 2] if name in halves else g for name, g in gradients.items()}


def tolerances(facts):
    """Returns those of the loss and of the norm of the gradient. Statistics of batches amplify rounding."""
    factor = 10 if facts['train'] else 1
    return [factor * max(tolerance, rounding) for tolerance, rounding in
            zip((LOSS_TOLERANCE, GRADIENT_TOLERANCE), facts.get('rounding', [0, 0]))]


def exported_files(folder):
    """Yields the exported models that have a record."""
    for batch in sorted(folder.rglob('*.npz')):
        if batch.with_suffix('.onnx').exists():
            yield batch.with_suffix('.onnx')


def digest_of(tool):
    """Returns a hash of the program and of the libraries that it loads from the folder beside its own."""
    program = pathlib.Path(tool).resolve()
    found = hashlib.sha256()
    for file in [program, *sorted((program.parent.parent / 'lib').glob('*.so'))]:
        found.update(file.read_bytes())
    return found.hexdigest()[:12]


def is_current(args, known, digest):
    """True if a file's row needs no new comparison."""
    if known is None or args.fresh:
        return False
    return known['status'] == 'equal' if args.again else known.get('tool') == digest


def sweep(args, results):
    """Runs the chosen cases and appends a line for each file to `results`, a dictionary from key to row."""
    workers, digest = {}, digest_of(args.tool)
    told = set()  # what is not installed
    with open(args.out / 'results.jsonl', 'a', encoding='utf-8') as log:
        def add(row):
            results[report.key(row)] = row
            if row['status'] == report.GONE:
                del results[report.key(row)]
            log.write(json.dumps(row) + '\n')
            log.flush()

        for architecture, exporter, framework in cases(args):
            folder, answer, is_new = export(args, workers, architecture, exporter, framework)
            common = {'architecture': architecture, 'exporter': exporter}
            if is_new:
                for key in [key for key in results if key[:2] == (architecture, exporter)]:
                    add(results[key] | {'status': report.GONE})
            if answer['status'] == 'not installed':
                if answer['problem'] not in told:
                    print(f"{exporter}: {answer['problem']}")
                told.add(answer['problem'])
            elif answer['status'] != 'exported':
                add(common | {'file': '', **answer})
            for task, problem in answer.get('tasks', {}).items():
                add(common | {'file': task, 'status': 'refused', 'problem': problem})
            for model in exported_files(folder):
                name = str(model.relative_to(folder).with_suffix(''))
                if is_current(args, results.get((architecture, exporter, name)), digest):
                    continue
                row = common | {'file': name, 'tool': digest, **compare(args, model)}
                add(row)
                print(report.line(row), flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('out', type=pathlib.Path, help='folder of exports and results')
    parser.add_argument('--tool', default=str(REPOSITORY / 'build/release/bin/onnxtrain'), help='the program to check')
    parser.add_argument('--python', action='append', default=[], metavar='[FRAMEWORK=]PATH',
                        help='the interpreter of torch, genai, jax, keras or paddle; without a name, of all others')
    parser.add_argument('--only', action='append', metavar='GLOB', help="architectures, such as 'transformers/bert*'")
    parser.add_argument('--exporter', action='append', choices=list(architectures.EXPORTERS))
    parser.add_argument('--limit', type=int, default=120, help='seconds of processor time for one export')
    parser.add_argument('--untrained', action='store_true', help='exports initial weights, into an OUT of its own')
    parser.add_argument('--fresh', action='store_true', help='exports again, too')
    parser.add_argument('--again', action='store_true', help='compares again what was not equal')
    parser.add_argument('--list', action='store_true', help='prints the cases')
    parser.add_argument('--table', type=pathlib.Path, metavar='FILE.md', help='replaces the results in this page')
    args = parser.parse_args()
    args.python = {'': sys.executable} | dict(p.rpartition('=')[::2] for p in args.python)
    return args


def main():
    args = parse()
    if args.list:
        return print('\n'.join(f'{exporter:18} {name}' for name, exporter, _ in cases(args)))
    args.out.mkdir(parents=True, exist_ok=True)
    results = report.read(args.out / 'results.jsonl')
    sweep(args, results)
    unneeded = report.explain(results.values())
    if not args.only and not args.exporter:
        print(''.join(f'no difference has this reason any more: {reason}\n' for reason in unneeded), end='')
    if args.table:
        versions = {}
        for file in sorted(args.out.glob('versions-*.json'), key=lambda file: file.stem == 'versions-torch'):
            versions |= json.loads(file.read_text(encoding='utf-8'))
        report.write(args.table, results.values(), versions)
    print(report.summary(results.values()))
    return int(any(row['status'] == 'differs' and not row['reason'] for row in results.values()))


if __name__ == '__main__':
    sys.exit(main())
