"""Groups sources for a unity build so that their file-local names do not clash.

    unity_groups.py FOLDER FILES_PER_GROUP FILE...

Writes a source per group into FOLDER and prints the sources to compile: those of the groups, and the files that stay
alone. To be run from the root of the sources, relative to which groups include their files. File-local names are those
in anonymous namespaces, enumerators in them, macros and aliases. A file stays alone if one of its local names is also
declared in a header, or if it includes Highway's foreach_target.h and thereby itself.
"""
import os
import re
import sys

COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\((?:.*?)\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)


def anonymous_namespaces(text):
    """Yields the bodies of anonymous namespaces."""
    for match in re.finditer(r'\bnamespace\s*\{', text):
        depth, i = 1, match.end()
        while depth and i < len(text):
            depth += {'{': 1, '}': -1}.get(text[i], 0)
            i += 1
        yield text[match.end():i - 1]


def declared_names(body):
    """Yields the names that the top level of a namespace declares."""
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
        if match := re.match(r'(?:struct|class|union|enum(?:\s+class)?|using)\s+(\w+)', head):
            yield match[1]
        elif match := re.search(r'(\w+)\s*\(', head):
            yield match[1]
        else:
            yield from re.findall(r'(\w+)\s*(?:=|\[|\{|;|,\s)', head)


def strip(path):
    """Returns the source without comments, literals and preprocessor lines, and the macros that it defines."""
    with open(path, encoding='utf-8') as file:
        text = COMMENT_OR_LITERAL.sub(' ', file.read())
    macros = re.findall(r'^\s*#\s*define\s+(\w+)', text, re.M)
    return re.sub(r'^\s*#(?:\\\n|[^\n])*', '', text, flags=re.M), macros


def local_names(path):
    code, macros = strip(path)
    names = set(macros) | set(re.findall(r'^using\s+(\w+)\s*=', code, re.M))
    for body in anonymous_namespaces(code):
        names |= set(declared_names(body))
        for enumerators in re.findall(r'\benum\s+\w*[^{;]*\{([^}]*)\}', body):
            names |= set(re.findall(r'\b[A-Za-z_]\w*', enumerators))
    return names


def included_headers(paths):
    """Returns the project's headers that the files include, directly or not, from the current folder."""
    found, pending = set(), list(paths)
    while pending:
        with open(pending.pop(), encoding='utf-8') as file:
            for header in re.findall(r'^#include "([^"]+)"', file.read(), re.M):
                if header not in found and os.path.exists(header):
                    found.add(header)
                    pending.append(header)
    return found


def header_names(paths):
    """Returns the functions and types that headers declare at the start of a line."""
    names = set()
    for path in paths:
        code, _ = strip(path)
        names |= set(re.findall(r'^\w[^(){};=]*?(\w+)\(', code, re.M))
        names |= set(re.findall(r'^(?:struct|class|enum class|using)\s+(\w+)', code, re.M))
    return names


def group(paths, limit):
    """Returns lists of files whose local names differ."""
    groups = []  # of (names, files); names None: closed
    public = header_names(included_headers(paths))
    for path in paths:
        names = local_names(path)
        if names & public or 'foreach_target.h' in open(path, encoding='utf-8').read():
            groups.append((None, [path]))
            continue
        for taken, files in groups:
            if taken is not None and len(files) < limit and not taken & names:
                taken |= names
                files.append(path)
                break
        else:
            groups.append((names, [path]))
    return [files for _, files in groups]


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
