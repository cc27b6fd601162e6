"""One secured broker for all tests of this folder."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.e2e.secure.jobs import spark_in_this_process
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


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark for all streams that run within the test's own process."""
    with spark_in_this_process() as session:
        yield session


@pytest.fixture(scope="session")
def tally(last_words: dict[str, Any]) -> Callable[..., None]:
    """Counts what has been tried, for the last line of the run."""

    def more(what: str, times: int = 1) -> None:
        last_words[what] = last_words.get(what, 0) + times

    return more
