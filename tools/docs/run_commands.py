#!/usr/bin/env python3
"""Runs the commands of the documentation and compares the shape of their output.

    tools/docs/run_commands.py [--build BUILD] [--gpt-python PYTHON] [PAGE …]    all pages without names

The blocks of a page that are marked `sh` are run by bash in a fresh folder, which holds links to tools/ and presets/
and, except for pages that make them, the examples of getting-started.md. The block `text` after a command is its
expected output: each line must come, in this order, with any numbers; a line `…` stands for any lines, and a line that
ends in `…` for any end. PYTHON, with PyTorch 2.5 or later, runs make_gpt.py. Exits with 1 if a command fails or a line
is missing.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = 'python3 tools/make_examples.py ex'
NEEDS = {  # pages whose commands make files for others
    'docs/guide/data.md': 'docs/guide/tables.md',
    'docs/guide/losses-and-metrics.md': 'docs/guide/tables.md',
    'docs/guide/fine-tuning.md': 'docs/getting-started.md',
    'docs/guide/adapters.md': 'docs/guide/language-models.md',
    'docs/guide/adapter-files.md': 'docs/guide/adapters.md',
}


def list_blocks(page):
    """Yields (line, command, expected output or None)."""
    text = (ROOT / page).read_text()
    for m in re.finditer(r'^```sh\n(.*?)^```\n(?:\s*^```text\n(.*?)^```)?', text, re.M | re.S):
        yield text.count('\n', 0, m.start()) + 2, m[1], m[2]


def shape(line):
    """The line without what differs between machines and runs."""
    line = re.sub(r'vector kernels for [^,]*', 'vector kernels', line)
    line = re.sub(r'\b[0-9a-f]{32,}\b', 'HASH', line)
    line = re.sub(r'[-+]?\d[\d,]*(\.\d+)*(e[-+]?\d+)?', '#', line).replace('#,', '#')
    line = re.sub(r'# (B|KiB|MiB|GiB|ns|µs|ms|s)\b', '# U', line)
    return re.sub(r'\s+', ' ', line).strip()


def find_missing(expected, output):
    """The first expected line that does not come, or None."""
    lines = [shape(line) for line in re.split(r'[\r\n]+', output)]
    at = 0
    for line in expected.splitlines():
        want = shape(line)
        if want in ('', '…') or re.search('[\u2800-\u28ff]', want):  # nothing, or a plot of dots
            continue
        start = want.removesuffix('…').rstrip()
        parts = [p.strip() for p in start.split('…')]
        match = (lambda got: got.startswith(start)) if want.endswith('…') and len(parts) == 1 else (
            lambda got: re.fullmatch('.*'.join(map(re.escape, parts)) + ('.*' if want.endswith('…') else ''), got))
        found = next((i for i in range(at, len(lines)) if match(lines[i])), None)
        if found is None:
            return line
        at = found + 1
    return None


class Folder:
    """A folder in which pages run."""

    def __init__(self, build, gpt_python):
        self.temporary = tempfile.TemporaryDirectory(prefix='onnxtrain-docs-')
        self.path = pathlib.Path(self.temporary.name)
        for name in ('tools', 'presets', 'docs', 'README.md', 'LICENSE', 'python', 'capi'):
            (self.path / name).symlink_to(ROOT / name)
        programs = self.path / '.bin'
        programs.mkdir()
        (programs / 'python3').write_text(
            f'#!/bin/sh\ncase "$1" in *make_gpt.py) exec {gpt_python} "$@" ;; esac\nexec /usr/bin/python3 "$@"\n')
        (programs / 'python3').chmod(0o755)
        self.environment = dict(os.environ, PATH=f'{programs}:{build}/bin:{os.environ["PATH"]}', COLUMNS='120')

    def run(self, command):
        return subprocess.run(['bash', '-e', '-c', command], cwd=self.path, env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=900)


def run_page(page, folder):
    """Returns the number of blocks that failed."""
    failed = 0
    for line, command, expected in list_blocks(page):
        start = time.time()
        done = folder.run(command)
        missing = None if expected is None or done.returncode else find_missing(expected, done.stdout)
        ok = done.returncode == 0 and missing is None
        failed += not ok
        print(f'{"ok    " if ok else "FAILED"} {time.time() - start:6.1f} s  {page}:{line}', flush=True)
        if done.returncode:
            print(f'exit code {done.returncode}:\n{done.stdout[-2000:]}')
        elif missing is not None:
            print(f'not in the output: {missing}\n{done.stdout[-3000:]}')
    return failed


def prepare(page, folder, examples):
    """Makes the files that the page expects."""
    if not any(EXAMPLES in command for _, command, _ in list_blocks(page)):
        shutil.copytree(examples.path / 'ex', folder.path / 'ex')
    make_needed(page, folder)


def make_needed(page, folder):
    """Runs the commands of the pages that the page needs, the first one first."""
    if page not in NEEDS:
        return
    make_needed(NEEDS[page], folder)
    for _, command, _ in list_blocks(NEEDS[page]):
        folder.run(command).check_returncode()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--build', default=ROOT / 'build/release', type=pathlib.Path)
    parser.add_argument('--gpt-python', default='/usr/bin/python3')
    parser.add_argument('pages', nargs='*')
    args = parser.parse_args()
    every = ['README.md'] + sorted(str(p.relative_to(ROOT)) for p in (ROOT / 'docs').rglob('*.md'))
    build, failed = args.build.resolve(), 0
    examples = Folder(build, args.gpt_python)
    examples.run(EXAMPLES).check_returncode()
    for page in args.pages or every:
        if any(True for _ in list_blocks(page)):
            folder = Folder(build, args.gpt_python)
            prepare(page, folder, examples)
            failed += run_page(page, folder)
    print(f'{failed} commands failed' if failed else 'every command works')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
