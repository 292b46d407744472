#!/usr/bin/python3
"""Prints the compilation units of a unity build that hold one of the sources given on stdin, one path per line.

    lint_units.py build/tidy/compile_commands.json < SOURCES, from the root of the sources
"""
import json
import os
import re
import sys


def sources_of(unit):
    """Returns the sources that a generated unit includes, or the unit itself."""
    if '/unity_' not in unit:
        return {unit}
    with open(unit, encoding='utf-8') as file:
        return {os.path.abspath(path) for path in re.findall(r'^#include "(.*)"$', file.read(), re.M)}


def main(database):
    wanted = {os.path.abspath(line.strip()) for line in sys.stdin}
    with open(database, encoding='utf-8') as file:
        units = sorted({command['file'] for command in json.load(file)})
    for unit in units:
        if sources_of(unit) & wanted:
            print(unit)


if __name__ == '__main__':
    main(sys.argv[1])
