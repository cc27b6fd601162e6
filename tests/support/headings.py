"""Headings of pages, as links reach them."""

import re
from pathlib import Path


def anchor_of(heading: str) -> str:
    """Return the fragment by which a heading is reached, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """Return the fragments of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {anchor_of(heading) for heading in headings}
