"""Hooks of mkdocs."""
import posixpath
import re


def on_page_markdown(markdown, page, **_):
    """Shows links to files outside docs/, which the site does not have, as paths in the repository."""
    folder = posixpath.join('docs', posixpath.dirname(page.file.src_uri))

    def replace(match):
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        return match[0] if path.startswith('docs/') else f'{match[1]} (`{path}`)'

    return re.sub(r'\[([^\]]*)\]\((\.\.?/[^)#\s]*)(?:#[^)]*)?\)', replace, markdown)
