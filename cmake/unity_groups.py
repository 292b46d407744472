"""Groups sources for a unity build so that their file-local names do not clash.

    unity_groups.py FOLDER FILES_PER_GROUP FILE...

Writes a source per group into FOLDER and prints the sources to compile: those of the groups, and the files that stay
alone. To be run from the root of the sources, relative to which groups include their files. File-local names are those
in anonymous namespaces, enumerators in them, macros and aliases; equal aliases do not clash. Sources are not grouped
where headers that they include declare a local name, or a function and a type of one name. A file that includes
Highway's foreach_target.h, and thereby itself, stays alone.
"""
import functools
import os
import re
import sys

COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\((?:.*?)\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
NAME = r'[A-Za-z_]\w*'


def anonymous_namespaces(text):
    """Yields the bodies of anonymous namespaces."""
    for match in re.finditer(r'\bnamespace\s*\{', text):
        depth, i = 1, match.end()
        while depth and i < len(text):
            depth += {'{': 1, '}': -1}.get(text[i], 0)
            i += 1
        yield text[match.end():i - 1]


def declared_names(body):
    """Yields (name, alias) for what the top level of a namespace declares; see local_names."""
    heads, depth, head = [], 0, ''
    for c in body:
        depth -= c in '})'
        if depth == 0:
            head += c
            if c in ';}':
                heads.append(head)
                head = ''
        depth += c in '{('
    for head in heads:
        head = re.sub(r'template\s*<[^{;()]*?>\s*(?=[A-Za-z\[])', '', head).strip()
        if head.startswith('using') and '=' not in head or re.match(r'[A-Z_]+\(', head):
            continue  # a using declaration, or a macro such as TEST
        if match := re.match(rf'(?:using|namespace)\s+({NAME})\s*=\s*(.*);$', head, re.S):
            yield match[1], ' '.join(match[2].split())
        elif match := re.match(rf'(?:struct|class|union|enum(?:\s+class)?)\s+({NAME})', head):
            yield match[1], None
        elif match := re.search(rf'({NAME})\s*\(', head):
            yield match[1], None
        else:
            for name in re.findall(rf'({NAME})\s*(?:=|\[|\{{|;|,\s)', head):
                yield name, None


@functools.cache
def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def strip(path):
    """Returns the source without comments, literals and preprocessor lines, and the macros that it defines."""
    text = COMMENT_OR_LITERAL.sub(' ', read(path))
    macros = re.findall(r'^\s*#\s*define\s+(\w+)', text, re.M)
    return re.sub(r'^\s*#(?:\\\n|[^\n])*', '', text, flags=re.M), macros


def local_names(path):
    """Returns the file-local names, each with what it is an alias of, or None."""
    code, macros = strip(path)
    names = dict.fromkeys(macros)
    names |= re.findall(rf'^(?:using|namespace)\s+({NAME})\s*=\s*([^;]*);', code, re.M)
    for body in anonymous_namespaces(code):
        names |= declared_names(body)
        for enumerators in re.findall(r'\benum\s+\w*[^{;]*\{([^}]*)\}', body):
            names |= dict.fromkeys(re.findall(rf'\b{NAME}', enumerators))
    return names


@functools.cache
def included_headers(path):
    """Returns the project's headers that the file includes, directly or not, from the current folder."""
    found, pending = set(), [path]
    while pending:
        for header in re.findall(r'^#include "([^"]+)"', read(pending.pop()), re.M):
            if header not in found and os.path.exists(header):
                found.add(header)
                pending.append(header)
    return found


@functools.cache
def header_functions(path):
    """Returns the functions that a header declares at the start of a line."""
    return set(re.findall(r'^\w[^(){};=]*?(\w+)\(', strip(path)[0], re.M))


@functools.cache
def header_types(path):
    """Returns the types that a header declares at the start of a line."""
    return set(re.findall(r'^(?:struct|class|enum class|using)\s+(\w+)', strip(path)[0], re.M))


def declare_twice(headers, names):
    """Whether headers declare a local name, or one of them a function with the name of a type of another."""
    functions, types = (set().union(*map(f, headers)) for f in (header_functions, header_types))
    return bool(functions & types or (functions | types) & names)


class Group:
    """Files that can be compiled as one source."""

    def __init__(self):
        self.files, self.names, self.headers = [], {}, set()

    def takes(self, path):
        names, headers = local_names(path), self.headers | included_headers(path)
        return (all(name not in self.names or alias is not None and self.names[name] == alias
                    for name, alias in names.items()) and
                not declare_twice(headers, self.names.keys() | names.keys()))

    def add(self, path):
        self.files.append(path)
        self.names |= local_names(path)
        self.headers |= included_headers(path)


def group(paths, limit):
    """Returns lists of files that are compiled together."""
    alone, groups = [], []
    for path in paths:
        if 'foreach_target.h' in read(path):
            alone.append([path])
            continue
        chosen = next((g for g in groups if len(g.files) < limit and g.takes(path)), None)
        if chosen is None:
            groups.append(chosen := Group())
        chosen.add(path)
    return alone + [g.files for g in groups]


def write_if_changed(path, text):
    """Keeps the time of a file that has this text, so that nothing is compiled again."""
    if not os.path.exists(path) or open(path, encoding='utf-8').read() != text:
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)


def main(folder, limit, paths):
    os.makedirs(folder, exist_ok=True)
    for number, files in enumerate(group(paths, limit)):
        unit = files[0]
        if len(files) > 1:
            unit = f'{folder}/{number}.cc'
            write_if_changed(unit, ''.join(f'#include "{os.path.relpath(path)}"\n' for path in files))
        print(unit)


if __name__ == '__main__':
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
