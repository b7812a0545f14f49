"""The site of ``make docs``: it builds without a warning, and everything in it can be reached."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from markdown_it import MarkdownIt

import open_tma
from hw.flow.cache import ROOT

CONFIG = ROOT / ".ci" / "mkdocs.yml"
PAGES = {path.stem: path for path in (ROOT / "docs").glob("*.md")}
PAGES |= {"index": ROOT / "README.md", "changelog": ROOT / "CHANGELOG.md"}
"""Source of each page of the site."""
COUNTED = {"blockquote", "em", "h2", "h3", "img", "li", "ol", "pre", "strong", "table", "tr", "ul"}
"""Elements that a page has as often as Markdown has them elsewhere."""
COMMONMARK = MarkdownIt("commonmark").enable("table")


class Html(HTMLParser):
    """The elements of a page: links, what it loads, and how many of each kind its text has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.counts: Counter[str] = Counter()
        self._is_text = "<article" not in text
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "article":
            self._is_text = True
        if self._is_text and tag in COUNTED:
            self.counts[tag] += 1
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") in {"icon", "stylesheet"}:
            self.loaded.append(given["href"])

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._is_text = False


class Site:
    """A site that was built in a folder, and what the build printed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
        command += ["--config-file", str(CONFIG), "--site-dir", str(folder)]
        settings = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
        run = subprocess.run(
            command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.status = run.returncode
        self.printed = run.stdout

    @cached_property
    def pages(self) -> dict[Path, Html]:
        """Elements of each page, by its path; copies of code have no links."""
        paths = [*self.folder.glob("*.html"), *self.folder.rglob("index.html")]
        return {path: Html(path.read_text()) for path in sorted(set(paths))}

    def problem(self, page: Path, link: str) -> str:
        """Return what is wrong with a link of a page, or nothing."""
        parts = urlsplit(link)
        if parts.scheme in {"https", "mailto"}:
            return ""
        if parts.scheme or parts.netloc or parts.path.startswith("/"):
            return "is not relative"
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not target.is_relative_to(self.folder) or not target.is_file():
            return "leads nowhere"
        if parts.fragment and unquote(parts.fragment) not in self.pages[target].ids:
            return "has no anchor"
        return ""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site").resolve())


def test_it_builds_without_a_warning(site):
    assert (site.status, site.printed) == (0, "")


def test_the_version_is_in_the_title(site):
    index = (site.folder / "index.html").read_text()
    assert f"<title>open-tma {open_tma.__version__}</title>" in index
    assert '"version": {"provider": "mike"}' in index  # lists the versions that are published


@pytest.mark.regress
def test_versions_are_published_side_by_side(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    for setting in "name", "email":
        subprocess.run(["git", "config", f"user.{setting}", "someone"], cwd=clone, check=True)
    project = clone / "pyproject.toml"
    for version in "0.8.0", "0.9.0":
        line = re.compile(r'^version = ".*"$', re.MULTILINE)
        project.write_text(line.sub(f'version = "{version}"', project.read_text(), count=1))
        subprocess.run(["make", "publish"], cwd=clone, check=True)

    def published(name: str) -> str:
        command = ["git", "show", f"gh-pages:{name}"]
        return subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True).stdout

    versions = {
        entry["version"]: entry["aliases"] for entry in json.loads(published("versions.json"))
    }
    assert versions == {"0.8.0": [], "0.9.0": ["latest"]}
    assert 'window.location.replace(\n      "latest/"' in published("index.html")
    for version in versions:
        assert f"<title>open-tma {version}</title>" in published(f"{version}/index.html")


def test_links_and_pictures_lead_somewhere(site):
    found = Counter()
    problems = []
    for path, page in site.pages.items():
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        for link in page.links + page.loaded:
            found[link] += 1
            if problem := site.problem(path, link):
                problems.append(f"{path.relative_to(site.folder)}: {link} {problem}")
    assert not problems
    assert any("#" in link for link in found)
    assert any(link.endswith(".svg") for link in found)
    assert any(link.startswith("source/hw/") for link in found)


def test_nothing_is_loaded_from_the_network(site):
    for path, page in site.pages.items():
        assert not [name for name in page.loaded if urlsplit(name).netloc], path


def test_every_page_is_in_the_navigation(site):
    def leaves(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        children = entry.values() if isinstance(entry, dict) else entry
        return [leaf for child in children for leaf in leaves(child)]

    text = CONFIG.read_text().partition("\nnav:")[2].partition("\n\n")[0]
    assert sorted(leaves(yaml.safe_load(text))) == sorted(f"{name}.md" for name in PAGES)
    links = {link.partition("#")[0] for link in site.pages[site.folder / "index.html"].links}
    assert links >= {f"{name}.html" for name in PAGES if name != "index"}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_pages_have_the_elements_of_their_markdown(site, name):
    """A list or table that Python-Markdown takes for text is lost, without any warning."""
    source = Html(COMMONMARK.render(PAGES[name].read_text()))
    assert site.pages[site.folder / f"{name}.html"].counts == source.counts
