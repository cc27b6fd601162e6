"""Write every page, and every part of a page, that follows from the code.

`python -m docs.tools` writes them; `--check` writes nothing and exits 1 when one differs.
"""

from __future__ import annotations

import sys

from docs.tools import chart_page, configuration_page, rules_page
from docs.tools.parts import DOCS, PARTS, with_parts


def build_pages() -> dict[str, str]:
    """Build every page that is generated: page → its text."""
    pages = {page: with_parts(page, (DOCS / page).read_text()) for page in PARTS}
    pages |= configuration_page.pages()
    pages |= chart_page.pages()
    pages[rules_page.PAGE.name] = rules_page.page()
    return pages


def _read(page: str) -> str:
    """Return a page's present text; empty: there is no such page yet."""
    return (DOCS / page).read_text() if (DOCS / page).exists() else ""


def main(arguments: list[str]) -> int:
    """Run the command, and return its exit code: 0; 1 a page differs; 2 wrong usage."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m docs.tools [--check]", file=sys.stderr)
        return 2
    pages = build_pages()
    differing = [page for page, text in pages.items() if _read(page) != text]
    for page in differing:
        if not arguments:
            (DOCS / page).write_text(pages[page])
    done = "differs: run `python -m docs.tools`" if arguments else "written"
    lines = [f"{(DOCS / page).resolve().relative_to(DOCS.parent)} {done}" for page in differing]
    print("\n".join(lines) or "all pages are up to date")
    return int(bool(arguments and differing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
