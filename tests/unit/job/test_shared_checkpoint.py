"""Two jobs that make one new checkpoint at the same moment: Spark lets one of them write it, the
other says what is the matter."""

import pytest
from py4j.protocol import Py4JJavaError

from lb_stream.contracts.settings import Settings
from lb_stream.job.pipeline import _start_query
from lb_stream.stream.ports import FatalError
from tests.support.wordings import check_wording


class Raised(Py4JJavaError):
    """As Spark's own error, without a JVM."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


class Writer:
    """A query that can't be started."""

    def __init__(self, text: str) -> None:
        self.text = text

    def start(self) -> None:
        raise Raised(self.text)


def test_the_one_that_was_late_says_that_another_one_is_there() -> None:
    with pytest.raises(FatalError) as error:
        _start_query(
            Writer("Multiple streaming queries are concurrently using metadata."), Settings()
        )
    check_wording(error.value)


def test_any_other_error_stays_as_it_is() -> None:
    with pytest.raises(Raised) as error:
        _start_query(Writer("no room on the disk"), Settings())
    check_wording(error.value)
