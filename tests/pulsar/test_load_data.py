"""The load data topics of an extensible cluster, with a stand-in for the package that reads
them."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lb_stream.agent import BrokerError
from lb_stream.agent.pulsar.admin import AdminClient, AdminSettings
from lb_stream.agent.pulsar.load_topics import (
    KEPT,
    TOPICS,
    LoadDataTopics,
    build_service_url,
    find_service_url,
    import_client,
)
from tests.pulsar.fake_cluster import FakeCluster, fake_cluster
from tests.support.wordings import check_wording

SETTINGS = AdminSettings("http://broker-1:8080")
ADDRESS = "pulsar://broker-1:6650"


class Message:
    def __init__(self, key: str, data: bytes) -> None:
        self._key, self._data = key, data

    def partition_key(self) -> str:
        return self._key

    def data(self) -> bytes:
        return self._data


class Library(types.ModuleType):
    """What `load_topics` uses of the module `pulsar`, and what it was given."""

    def __init__(self) -> None:
        super().__init__("pulsar")
        self.clients: list[Any] = []
        self.fails = False
        library = self

        class Client:
            def __init__(self, address: str, **options: Any) -> None:
                self.address, self.options, self.listeners, self.closed, self.acknowledged = (
                    address,
                    options,
                    {},
                    False,
                    0,
                )
                library.clients.append(self)

            def subscribe(self, topic: str, name: str, message_listener: Any) -> None:
                if library.fails:
                    raise RuntimeError("TopicNotFound")
                self.listeners[topic] = message_listener

            def write(self, topic: str, key: str, data: bytes) -> None:
                self.listeners[topic](self, Message(key, data))

            def acknowledge(self, _: Message) -> None:
                self.acknowledged += 1

            def close(self) -> None:
                self.closed = True

        self.Client = Client
        self.AuthenticationToken = lambda supplier: ("token", supplier)
        self.AuthenticationTLS = lambda certificate, key: ("tls", certificate, key)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setitem(sys.modules, "pulsar", made)
    return made


def test_each_broker_gets_its_own_records_as_they_were_written_and_once(library: Library) -> None:
    topics = LoadDataTopics(lambda: ADDRESS, SETTINGS)
    assert topics.take("a:1") == []
    (client,) = library.clients
    assert client.address == ADDRESS and set(client.listeners) == set(TOPICS)
    for topic, key, data in (
        (TOPICS[0], "a:1", b'{"cpu": 1.0E-7}'),
        (TOPICS[1], "b:1", b"{}"),
        (TOPICS[1], "a:1", b"[2]"),
    ):
        client.write(topic, key, data)
    assert topics.take("a:1") == [b'{"cpu": 1.0E-7}', b"[2]"]
    assert (topics.take("a:1"), topics.take("b:1"), client.acknowledged) == ([], [b"{}"], 3)


def test_a_record_that_takes_data_back_is_not_handed_on(library: Library) -> None:
    topics = LoadDataTopics(lambda: ADDRESS, SETTINGS)
    topics.take("a:1")
    library.clients[0].write(TOPICS[0], "a:1", b"")
    assert topics.take("a:1") == []


def test_of_what_nobody_takes_the_newest_is_kept(library: Library) -> None:
    topics = LoadDataTopics(lambda: ADDRESS, SETTINGS)
    topics.take("a:1")
    for number in range(KEPT + 5):
        library.clients[0].write(TOPICS[0], "a:1", b"%d" % number)
    assert topics.take("a:1")[0] == b"5"


def test_topics_that_cannot_be_read_are_named_and_tried_again(library: Library) -> None:
    library.fails = True
    topics = LoadDataTopics(lambda: ADDRESS, SETTINGS)
    with pytest.raises(BrokerError) as error:
        topics.take("a:1")
    check_wording(error.value)
    assert library.clients[0].closed
    library.fails = False
    assert topics.take("a:1") == []


def test_it_disconnects_when_it_is_closed(library: Library) -> None:
    topics = LoadDataTopics(lambda: ADDRESS, SETTINGS)
    topics.close()
    topics.take("a:1")
    topics.close()
    assert [client.closed for client in library.clients] == [True]


def test_access_settings_go_to_the_client(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "token"
    LoadDataTopics(
        lambda: ADDRESS,
        AdminSettings(
            "https://b:1", token_file=file, ca_file=tmp_path / "ca", verify_hostname=False
        ),
    ).take("x")
    LoadDataTopics(
        lambda: ADDRESS,
        AdminSettings("https://b:1", cert_file=tmp_path / "c", key_file=tmp_path / "k"),
    ).take("x")
    first, second = (client.options for client in library.clients)
    assert (first["tls_trust_certs_file_path"], first["tls_validate_hostname"]) == (
        str(tmp_path / "ca"),
        False,
    )
    kind, supplier = first["authentication"]
    file.write_text("renewed\n")
    assert (kind, supplier()) == ("token", "renewed")
    assert second["authentication"] == ("tls", str(tmp_path / "c"), str(tmp_path / "k"))


def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pulsar", None)
    with pytest.raises(BrokerError) as error:
        import_client()
    check_wording(error.value)


# --- where clients are taken ---


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster(manager="extensible", brokers=2) as started:
        yield started


def test_the_address_for_clients_is_found_at_the_first_broker_that_answers(
    cluster: FakeCluster,
) -> None:
    cluster.stop(0)
    admins = [
        AdminClient(AdminSettings(f"http://{name}"), sleep=lambda _: None) for name in cluster.names
    ]
    assert find_service_url(admins) == "pulsar://127.0.0.1:6651"
    cluster.stop(1)
    with pytest.raises(BrokerError) as error:
        find_service_url(admins)
    check_wording(error.value)


def test_the_address_is_as_safe_as_the_admin_address() -> None:
    runtime = {"brokerServicePort": "Optional[6650]", "brokerServicePortTls": "Optional[6651]"}
    assert (
        build_service_url(AdminSettings("https://[::1]:8443"), runtime) == "pulsar+ssl://[::1]:6651"
    )
    with pytest.raises(BrokerError, match="--service-url"):
        build_service_url(
            AdminSettings("https://b:8443"),
            {"brokerServicePort": "6650", "brokerServicePortTls": "Optional.empty"},
        )
