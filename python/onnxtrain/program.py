"""Runs the program `onnxtrain`: flags from keyword arguments, its progress as a bar, its errors as exceptions."""
from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
from typing import Any, Iterator, Mapping

from onnxtrain._capi import Error
from onnxtrain._flags import REPEATABLE

_PROGRESS = re.compile(r"\s*(\d+)/(\d+)  epoch")
_STOPPED = 75  # exit code: stopped by a signal, with its state saved


def find_program() -> str:
    """The program: ONNXTRAIN_PROGRAM, else the one that the package carries, else the one on the PATH."""
    carried = pathlib.Path(__file__).with_name("bin") / "onnxtrain"
    found = os.environ.get("ONNXTRAIN_PROGRAM") or (str(carried) if carried.exists() else shutil.which("onnxtrain"))
    if not found:
        raise Error(Error.NOT_FOUND, "the program onnxtrain is not on the PATH (ONNXTRAIN_PROGRAM names it)")
    return found


def _write(value: Any) -> str:
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if getattr(value, "shape", None) == ():  # a number of NumPy or PyTorch
        return repr(value.item())
    raise TypeError(f"{type(value).__name__} is no value of a flag; Trainer takes arrays")


def make_words(flags: Mapping[str, Any]) -> list[str]:
    """Command line words: True and False turn a switch on and off, None leaves a flag out, a mapping is NAME=VALUE."""
    words: list[str] = []
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            words.append(f"{flag}={str(value).lower()}")
            continue
        if isinstance(value, Mapping):
            value = [f"{key}={_write(part)}" for key, part in value.items()]
        parts = [_write(part) for part in value] if isinstance(value, (list, tuple)) else [_write(value)]
        words += [f"{flag}={part}" for part in (parts if name in REPEATABLE else [",".join(parts)])]
    return words


class _Log:
    """Shows what the program prints: progress lines as a bar where tqdm is installed."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.bar, self.in_defaults, self.last = quiet, None, False, ""
        try:
            from tqdm.auto import tqdm
        except ImportError:
            tqdm = None
        self.tqdm = None if quiet else tqdm

    def show(self, line: str) -> None:
        progress = _PROGRESS.match(line)
        self.last = line if line.startswith("onnxtrain: ") else self.last
        self.in_defaults = line.startswith("defaults ") or (self.in_defaults and line.startswith(" "))
        if self.quiet or (self.in_defaults and self.tqdm):
            return
        if not progress or not self.tqdm or "|g|" not in line:
            print(line, file=sys.stderr, flush=True)
            return
        done, total = int(progress[1]), int(progress[2])
        if self.bar is None:
            self.bar = self.tqdm(total=total, unit="update")
        self.bar.update(done - self.bar.n)
        self.bar.set_postfix_str(" ".join(line[progress.end():].split()[1:])[:60])

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def _wait(process: subprocess.Popen[str], lines: Iterator[str], log: _Log) -> None:
    try:
        for line in lines:
            log.show(line.rstrip("\n"))
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)  # the run saves its state
        for line in lines:
            log.show(line.rstrip("\n"))
        process.wait()
        raise
    finally:
        log.close()


def run(command: str, flags: Mapping[str, Any]) -> str:
    """Returns what the program prints as its result. Raises Error with its last line if it fails.

    An interrupt is passed on: the run stops with its state saved, and KeyboardInterrupt is raised.
    """
    given = dict(flags)
    quiet = bool(given.pop("quiet", False))
    log = _Log(quiet)
    if command == "train" and log.tqdm and "log_every" not in given:
        given.setdefault("verbose", True)
    arguments = [find_program(), command, *make_words(given)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                               text=True, encoding="utf-8", errors="replace", start_new_session=True)
    assert process.stdout is not None and process.stderr is not None
    output: list[str] = []
    reader = threading.Thread(target=lambda: output.append(process.stdout.read()))  # neither pipe may fill up
    reader.start()
    with process.stdout, process.stderr:
        try:
            _wait(process, process.stderr, log)
        finally:
            reader.join()
    code = process.wait()
    if code == _STOPPED or code == -signal.SIGINT:
        raise KeyboardInterrupt
    if code:
        message = re.sub(r"^onnxtrain: (error|failed|required): ", "", log.last) or f"onnxtrain ended with {code}"
        raise Error(Error.INVALID_ARGUMENT if code == 1 else Error.INTERNAL, message)
    return output[0]
