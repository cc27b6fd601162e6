"""Wordings are kept for tests that there are, and come back as they were written."""

from pathlib import Path

import pytest

from tests.support import wordings
from tests.support.wordings import check_wording, read_wordings

TESTS = Path(__file__).parents[1]


def test_a_text_is_written_once_and_compared_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_it.py").touch()
    monkeypatch.setattr(wordings, "PROJECT", tmp_path)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "test_it.py::test_one[a b] (call)")
    monkeypatch.setattr(wordings, "REWRITE", True)
    text = f"first line\n\n    indented, in {tmp_path}/file\n"
    check_wording(text)
    check_wording("## a second text")
    monkeypatch.setattr(wordings, "REWRITE", False)
    monkeypatch.setattr(wordings, "_current", ("", 0))
    check_wording(text)
    with pytest.raises(AssertionError, match="REWRITE"):
        check_wording("another text")
    kept = read_wordings(tmp_path / "wordings.txt")
    assert list(kept) == ["test_it.py::test_one[a b]", "test_it.py::test_one[a b] 2"]
    assert str(tmp_path) not in kept["test_it.py::test_one[a b]"]


@pytest.mark.parametrize(
    "path", [str(path.relative_to(TESTS)) for path in sorted(TESTS.rglob("wordings.txt"))]
)
def test_each_wording_is_of_a_test_that_there_is(path: str) -> None:
    folder = (TESTS / path).parent
    for name in read_wordings(TESTS / path):
        module, _, function = name.partition("::")
        plain = function.split("[")[0].split(" ")[0].rpartition("::")[2]
        assert f"def {plain}(" in (folder / module).read_text(encoding="utf-8"), name
