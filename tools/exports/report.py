"""Rows of results: their reasons, the table of differences, the page of the documentation."""
import collections
import datetime
import json
import re
import textwrap

from exports.reasons import REASONS

BEGIN, END = '<!-- results: begin -->', '<!-- results: end -->'
GONE = 'gone'  # of a file of an earlier export
OF_EXPORTERS = ('refused', 'crashed', 'timed out')


def key(row):
    return row['architecture'], row['exporter'], row['file']


def read(path):
    """Returns the newest row of each file by its key."""
    rows = [json.loads(line) for line in path.read_text(encoding='utf-8').splitlines()] if path.exists() else []
    newest = {key(row): row for row in rows}
    return {k: row for k, row in newest.items() if row['status'] != GONE}


def number(x):
    return f'{x:.1e}'


def listed(names, most=3):
    return ', '.join(f'`{n}`' for n in names[:most]) + (f' and {len(names) - most} more' if len(names) > most else '')


def difference(row):
    """Says in words what differs; the reasons match this text."""
    other = (row.get('file_error') or 0) > 1e-3
    parts = ['onnxruntime differs from the framework, too'] if other else []
    if row.get('not_loaded'):
        parts.append('onnxruntime does not load the file')
    if row['status'] != 'differs':
        return '; '.join([row.get('problem', ''), *parts])
    if row['ours'] != row['theirs']:
        parts.append(f"trains {row['ours']:,} values instead of {row['theirs']:,}")
    if row['missing'] and (row['ours'] != row['theirs'] or row['gradient_error'] > 1e-5):
        parts.append('without ' + ('parameters of BatchNorm' if row['only_batch_norm'] else listed(row['missing'])))
    if row['extra'] and row['ours'] != row['theirs']:
        parts.append('with ' + listed(row['extra']))
    if row['loss_error'] > 1e-6:
        parts.append(f"loss off by {number(row['loss_error'])}")
    if row['gradient_error'] > 1e-5:
        parts.append(f"gradient norm off by {number(row['gradient_error'])}")
    return '; '.join(parts)


def line(row):
    text = f"{row['status']:12} {row['exporter']:18} {row['architecture']} {row['file']}"
    return text if row['status'] == 'equal' else f'{text}: {difference(row)}'


def explain(rows):
    """Gives each row its reason, or an empty one. Returns the reasons that no row needed."""
    used = set()
    for row in rows:
        row['reason'] = ''
        if row['status'] not in ('differs', 'not trained'):
            continue
        place, text = f"{row['exporter']} {row['architecture']} {row['file']}", difference(row)
        for where, what, reason in REASONS:
            if re.search(where, place) and re.search(what, text):
                row['reason'] = reason
                used.add((where, what))
                break
    return [reason for where, what, reason in REASONS if (where, what) not in used]


def counts(rows):
    """One row of numbers for each exporter."""
    table = collections.defaultdict(collections.Counter)
    for row in rows:
        status = row['status']
        if status == 'not applicable':
            continue
        column = 'exporter failed' if status in OF_EXPORTERS else status
        if status in ('differs', 'not trained') and row['reason']:
            column += ', known'
        table[row['exporter']][column] += 1
        table[row['exporter']]['architectures', row['architecture']] = 1
    return table


COLUMNS = ('equal', 'differs', 'differs, known', 'not trained', 'not trained, known', 'exporter failed')


def summary(rows):
    lines = ['| exporter | architectures | ' + ' | '.join(COLUMNS) + ' |', '|---' * (len(COLUMNS) + 2) + '|']
    total = collections.Counter()
    for exporter, numbers in counts(rows).items():
        numbers['architectures'] = sum(isinstance(name, tuple) for name in numbers)
        total.update({c: numbers[c] for c in COLUMNS})
        cells = [exporter, numbers['architectures'], *(numbers[c] for c in COLUMNS)]
        lines.append('| ' + ' | '.join(map(str, cells)) + ' |')
    architectures = len({row['architecture'] for row in rows if row['status'] != 'not applicable'})
    lines.append(f'| all | {architectures} | ' + ' | '.join(str(total[c]) for c in COLUMNS) + ' |')
    return '\n'.join(lines)


def known_differences(rows):
    """A table of the reasons, with the architectures and exporters that have each."""
    files, places = collections.Counter(), collections.defaultdict(lambda: collections.defaultdict(set))
    for row in rows:
        if row['reason']:
            files[row['reason']] += 1
            places[row['reason']][row['architecture'].split('/')[1]].add(row['exporter'])
    lines = ['| reason | files | architectures (exporters) |', '|---|---|---|']
    for reason, architectures in sorted(places.items()):
        cells = ', '.join(f"{name} ({', '.join(sorted(exporters))})" for name, exporters in architectures.items())
        lines.append(f'| {reason} | {files[reason]} | {cells} |')
    return '\n'.join(lines) if places else 'None.'


def other_differences(rows):
    """A table of the differences without a reason. Files of one architecture with the same difference share a row."""
    groups = collections.OrderedDict()
    for row in rows:
        if row['status'] in ('differs', 'not trained') and not row['reason']:
            file = row['file'].removesuffix('model').rstrip('/')
            group = row['architecture'], difference(row).replace('|', '\\|')
            groups.setdefault(group, []).append(f"{row['exporter']} {file}".strip())
    lines = ['| architecture | export | difference |', '|---|---|---|']
    lines += [f'| {name} | {shortened(where)} | {text} |' for (name, text), where in groups.items()]
    return '\n'.join(lines) if groups else 'None.'


def shortened(names, most=4):
    return ', '.join(names[:most]) + (f' and {len(names) - most} more' if len(names) > most else '')


def failures(rows):
    """What exporters refuse, by exporter and the beginning of the message."""
    groups = collections.OrderedDict()
    for row in rows:
        if row['status'] in OF_EXPORTERS:
            text = re.sub(r'\s+', ' ', row['problem'])[:110].replace('|', '\\|').replace('<', '&lt;')
            groups.setdefault((row['exporter'], text), []).append(row['architecture'].split('/')[1])
    lines = ['| exporter | architectures | message |', '|---|---|---|']
    for (exporter, text), names in groups.items():
        lines.append(f'| {exporter} | {shortened(list(dict.fromkeys(names)), 8)} | {text} |')
    return '\n'.join(lines) if groups else 'None.'


def write(page, rows, versions):
    """Replaces the results in a page, between two comments."""
    rows = sorted(rows, key=key)
    text = page.read_text(encoding='utf-8')
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    made_with = ', '.join(f'{package} {version}' for package, version in versions.items())
    head = '\n'.join(textwrap.wrap(f'Of {datetime.date.today():%d %B %Y}, with {made_with}.', 120))
    parts = [head, summary(rows), '### Differences with a known reason', known_differences(rows),
             '### Other differences', other_differences(rows), '### What exporters do not write', failures(rows)]
    page.write_text(text[:begin] + '\n\n' + '\n\n'.join(parts) + '\n\n' + text[end:], encoding='utf-8')
