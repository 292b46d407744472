#!/usr/bin/env python3
"""Counts the tests that passed, failed and were skipped, names those that failed, and says why others were skipped.

    tools/test_summary.py FOLDER        FOLDER holds googletest's XML reports (GTEST_OUTPUT=xml:FOLDER/)
"""
import collections
import pathlib
import sys
import xml.etree.ElementTree

NEEDS_SHARED = 'NEEDS ../shared: '


def reason(skipped):
    """Returns the first line of what the test says, without its source line."""
    text = skipped.get('message') or skipped.text or ''
    lines = [line for line in text.splitlines() if line.strip() and '.cc:' not in line]
    return lines[0].strip() if lines else 'no reason given'


def summarize(folder):
    passed, failed, reasons = 0, [], collections.Counter()
    for path in sorted(pathlib.Path(folder).glob('*.xml')):
        for test in xml.etree.ElementTree.parse(path).iter('testcase'):
            skipped = test.find('skipped')
            if test.get('status') == 'notrun':
                continue
            if test.find('failure') is not None:
                failed.append(f"{test.get('classname')}.{test.get('name')}")
            elif skipped is not None:
                reasons[reason(skipped)] += 1
            else:
                passed += 1
    return passed, failed, reasons


def main(folder):
    passed, failed, reasons = summarize(folder)
    if passed + len(failed) + reasons.total() == 0:
        sys.exit(f'{folder}: no reports of tests')
    shared = sum(n for text, n in reasons.items() if text.startswith(NEEDS_SHARED))
    for text, n in sorted(reasons.items()):
        print(f'  skipped {n}: {text}')
    if shared:
        print(f'NOT CHECKED: {shared} tests need files of ../shared (or of the folder in ONNXTRAIN_SHARED)')
    for name in failed:
        print(f'  failed: {name}')
    print(f'{passed} tests passed, {len(failed)} failed, {reasons.total()} skipped ({shared} of them need ../shared)')


if __name__ == '__main__':
    main(*sys.argv[1:])
