"""Pages, and parts of pages, that follow from the code are as the code would write them."""

import pytest

from docs.tools.__main__ import build_pages, main
from docs.tools.parts import DOCS, PARTS, with_parts


def test_generated_pages_are_up_to_date() -> None:
    differing = [page for page, text in build_pages().items() if (DOCS / page).read_text() != text]
    assert differing == [], "run `python -m docs.tools` and look at the diff"


def test_check_writes_nothing_and_says_which_page_differs(capsys, monkeypatch) -> None:
    monkeypatch.setattr(
        "docs.tools.__main__.build_pages", lambda: {"rules.md": (DOCS / "rules.md").read_text()}
    )
    assert main(["--check"]) == 0 and "up to date" in capsys.readouterr().out
    monkeypatch.setattr("docs.tools.__main__.build_pages", lambda: {"rules.md": "old"})
    before = (DOCS / "rules.md").read_text()
    assert main(["--check"]) == 1 and "docs/rules.md differs" in capsys.readouterr().out
    assert (DOCS / "rules.md").read_text() == before
    assert main(["--wrong"]) == 2


def test_a_page_without_a_part_is_an_error() -> None:
    page, parts = next(iter(PARTS.items()))
    with pytest.raises(ValueError, match=f"docs/{page}: expected a part between the marks"):
        with_parts(page, f"# A page without {parts}")
