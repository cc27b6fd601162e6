"""A real Pulsar cluster under the extensible load manager: its load data is heard, its brokers obey. `make test-pulsar`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lb_stream.agent import Refused
from lb_stream.agent.pulsar import PulsarAdapter
from lb_stream.agent.pulsar_admin import AdminError
from lb_stream.agent.pulsar_topics import LoadDataTopics
from lb_stream.contracts.reports import report_kind
from tests.e2e.pipeline import wait_until
from tests.pulsar.test_real_cluster import SCRIPTS, missing
from tests.pulsar.testbed import Bed, started_bed

pytestmark = [pytest.mark.long, pytest.mark.e2e]

TOPICS = [f"t{number}" for number in range(8)]


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    if reason := missing():
        pytest.skip(reason)
    with started_bed(SCRIPTS, tmp_path_factory.mktemp("extensible"), "extensible") as started:
        yield started


def test_the_load_data_of_every_broker_is_heard_and_a_transfer_and_a_split_are_carried_out(bed: Bed) -> None:
    bed.create_namespace(4)
    load_data = LoadDataTopics(lambda: bed.service_url, bed.admin(1).settings)
    brokers = {name: PulsarAdapter(bed.admin(number), load_data=load_data) for number, name in enumerate(bed.names, 1)}
    kinds: dict[str, set[str | None]] = {name: set() for name in brokers}

    def heard() -> bool:
        for name, adapter in brokers.items():
            kinds[name] |= {report_kind(json.loads(value)) for value in adapter.report()}  # type: ignore[arg-type]
        return all("broker_load" in found for found in kinds.values()) and any("top_bundles" in found for found in kinds.values())

    with bed.traffic(dict.fromkeys(TOPICS, 20.0)):
        wait_until(lambda: all(bed.owner_of(topic) for topic in TOPICS), "owners of all topics", 90)
        heard()  # subscribes
        wait_until(heard, "load data of all brokers, and of some bundles", 180)
        bundle = bed.bundle_of(TOPICS[0])
        source = bed.owner_of(TOPICS[0]) or ""
        destination = next(name for name in brokers if name != source)
        with pytest.raises(Refused, match="409"):
            brokers[source].transfer(bundle, "127.0.0.1:1")
        brokers[source].transfer(bundle, destination)
        brokers[destination].acquire(bundle)
        assert bed.owner_of(TOPICS[0]) == destination
        brokers[destination].split(bundle, [], "range_equally_divide")
        assert bed.bundle_of(TOPICS[0]) != bundle and brokers[destination].owns(bed.bundle_of(TOPICS[0]))
        with pytest.raises(Refused, match="412"):
            brokers[destination].split(bundle, [], "range_equally_divide")
        with pytest.raises(AdminError, match="500"):
            bed.admin(1).get_json("/admin/v2/broker-stats/load-report")
    load_data.close()
