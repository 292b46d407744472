#!/usr/bin/python3
"""Prints compilation units of a unity build that hold the sources given on stdin, one path per line.

    lint_units.py build/tidy/compile_commands.json < SOURCES, from the root of the sources

Several programs may compile the same source: of its units, the one with the fewest sources that stdin does not name is
printed, as those may be ones that clang-tidy cannot parse.
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
        units = {command['file']: sources_of(command['file']) for command in json.load(file)}
    chosen = set()
    for source in wanted & set().union(*units.values()):
        holders = [unit for unit, sources in units.items() if source in sources]
        chosen.add(min(holders, key=lambda unit: (len(units[unit] - wanted), unit)))
    for unit in sorted(chosen):
        print(unit)


if __name__ == '__main__':
    main(sys.argv[1])
