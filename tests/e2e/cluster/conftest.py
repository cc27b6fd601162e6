"""Where machines can't be made of namespaces, all of this folder is skipped, and the last line says
why."""

from typing import Any

import pytest

from tests.e2e.cluster.machines import NoMachines, check_rights


@pytest.fixture(scope="session", autouse=True)
def machines_can_be_made(last_words: dict[str, Any]) -> None:
    """Skips what can't be run; whatever fails on machines that can be made is a failure."""
    try:
        check_rights()
    except NoMachines as error:
        last_words["skipped"] = str(error)
        pytest.skip(str(error))
