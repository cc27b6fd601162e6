"""One secured broker for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.e2e.secure.roles_at_work import PASSWORDS
from tests.support.secure_kafka import Acls, SecureKafka


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """It has a SCRAM user for each role, and no ACL."""
    with SecureKafka(tmp_path_factory.mktemp("secured"), PASSWORDS) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def acls(secured: SecureKafka) -> Iterator[Acls]:
    """Gives rights and takes them away."""
    made = Acls(secured)
    yield made
    made.close()
