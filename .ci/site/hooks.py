"""Hooks of the site (.ci/mkdocs.yml): its version, pages and links outside of the folder docs.

README.md and CHANGELOG.md are pages of the site. A link to another file of the repository leads to
a copy of it with highlighted code, and a link to a folder to a list of its files.
"""

import posixpath
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
"""Pages of the site that are not in docs, by their path in the repository."""
ASSETS = "iframe-worker.js", "wide.css"
"""Files beside this one that pages load: a script, which the search needs in a site that is opened
as files, and a style sheet."""
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)(?P<path>[^)#\s]+)(?=[)#])")
MARKER = re.compile(r"^<!-- \S+ -->$", re.MULTILINE)
"""Begin or end of a generated part. Python-Markdown takes the lines next to it for HTML."""
BINARY = {".gz", ".npz", ".png"}
"""Suffixes of files that have no copy in the site."""


def site_path(target: Path) -> str:
    """Return the path in the site of a file or folder of the repository."""
    name = target.relative_to(ROOT).as_posix()
    if name in PAGES:
        return PAGES[name]
    if target.is_file() and target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    name = name.lstrip(".")  # MkDocs leaves out names that begin with a dot
    return f"source/{name}/index.html" if target.is_dir() else f"source/{name}.html"


def source_of(page: str) -> Path:
    """Return the file of the repository that is the page of the site."""
    return next((ROOT / name for name, site in PAGES.items() if site == page), DOCS / page)


def target_of(source: Path, link: str) -> Path | None:
    """Return the file or folder of the repository that a link of a page leads to, if it is one."""
    target = (source.parent / link).resolve()
    return target if target.is_relative_to(ROOT) and target.exists() else None


def code_page(path: Path) -> str:
    """Return a page with the highlighted text of a file."""
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = TextLexer()
    title = path.relative_to(ROOT).as_posix()
    return highlight(path.read_text(), lexer, HtmlFormatter(full=True, title=title, linenos=True))


def source_pages(target: Path) -> Iterator[tuple[str, str]]:
    """Yield path and contents of the pages for a file, or for a folder and the files in it."""
    if target.is_file():
        yield site_path(target), code_page(target)
        return
    title = target.relative_to(ROOT).as_posix()
    items = []
    for path in sorted(path for path in target.iterdir() if path.is_file()):
        if path.suffix in BINARY:
            items.append(f"<li>{path.name}</li>")
        else:
            items.append(f'<li><a href="{path.name}.html">{path.name}</a></li>')
            yield site_path(path), code_page(path)
    listing = "\n".join(items)
    yield (
        site_path(target),
        f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{title}</title></head>\n'
        f"<body><h2>{title}</h2>\n<ul>\n{listing}\n</ul></body></html>\n",
    )


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the version into the title of the site."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    config.site_name = f"{config.site_name} {project['version']}"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs, and copies of the files that pages have links to."""
    for name, site in PAGES.items():
        files.append(File.generated(config, site, abs_src_path=str(ROOT / name)))
    for name in ASSETS:
        asset = str(Path(__file__).with_name(name))
        files.append(File.generated(config, f"assets/{name}", abs_src_path=asset))
    linked = set()
    for page in files.documentation_pages():
        source = source_of(page.src_uri)
        for link in LINK.finditer(source.read_text()):
            linked.add(target_of(source, link["path"]))
    pages = {}
    for target in linked - {None}:
        if site_path(target).startswith("source/"):
            pages |= source_pages(target)
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Turn links between files of the repository into links between files of the site."""
    source = source_of(page.file.src_uri)
    folder = posixpath.dirname(page.file.src_uri) or "."

    def moved(link: re.Match[str]) -> str:
        target = target_of(source, link["path"])
        return posixpath.relpath(site_path(target), folder) if target else link[0]

    return LINK.sub(moved, MARKER.sub("", markdown))
