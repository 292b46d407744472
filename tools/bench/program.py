"""Runs `onnxtrain … --json` for the benchmark scripts."""
import json
import subprocess
import sys


def stream_json(command):
    """Yields the elements of the array that the command prints, each as soon as it is complete. Exits with one line if
    the command fails."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        sys.exit(f'{command[0]}: {error.strerror} (the program is built by cmake --build --preset release)')
    text = ''
    for line in process.stdout:
        text += line
        if line == '}\n':  # the last line of an element
            yield json.loads(text.lstrip('[,\n'))
            text = ''
    if process.wait() != 0:
        sys.exit(f'{" ".join(command)}: ended with {process.returncode}')


def run_json(command):
    """Returns the JSON that the command prints; exits with one line if the command fails."""
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE)
    except OSError as error:
        sys.exit(f'{command[0]}: {error.strerror} (the program is built by cmake --build --preset release)')
    if result.returncode != 0:
        sys.exit(f'{" ".join(command)}: ended with {result.returncode}')
    return json.loads(result.stdout)
