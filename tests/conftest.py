"""What every test may ask for: a real Kafka broker and tables of a simulated run, one of each per
test run, and unused topic names."""

import itertools
import json
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import Phase, settings

from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.support.recorded_tables import Recorder, batches, record
from tests.support.topics import topics_by

# How many examples property tests try: the same few in every run of `make test`, more of them by
# --hypothesis-profile=whole, LB_EXAMPLES=2000 new ones of each for a longer look. Only new ones are
# shrunk when they fail: where an example is a simulation, that takes minutes.
_EXAMPLES = int(os.environ.get("LB_EXAMPLES", "0"))
_QUICK = settings(
    deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.register_profile("few", _QUICK, max_examples=15)
settings.register_profile("whole", _QUICK, max_examples=35)
settings.register_profile("new", max_examples=_EXAMPLES or 50, deadline=None)
settings.load_profile("new" if _EXAMPLES else "few")


os.environ["LB_CONTEXTS"] = os.devnull  # the contexts of whoever runs the tests don't count


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all tests with Kafka in one process of pytest-xdist, and all with only Spark in one.

    A run has one broker and one Spark session then, and no two jobs share the cores.
    """
    for item in items:
        if item.get_closest_marker("e2e"):
            item.add_marker(pytest.mark.xdist_group("kafka"))
        elif item.get_closest_marker("jvm"):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A started broker in a temporary folder, stopped at the end of the run.

    Tests that use it are marked e2e.
    """
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """A minute of six brokers with a hot spot, under the demo's settings; nobody writes there any
    more."""
    made = record(tmp_path_factory.mktemp("recorded") / "tables")
    batches(made.root, 60)
    return made


@pytest.fixture(autouse=True)
def _forget_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test hide the passwords of another one that ran before it in the same process."""
    monkeypatch.setattr("lb_stream.settings.secrets._remembered", set())


@pytest.fixture
def unique_topic(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Names topics after the test, each one new: unique_topic() or unique_topic("decisions")."""
    test = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:80]
    run, numbers = uuid.uuid4().hex[:8], itertools.count()
    return lambda purpose="topic": f"{test}-{purpose}-{run}-{next(numbers)}"


@pytest.fixture
def topic_names(unique_topic: Callable[..., str]) -> TopicSettings:
    """Names for the pipeline's five topics that only this test uses; the topics are not made
    yet."""
    return topics_by(unique_topic)


_COUNTED = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def count(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Notes a line on how much was tried and found; all of them are the last that the run
    prints."""
    return request.config.stash.setdefault(_COUNTED, []).append


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what was counted to the process that prints, if this is one of pytest-xdist."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["counted"] = session.config.stash.get(_COUNTED, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take what a process of pytest-xdist has counted."""
    lines = node.config.stash.setdefault(_COUNTED, [])
    counted = getattr(node, "workeroutput", {}).get("counted", [])  # a process that died has none
    lines += [line for line in counted if line not in lines]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what the tests have counted."""
    for line in config.stash.get(_COUNTED, []):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def seed(count: Callable[[str], None]) -> int:
    """Return the seed of what a test does by chance, LB_TEST_SEED if it is set; the run's last
    lines name it."""
    number = int(os.environ.get("LB_TEST_SEED", "20261121"))
    count(f"seed {number} (LB_TEST_SEED sets another)")
    return number


_LAST_WORDS = pytest.StashKey[dict[str, Any]]()


@pytest.fixture(scope="session")
def last_words(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the run prints last of all, as one JSON object, whatever becomes of its tests."""
    return request.config.stash.setdefault(_LAST_WORDS, {})


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print them."""
    if words := config.stash.get(_LAST_WORDS, {}):
        print(json.dumps(words))
