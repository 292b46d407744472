#!/usr/bin/env python3
"""Measures the structure of the product: everything in C++ but tests.

    tools/house.py                   sizes of files and functions, names of operators, functions that rewrite graphs
    tools/house.py --trace BUILD     also the start of a training run of LeNet with the program of a build folder

Needs universal-ctags; --trace needs valgrind and the model of the folder's tests (parity/lenet-opset13.onnx).
"""
import argparse
import collections
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Folders whose code may name operators: rows, imports, kernels, and tools that list them.
OPERATOR_FOLDERS = re.compile(r'(frontend/ops|backends/cpu|backends/torch/kernels|tools/op_table|tools/bench)/')
# What a reader of a run takes for granted.
FOUNDATIONS = re.compile(r'frontend/(base|graph|ops)/')


def list_files():
    listed = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard', '*.cc', '*.h'], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split()
    return [f for f in sorted(listed) if not f.startswith('tests/') and (ROOT / f).exists()]


def read(file):
    return (ROOT / file).read_text(encoding='utf-8')


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def list_functions(files):
    """Returns (qualified name, file, lines) of each definition."""
    tags = subprocess.run(['ctags', '--language-force=C++', '--c++-kinds=f', '--fields=+nesZ', '-f', '-', '-L', '-'],
                          cwd=ROOT, check=True, capture_output=True, text=True, input='\n'.join(files)).stdout
    functions = []
    for line in tags.splitlines():
        if line.startswith('!'):
            continue
        name, file, *fields = line.split('\t')
        fields = dict(f.split(':', 1) for f in fields if ':' in f)
        if 'end' not in fields:
            continue
        scope = re.sub(r'^\w+:', '', fields.get('scope', ''))
        scope = '::'.join(part for part in scope.split('::') if part and not part.startswith('__anon'))
        functions.append((f'{scope}::{name}' if scope else name, file, int(fields['end']) - int(fields['line']) + 1))
    return functions


def print_sizes(files, functions):
    lines = {f: read(f).count('\n') for f in files}
    sources = [n for f, n in lines.items() if f.endswith('.cc')]
    headers = [n for f, n in lines.items() if f.endswith('.h')]
    folders = collections.Counter(os.path.dirname(f) for f in files)
    largest = max((f for f in files if f.endswith('.cc')), key=lines.get)
    sizes = [n for _, _, n in functions]
    longest = max(functions, key=lambda f: f[2])
    print(f'lines                     {sum(lines.values())}')
    print(f'files                     {len(files)}, of which {len(headers)} headers')
    print(f'median .cc, .h            {statistics.median(sources):.0f}, {statistics.median(headers):.0f} lines')
    print(f'largest .cc               {lines[largest]} lines, {largest}')
    print('largest folders           ' + ', '.join(f'{d} {n}' for d, n in folders.most_common(4)))
    print(f'functions                 {len(sizes)}: median {statistics.median(sizes):.0f}, p90 {quantile(sizes, .9)}, '
          f'max {longest[2]} ({longest[0]})')


def print_operator_names(files):
    table = ROOT / 'docs/reference/operators.md'
    names = set(re.findall(r'^\| `?([A-Z]\w+)`? ', table.read_text(encoding='utf-8'), re.M))
    uses = collections.Counter()
    for file in files:
        if not OPERATOR_FOLDERS.match(file):
            text = re.sub(r'//[^\n]*', '', read(file))
            uses[file] = sum(name in names for name in re.findall(r'"([A-Z]\w+)"', text))
    uses = +uses
    print(f'operator names            {sum(uses.values())} in {len(uses)} files outside rows, imports and kernels: ' +
          ', '.join(f'{f} {n}' for f, n in uses.most_common(4)))


def print_rewriters(files):
    """Functions of headers from graph to graph that no pass calls and that run no passes themselves."""
    text = '\n'.join(read(f) for f in files if f.endswith('.cc'))
    called = set(re.findall(r'\b([A-Z]\w+)\b', ''.join(re.findall(r'\{"[a-z_]+",[^;]*?;?[^;]*?\}', text))))
    for run in re.findall(r'RunRewrite\("\w+", (\w+),', text):
        for rewrite in re.findall(rf'const auto {run} = \[.*?^ *\}};', text, re.M | re.S):
            called.update(re.findall(r'\b([A-Z]\w+)\b', rewrite))
    found = []
    for file in files:
        if not file.endswith('.h') or FOUNDATIONS.match(file) or re.match(r'frontend/passes/(pass|rewrite)\.h', file):
            continue
        for name in re.findall(r'^(?:absl::StatusOr<)?Graph>? (\w+)\([^;{]*\bGraph\b[^;{]*;', read(file), re.M):
            body = re.search(rf'Graph>? {name}\([^;]*?\{{\n.*?^\}}', text, re.M | re.S)
            runs_passes = body and re.search(r'Run(Passes|ToFixedPoint|BeforeCleanUp)|CleanUp|Canonicalize', body[0])
            if name not in called and not runs_passes:
                found.append(name)
    print(f'rewriters without a pass  {len(found)}: {", ".join(sorted(found))}')


def plain_name(symbol):
    """Returns the qualified name in a symbol of callgrind, without arguments; None for foreign code."""
    symbol = re.sub(r"'\d+$", '', symbol).replace('(anonymous namespace)::', '').replace('[abi:cxx11]', '')
    depth = 0
    for i, c in enumerate(symbol):
        depth += (c == '<') - (c == '>')
        if c == '(' and depth <= 0 and i:
            symbol = symbol[:i]
            break
    match = re.search(r'(onnxtrain::[\w:~]+)$', symbol)
    return match[1] if match else None


def trace(build):
    """Runs to the first update; returns the calls as (caller, callee) and the number of imports."""
    build = build.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / 'calls'
        subprocess.run(['valgrind', '--tool=callgrind', f'--callgrind-out-file={out}', '--compress-strings=no',
                        '--compress-pos=no', '--dump-before=onnxtrain::SessionImpl::Step*', build / 'bin/onnxtrain',
                        '--model', build / 'parity/lenet-opset13.onnx', '--max-steps', '1', '--out',
                        f'{scratch}/run'], check=True, capture_output=True)
        caller, calls, imports = None, set(), 0
        lines = iter(pathlib.Path(f'{out}.1').read_text(encoding='utf-8').splitlines())
        for line in lines:
            if line.startswith('fn='):
                caller = plain_name(line[3:])
            elif line.startswith('cfn='):
                callee = plain_name(line[4:])
                count = int(next(lines).split()[0].removeprefix('calls='))
                calls.add((caller, callee))
                imports += count if callee == 'onnxtrain::Import' else 0
        return calls, imports


def print_start(functions, build):
    # A trace tells functions apart by their names alone: those with several definitions are left out.
    counts = collections.Counter(name for name, _, _ in functions)
    where = {name: file for name, file, _ in functions if counts[name] == 1}
    lines = {name: length for name, _, length in functions}
    calls, imports = trace(build)

    def stage(name):
        parts = where[name].split('/')
        return '/'.join(parts[:2] if parts[0] in ('frontend', 'backends', 'optim') else parts[:1])

    crossed = {b for a, b in calls if a in where and b in where and stage(a) != stage(b) and
               not FOUNDATIONS.match(where[b])}
    accessors = sum(lines[f] <= 3 for f in crossed)
    print(f'imports of a plain run    {imports}')
    print(f'calls between stages      {len(crossed)} functions in {len({where[f] for f in crossed})} files until the '
          f'first update, {accessors} of them of at most three lines')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--trace', metavar='BUILD', type=pathlib.Path)
    args = parser.parse_args()
    files = list_files()
    functions = list_functions(files)
    print_sizes(files, functions)
    print_operator_names(files)
    print_rewriters(files)
    if args.trace:
        print_start(functions, args.trace)


if __name__ == '__main__':
    main()
