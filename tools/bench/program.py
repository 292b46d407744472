"""Runs `onnxtrain … --json` for the benchmark scripts."""
import json
import subprocess
import sys


def run_json(command):
    """Returns the JSON that the command prints; exits with one line if the command fails."""
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE)
    except OSError as error:
        sys.exit(f'{command[0]}: {error.strerror} (the program is built by cmake --build --preset release)')
    if result.returncode != 0:
        sys.exit(f'{" ".join(command)}: ended with {result.returncode}')
    return json.loads(result.stdout)
