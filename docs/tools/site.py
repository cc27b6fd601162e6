"""`make site`: the pages as a site with search, a folder for each version.

It copies the tracked pages, and the files that they link to, to a folder below build; adds the
navigation, which are the groups of docs/README.md; and has Sphinx build them, where a broken link
is an error. The pages themselves stay as they are. `--out FOLDER`: instead of build/site; versions
that are there already stay, and each page's list of versions has them all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
SPHINX = Path(__file__).parent / "sphinx"
CONTENTS = "docs/README.md"
"""The page whose headings and links are the navigation."""
HOME = "README.md"
CHILDREN = {"docs/architecture.md": "docs/decisions"}
"""Pages that have all pages of a folder below them in the navigation."""
WIDE = re.compile(r"docs/configuration-\w+\.md")
"""Pages whose tables have many columns: their headings are not listed beside them."""
LINK = re.compile(r"(?<!!)\[([^\[\]]+)\]\((?![a-z]+:|#)([^()\s#]+)(#[^()\s]*)?\)")
"""A link to something in the repository: its text, path and fragment."""
ITEM = re.compile(r"^( *)- (?:\[[^\]]+\]\(([^)]+)\))?")
"""An item of the contents: its indentation, and its page if it links to one."""


@dataclass(frozen=True, slots=True)
class Group:
    """A heading of the contents: page → the pages below it, paths from the project's folder."""

    name: str
    pages: dict[str, list[str]]


def read_groups(text: str) -> list[Group]:
    """Return the groups of the contents. An item without a link only gathers those below it."""
    groups: list[Group] = []
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        pages: dict[str, list[str]] = {}
        parent = ""
        for line in part.splitlines():
            if (item := ITEM.match(line)) is None:
                continue
            page = os.path.normpath(f"docs/{item[2]}") if item[2] else ""
            if not item[1]:
                parent = page
            if page and item[1] and parent:
                pages[parent].append(page)
            elif page:
                pages[page] = []
        groups.append(Group(part.splitlines()[0].strip(), pages))
    return groups


def copy_pages(project: Path, names: Sequence[str], folder: Path) -> None:
    """Copy these pages and what they link to into the folder, as Sphinx needs them.

    Raises ValueError: a page links to a file that is not there.
    """
    groups = read_groups((project / CONTENTS).read_text(encoding="utf-8"))
    below = {page: pages for group in groups for page, pages in group.pages.items() if pages}
    for page, children in CHILDREN.items():
        below[page] = sorted(name for name in names if name.startswith(f"{children}/"))
    listed = {page for group in groups for page in group.pages}
    listed |= {page for pages in below.values() for page in pages}
    for name in names:
        text = (project / name).read_text(encoding="utf-8")
        for target in find_targets(name, text):
            if not (project / target).exists():
                raise ValueError(f"{name}: links to {target}, which is not there")
            if (project / target).is_file() and target not in names:
                (folder / target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(project / target, folder / target)
        text = adapt_links(project, name, text)
        if name in below:
            text += render_toctree("", below[name], Path(name).parent)
        if name == HOME:
            for group in groups:
                text += render_toctree(group.name, list(group.pages), Path())
        elif name not in listed:
            text = f"---\norphan: true\n---\n\n{text}"
        if WIDE.fullmatch(name):
            text = f"---\nhide-toc: true\n---\n\n{text}"
        place = folder / ("index.md" if name == HOME else name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def find_targets(name: str, text: str) -> list[str]:
    """Return what a page links to or shows, as paths from the project's folder."""
    found = re.findall(r"\]\((?![a-z]+:|#)([^()\s#]+)(?:#[^()\s]*)?\)", text)
    return [os.path.normpath(Path(name).parent / target) for target in found]


def adapt_links(project: Path, name: str, text: str) -> str:
    """Let links to README.md lead to the first page; keep only the text of links to folders."""

    def adapt(match: re.Match[str]) -> str:
        words, target, fragment = match[1], match[2], match[3] or ""
        path = os.path.normpath(Path(name).parent / target)
        if path == HOME:
            home = os.path.relpath("index.md", Path(name).parent)
            return f"[{words}]({home}{fragment})"
        return words if (project / path).is_dir() else match[0]

    return LINK.sub(adapt, text)


def render_toctree(caption: str, pages: Sequence[str], folder: Path) -> str:
    """Return Sphinx's directive for pages below another one, which is in this folder."""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    paths = [os.path.relpath(page, folder).removesuffix(".md") for page in pages]
    return "\n".join(["", "```{toctree}", *options, "", *paths, "```", ""])


def list_versions(site: Path) -> list[str]:
    """Return the versions that are there, the newest first."""
    found = [folder.name for folder in site.iterdir() if (folder / "index.html").is_file()]
    return sorted(found, key=lambda name: [int(n) for n in re.findall(r"\d+", name)], reverse=True)


def write_versions(site: Path) -> None:
    """Write the list of versions, and the first page, which leads to the newest one."""
    versions = list_versions(site)
    (site / "versions.js").write_text(f"window.siteVersions = {json.dumps(versions)};\n")
    (site / "index.html").write_text(
        '<!doctype html>\n<html lang="en">\n<title>lb_stream</title>\n'
        f'<meta http-equiv="refresh" content="0; url={versions[0]}/index.html">\n'
        f'<a href="{versions[0]}/index.html">lb_stream {versions[0]}</a>\n</html>\n'
    )


def read_version() -> str:
    """Return the version of the package, without importing it."""
    text = (PROJECT / "lb_stream" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    assert found is not None
    return found[1]


def main(arguments: list[str]) -> int:
    """Build the site. Exit code 1: a page or a link is wrong; the lines before say which."""
    parser = argparse.ArgumentParser(prog="python -m docs.tools.site")
    parser.add_argument("--out", type=Path, default=PROJECT / "build" / "site", metavar="FOLDER")
    site: Path = parser.parse_args(arguments).out
    version = read_version()
    copies = PROJECT / "build" / "site-pages"
    shutil.rmtree(copies, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.md"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout
    try:
        copy_pages(PROJECT, [name for name in listed.split("\0") if name], copies)
    except ValueError as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    shutil.rmtree(site / version, ignore_errors=True)
    command = [
        *(sys.executable, "-m", "sphinx", "--builder", "html", "--fresh-env", "--quiet"),
        *("--fail-on-warning", "--keep-going", "--conf-dir", str(SPHINX)),
        *("--doctree-dir", str(PROJECT / "build" / "site-doctrees")),
        *(str(copies), str(site / version)),
    ]
    done = subprocess.run(command, env=os.environ | {"LB_SITE_VERSION": version}, check=False)
    if done.returncode:
        return 1
    write_versions(site)
    print(f"site: {site / version / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
