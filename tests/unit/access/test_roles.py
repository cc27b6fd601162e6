"""The rights of each role: the table that operators read is the one that programs ask for."""

import re
from pathlib import Path

import pytest

from lb_stream.access.roles import IMPLY_DESCRIBE, ROLES, Right, Role, names_in, rights_of
from lb_stream.contracts.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "operating.md"
NAMES = names_in(Settings())
_KINDS = {"topic": "--topic", "group": "--group", "transactional-id": "--transactional-id"}


def section(title: str) -> str:
    """A section of the page, with those below it."""
    found = re.search(
        rf"^### {title}\n(.*?)(?=^##+ |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    assert found, title
    return found[1]


def table_of_the_page() -> dict[str, dict[str, tuple[str, ...]]]:
    """Role → resource → operations, as the page has them."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for role, resource, operations in re.findall(
        r"^\| (\w+) \| `([^`]+)` \| ([\w, ]+) \|$", section("Rights"), re.MULTILINE
    ):
        found.setdefault(role, {})[resource] = tuple(operations.split(", "))
    return found


def by_name(role: Role) -> dict[str, tuple[str, ...]]:
    """A role's rights by the names that resources have without settings."""
    return {NAMES[resource]: operations for resource, operations in ROLES[role].items()}


def test_the_page_has_the_rights_that_programs_ask_for() -> None:
    assert table_of_the_page() == {role: by_name(role) for role in ROLES}


@pytest.mark.parametrize("role", ROLES)
def test_the_pages_commands_give_a_role_these_rights_and_no_others(role: Role) -> None:
    given = set()
    for line in re.findall(
        rf"^kafka-acls\.sh .*--allow-principal User:lb-{role} .*$", section("Rights"), re.MULTILINE
    ):
        for kind, flag in _KINDS.items():
            given |= {
                Right(operation, kind, name)
                for operation in re.findall(r"--operation (\S+)", line)
                for name in re.findall(rf"{flag} (\S+)", line)
            }
    assert given == set(rights_of(role, NAMES))


@pytest.mark.parametrize("role", [role for role in ROLES if role != "create"])
def test_no_role_has_a_right_that_another_one_of_it_implies(role: Role) -> None:
    for resource, operations in ROLES[role].items():
        assert "Describe" not in operations or not IMPLY_DESCRIBE - {"Describe"} & set(
            operations
        ), resource


def test_what_has_no_name_is_left_out() -> None:
    assert rights_of("lookup", {"ownership": "records"}) == [Right("Read", "topic", "records")]
    assert str(rights_of("job", {"watermark": "lb-watermark"})[0]) == "Read on group lb-watermark"
