"""Runs of `onnxtrain … --json`, for the scripts beside this one."""
import json
import subprocess
import sys


def run_json(command):
    """What the command prints. Ends with one line where it cannot be started or fails, behind what it says itself."""
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE)
    except OSError as error:
        sys.exit(f'{command[0]}: {error.strerror} (the program is built by cmake --build --preset release)')
    if result.returncode != 0:
        sys.exit(f'{" ".join(command)}: ended with {result.returncode}')
    return json.loads(result.stdout)
