"""Beside a live leader: what we would have moved is what it moves, or `lbctl compare` says why not.

`make test-pulsar`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lb_stream.agent.pulsar.leader_log import read_leader_log
from lb_stream.contracts.settings import TopicSettings
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.e2e.pipeline import Pipeline, wait_until
from tests.pulsar.real_cluster import SCRIPTS, agents, crowd_onto_the_first_broker, missing
from tests.pulsar.releases import RELEASE
from tests.pulsar.testbed import started_bed
from tests.support.lbctl_runner import lbctl

pytestmark = [pytest.mark.long, pytest.mark.e2e]

BUNDLES, A_PASS, MOVES = (
    64,
    3,
    10,
)  # hardly two topics in a bundle: more moves than ten before the leader finds it even
RATES = {
    f"t{number:02d}": 3.0 + number for number in range(24)
}  # all different, so that the heaviest bundles are too
LEADER = {
    "loadBalancerSheddingEnabled": "true",
    "loadBalancerSheddingGracePeriodMinutes": "30",
    "loadBalancerMsgRateDifferenceShedderThreshold": "10",
    # each broker reports the whole machine's: when that is busy, all are overloaded
    "loadBalancerCPUResourceWeight": "0",
    "maxUnloadPercentage": "0.5",
    "minUnloadMessage": "5",
    "maxUnloadBundleNumPerShedding": str(A_PASS),
}
BESIDE = {
    "profile": RELEASE.profile,
    "assign_unowned": "on_lookup",
    "sample_mode": "reference",
    "count_pending_moves": "false",
    "shedding_interval_ms": 0,  # in every batch: one of ours is always right before the leader's
    "stream.max_offsets_per_trigger": 0,
}


def test_what_we_would_have_moved_is_what_a_live_leader_moves_or_the_command_says_why_not(
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if reason := missing():
        pytest.skip(reason)
    uniform = {
        "SHEDDER": "org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder",
        "LB_LOG": "debug",
    }
    pipeline = Pipeline(kafka.bootstrap, topic_names, tmp_path, BESIDE)
    pipeline.create_topics()
    with started_bed(SCRIPTS, tmp_path / "pulsar", settings=LEADER, environment=uniform) as bed:
        bed.create_namespace(BUNDLES)
        conf = ("--broker-conf", str(bed.broker_conf))
        with bed.traffic(RATES), pipeline.running(*conf), agents(bed, pipeline):
            loads = tmp_path / "tables" / "broker_loads"
            wait_until(
                lambda: loads.exists() and pipeline.table(loads.name).num_rows > 0, "rounds", 400
            )
            crowd_onto_the_first_broker(bed)

            def moved() -> int:
                return read_leader_log(bed.logs).moves

            before = moved()
            wait_until(
                lambda: moved() - before >= MOVES, f"the leader to move {MOVES} bundles", 700
            )
        given = ("--set", f"stream.tables={tmp_path / 'tables'}", *conf)
        result = lbctl(
            "compare",
            *(part for log in bed.logs for part in ("--with-log", str(log))),
            "--json",
            *given,
            cwd=tmp_path,
        )
        told = lbctl(
            "compare",
            *(part for log in bed.logs for part in ("--with-log", str(log))),
            *given,
            cwd=tmp_path,
        ).out
    with capsys.disabled():
        print(told)
    totals = result.objects[0]["totals"]
    assert totals["moves"] >= MOVES, told
    assert totals["pass"] == totals["moves"], told
    assert totals["destination"] >= 0.9 * totals["moves"] or totals["unexplained"] == 0, told
    assert result.code == (1 if totals["unexplained"] else 0), told
