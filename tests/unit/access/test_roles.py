"""The rights of each role, and the commands of docs/security.md that give them."""

import re

import pytest

from docs.tools.parts import rights_commands
from lb_stream.access.roles import IMPLY_DESCRIBE, ROLES, Right, Role, resource_names, rights_of
from lb_stream.contracts.settings import Settings
from tests.support.wordings import check_wording

NAMES = resource_names(Settings())
_KINDS = {"topic": "--topic", "group": "--group", "transactional-id": "--transactional-id"}


@pytest.mark.parametrize("role", ROLES)
def test_the_pages_commands_give_a_role_these_rights_and_no_others(role: Role) -> None:
    given = set()
    for line in re.findall(
        rf"^kafka-acls\.sh .*--allow-principal User:lb-{role} .*$", rights_commands(), re.MULTILINE
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
    check_wording(str(rights_of("job", {"watermark": "lb-watermark"})[0]))
