"""Tables of a simulated run, made once for all tests that read some."""

import pytest

from tests.support.recorded_tables import Recorder, batches, record


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """A minute of six brokers with a hot spot, under the demo's settings; nobody writes there any more."""
    made = record(tmp_path_factory.mktemp("recorded") / "tables")
    batches(made.root, 60)
    return made
