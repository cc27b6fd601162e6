"""What README.md and docs/ say can be done: commands run, programs work, queries run, links lead somewhere.

`make demo` and the commands that need Kafka or Spark are run in tests/e2e.
"""

import re
import shlex
from pathlib import Path

import pytest
from deltalake import write_deltalake

from lb_stream.cli.lake import open_lake
from lb_stream.cli.sql_file import with_parameters
from lb_stream.contracts.tables import TABLES
from tests.lbctl_runner import lbctl

PROJECT = Path(__file__).parents[2]
PAGES = sorted([*PROJECT.glob("*.md"), *(page for name in ("docs", "schemas", "notebooks") for page in (PROJECT / name).rglob("*.md"))])
README = (PROJECT / "README.md").read_text()
TABLES_PAGE = (PROJECT / "docs" / "tables.md").read_text()


def lines_in_sh(text: str) -> list[str]:
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines() if line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", page.read_text()) if "://" not in target]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


@pytest.mark.parametrize("line", [line for line in lines_in_sh(README) if line.startswith("lbctl")])
def test_every_lbctl_line_of_the_readme_is_one_that_lbctl_understands(line: str, tmp_path: Path) -> None:
    arguments = shlex.split(line, comments=True)[1:]
    result = lbctl(*arguments, "--help", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    options = [argument for argument in arguments if argument.startswith("--")]
    assert [option for option in options if option not in result.out] == []


def test_every_make_line_of_the_readme_names_a_target() -> None:
    targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    named = [line.split()[1] for line in lines_in_sh(README) if line.startswith("make ")]
    assert named == ["demo", "test"]
    assert set(named) <= set(targets)


def test_every_query_of_the_documentation_runs(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / TABLES[0].name), TABLES[0].schema.empty_table())
    queries = re.findall(r"```sql\n(.*?)```", TABLES_PAGE, re.DOTALL) + re.findall(r'lbctl sql "(.*?)"', README)
    lake = open_lake(tmp_path)
    for query in queries:
        text, values = with_parameters(query, dict.fromkeys(re.findall(r" :([a-z]+)", query), 1))
        assert lake.execute(text, values).fetchall() == []
    assert len(queries) >= 8


def test_every_table_is_described() -> None:
    assert re.findall(r"^\| `(\w+)` \|", TABLES_PAGE, re.MULTILINE) == [spec.name for spec in TABLES]
