#!/usr/bin/env python3
"""Joins the results of gpu.sh into gpu.json and prints its table. Fails where a part failed.

    tools/bench/gpu_summary.py RESULTS
"""
import glob
import json
import os
import subprocess
import sys

TOKENS = {'bert': 128, 'bert4': 128, 'bert_large': 512, 'gpt2': 1024}  # of a sample


def gpu_name():
    query = ['nvidia-smi', '--query-gpu=name', '--format=csv,noheader']
    try:
        return subprocess.run(query, capture_output=True, text=True).stdout.strip() or 'unknown'
    except FileNotFoundError:
        return 'unknown'


def parts(folder):
    with open(os.path.join(folder, 'parts.tsv')) as lines:
        for line in lines:
            name, code, seconds = line.rstrip('\n').split('\t')
            yield {'part': name, 'exit_code': int(code), 'seconds': int(seconds)}


def speeds(folder):
    for path in sorted(glob.glob(os.path.join(folder, 'speed_*.json'))):
        with open(path) as file:
            yield from json.load(file)


def print_speed(result):
    rate = TOKENS.get(result['case'], 1) * result['batch']
    unit = 'tokens/s' if result['case'] in TOKENS else 'samples/s'
    print(f'{result["case"]}, batch {result["batch"]}')
    for name, run in result['runs'].items():
        print(f'  {name:<44} {run["median_seconds"] * 1e3:9.3f} ms {rate / run["median_seconds"]:12.0f} {unit} '
              f'{run["peak_bytes"] / 2**20:8.0f} MiB')
    for precision, ratio in result['ratios'].items():
        print(f'  {precision}: {ratio["ratio"]:.2f} of {ratio["peer"]}')


def main(folder):
    ordered = sorted(parts(folder), key=lambda part: part['part'])
    summary = {'gpu': gpu_name(), 'parts': ordered, 'speed': list(speeds(folder))}
    with open(os.path.join(folder, 'gpu.json'), 'w') as file:
        json.dump(summary, file, indent=1)
    for result in summary['speed']:
        print_speed(result)
    sys.exit(any(part['exit_code'] for part in summary['parts']))


if __name__ == '__main__':
    main(*sys.argv[1:2] or sys.exit(__doc__))
