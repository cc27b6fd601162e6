"""`lbctl plan`: the best next moves of a cluster out of its tables, and what is sent of them."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lb_stream.cli.shared import sending, staleness
from lb_stream.contracts.base import RESOURCES
from lb_stream.contracts.tables import (
    BROKER_HISTORY,
    BUNDLE_HISTORY,
)
from lb_stream.core.least_moves.config import LeastMovesConfig
from lb_stream.core.least_moves.memory import Host, LeastMovesMemory
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.rules import Refuses
from lb_stream.io.messages.missing_packages import MODULES
from lb_stream.query import exact_plan
from tests.support.plan_tables import NOW_MS, SMALL, asked, name_of, told, write
from tests.support.scripted_kafka import Broker
from tests.support.table_rows import fill
from tests.support.wordings import check_wording

"""Broker → its bundles, each with so many parts of twelve of a broker's cpu."""


"""An even load is four bundles for each."""
EVEN = f"no broker is above {LeastMovesConfig().least_moves_trigger_ratio:g} times the even load"


def test_moves_are_shown_with_cost_gain_second_best_and_what_they_come_to(tmp_path: Path) -> None:
    tables = write(tmp_path, SMALL)
    found = told(tables)
    assert (found["cluster"], found["strategy"], found["own_strategy"], found["planned"]) == (
        "eu",
        "LeastMoves",
        "ThresholdShedder",
        4,
    )
    usage = {"a:8080": 8.0, "b:8080": 2.0, "c:8080": 2.0}
    for one in found["moves"]:
        assert (
            one["from"] == "a:8080"
            and one["to"] != "a:8080"
            and one["bundle"] in {name_of(number) for number in range(8)}
        )
        for side, broker, change in (
            ("source", one["from"], -1.0),
            ("destination", one["to"], 1.0),
        ):
            before, usage[broker] = usage[broker], usage[broker] + change
            assert (one[f"{side}_before"], one[f"{side}_after"]) == pytest.approx(
                (before / 12, usage[broker] / 12)
            )
        assert one["gain"] == pytest.approx(1 / 12) and one["cost"] == 0.5, (
            "half for the move, half for its clients: of them nothing is known"
        )
        assert one["client_seconds"] is None
    assert found["moves"][0]["second"] == "c:8080" and found["moves"][0][
        "second_usage"
    ] == pytest.approx(3 / 12)
    assert (found["fewest"], found["max_over_even_before"], found["max_over_even_after"]) == (
        4,
        pytest.approx(2.0),
        pytest.approx(1.0),
    )
    assert found["reasons"] == [f"{EVEN} then"]
    assert "learned from one report of a broker" in found["unsure"]
    assert "assumed to be unassigned for 5 s" in found["unsure"]


def test_people_get_a_table_and_the_plan_in_one_line(tmp_path: Path) -> None:
    shown = asked(write(tmp_path, SMALL)).out
    assert (
        "66.7% → 58.3%" in shown
        and "25.0% with it" in shown
        and "is unsure about this cluster" in shown
    )
    assert "4 moves, 4 at least are needed. Max usage ÷ even load: 2.00 → 1.00" in shown


def test_no_bundle_moves_to_a_broker_that_is_dead(tmp_path: Path) -> None:
    living = told(write(tmp_path / "living", SMALL))
    assert {move["to"] for move in living["moves"]} == {"b:8080", "c:8080"}
    found = told(write(tmp_path / "dead", SMALL, dead=["b:8080"]))
    assert {move["to"] for move in found["moves"]} == {"c:8080"}


def test_the_first_moves_of_a_longer_plan_say_what_is_left(tmp_path: Path) -> None:
    tables = write(tmp_path, SMALL)
    found = told(tables, "--moves", "1")
    assert (len(found["moves"]), found["planned"], found["max_over_even_after"]) == (
        1,
        4,
        pytest.approx(7 / 4),
    )
    assert found["reasons"] == ["3 more moves are planned: --moves 4 shows all"]
    assert "1 of 4 moves, 4 at least" in asked(tables, "-n", "1").out


def test_the_moves_of_an_exchange_stay_together(tmp_path: Path) -> None:
    tables = write(tmp_path, {"a:8080": (3.0, 3.0), "b:8080": (1.0, 1.0), "c:8080": (4.0,)})
    found = told(tables)
    assert [one["why_not"] for one in found["moves"]] == ["part of a swap"] * 2 and found[
        "fewest"
    ] == 1
    assert [len(told(tables, "--moves", str(most))["moves"]) for most in (1, 2, 3)] == [0, 2, 2]
    assert "the first ones belong together" in told(tables, "--moves", "1")["reasons"][0]


def test_a_solver_proves_how_far_the_plan_is_from_the_best(tmp_path: Path) -> None:
    tables = write(tmp_path)
    exact = told(tables, "--exact", "--moves", "1")["exact"]
    assert exact["is_proven"] and not exact["too_large"]
    # b takes 2 and c takes 3: a keeps 4, and c has 4.5 where 12.5 ÷ 3 is even.
    assert (exact["moves"], exact["fewest_moves"], exact["fewest_moves_at_least"]) == (3, 2, 2)
    assert exact["max"] == pytest.approx(1.08) == exact["lowest_max"]
    assert exact["lowest_max_at_least"] == pytest.approx(1.08)
    shown = asked(tables, "--exact").out
    assert "fewest moves to this max" in shown and "lowest max with 3 moves" in shown
    assert told(tables)["exact"] is None


def test_without_the_solver_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODULES, "exact", ("no_such_solver",))
    result = asked(write(tmp_path), "--exact")
    assert result.code == 2 and "pip install 'lb_stream[exact]'" in result.err


def test_of_a_cluster_too_large_for_the_solver_the_lower_bound_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact_plan, "MAX_VARIABLES", 10)
    tables = write(tmp_path)
    exact = told(tables, "--exact")["exact"]
    assert exact["too_large"] and exact["fewest_moves"] is None
    assert exact["fewest_moves_at_least"] == 2
    assert "too large for the solver: 12 possible moves" in asked(tables, "--exact").out


def test_clients_cost_where_history_tells_of_them_and_bandwidth_counts_where_limits_are_known(
    tmp_path: Path,
) -> None:
    tables = write(tmp_path, SMALL)
    slot = {"cluster": "eu", "slot_ms": NOW_MS}
    clients = [
        slot | {"bundle": name_of(number), "producers": 6 if number else 60, "consumers": 0}
        for number in range(12)
    ]
    fill(tables, BUNDLE_HISTORY, clients)
    limits = {f"{name}_limit": 1_200.0 for name in RESOURCES} | {
        f"bandwidth_{way}_limit": 80_000.0 for way in ("in", "out")
    }
    fill(tables, BROKER_HISTORY, [slot | {"broker": broker} | limits for broker in SMALL])
    found = told(tables)
    assert (
        name_of(0) not in [one["bundle"] for one in found["moves"]]
        and found["moves"][0]["cost"] > 0.5
    )
    assert {one["client_seconds"] for one in found["moves"]} == {6 * (5.0 + 2.0)}, (
        "six clients, unserved and connecting anew"
    )
    assert "42 client-s" in asked(tables).out
    assert found["moves"][0]["source_before"] == pytest.approx(8e6 / (80_000 * 125), rel=0.01), (
        "bandwidth is what they are short of"
    )


def test_a_cluster_that_is_even_has_nothing_to_move_and_it_says_so(tmp_path: Path) -> None:
    tables = write(tmp_path, dict.fromkeys(SMALL, (1.0,) * 4))
    result = asked(tables)
    assert result.code == 0 and "Nothing to move. Max usage ÷ even load: 1.00" in result.out
    assert told(tables)["reasons"] == [EVEN] and not told(tables)["moves"]


def test_the_clusters_own_strategy_goes_on_from_what_it_remembers_and_waits_as_it_would(
    tmp_path: Path,
) -> None:
    usage = {name: sum(bundles) / 12 for name, bundles in SMALL.items()}
    known = LeastMovesMemory(
        noise=0.01,
        unserved_ms=4_000.0,
        hosts={name: Host(load=own, used=own, reports=50.0) for name, own in usage.items()},
    )
    tables = write(
        tmp_path,
        SMALL,
        Memory(strategies={"LeastMoves": known.to_dict()}),
        shedding_strategy="LeastMoves",
    )
    found = told(tables)
    assert not found["moves"] and found["own_strategy"] == "LeastMoves" and not found["unsure"]
    assert found["reasons"][0].startswith(
        "a:8080: the broker has not been hot for long enough yet (0 ms, limit "
    )
    assert len(told(tables, "--set", "least_moves_hot_for_ms=0")["moves"]) == 4


def test_it_plans_while_the_balancer_is_off_and_must_not_do_much_at_a_time(tmp_path: Path) -> None:
    memory = Memory(
        operator_state=OperatorState(
            paused=True, settings={"shedding_enabled": False, "max_moves_in_flight": 1}
        )
    )
    assert (
        len(
            told(
                write(tmp_path, SMALL, memory, enabled=False, least_moves_max_moves_into_broker=1)
            )["moves"]
        )
        == 4
    )


def test_limits_of_namespaces_hold_and_are_told(tmp_path: Path) -> None:
    found = told(write(tmp_path, SMALL, **{"namespace.shop/n.moves_per_hour": 2}))
    assert len(found["moves"]) == 2 and any(
        Refuses.NO_ELIGIBLE_BUNDLE.sentence in one for one in found["reasons"]
    )
    shut = told(write(tmp_path / "shut", SMALL, freeze="maintenance"))
    assert not shut["moves"] and "freeze" in shut["reasons"][0]


def test_another_strategy_that_names_destinations_can_be_asked(tmp_path: Path) -> None:
    tables = write(tmp_path, SMALL, load_manager="extensible", target_std=0.1)
    found = told(tables, "--set", "shedding_strategy=TransferShedder")
    assert (
        found["strategy"] == found["own_strategy"] == "TransferShedder"
        and found["fewest"] is None
        and not found["unsure"]
    )
    first = found["moves"][0]
    assert (
        first["from"] == "a:8080"
        and first["cost"] is None
        and first["gain"] == pytest.approx(1 / 12)
        and first["second"] is None
    )
    assert (
        found["max_over_even_before"] == pytest.approx(2.0) and found["max_over_even_after"] < 2.0
    )
    assert told(tables)["strategy"] == "LeastMoves"
    idle = told(tables, "--set", "shedding_strategy=TransferShedder", "--set", "target_std=0.5")
    assert not idle["moves"] and idle["reasons"] == [
        "TransferShedder finds no broker to relieve with these settings"
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cluster", "us"], "there is no cluster us: there are eu"),
        (["--moves", "0"], "should be greater than or equal to 1"),
        (["--set", "shedding_strategy"], "expected KEY=VALUE"),
        (
            ["--set", "shedding_strategy=ThresholdShedder"],
            "expected one that names destinations: LeastMoves, TransferShedder",
        ),
        (["--set", "shedding_strategy=NoShedder"], "expected one of AvgShedder, LeastMoves"),
        (
            ["--set", "load_manager=simple"],
            "LeastMoves does not run under the simple manager of eu",
        ),
        (["--set", "least_moves_triger=2"], "nearest: least_moves_trigger_ratio"),
    ],
)
def test_what_cannot_be_asked_is_told_with_code_two(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    result = asked(write(tmp_path, SMALL), *arguments)
    assert (
        result.code == 2
        and said in " ".join(result.err.replace("│", " ").split())
        and "Traceback" not in result.err
        and not result.out
    )


# --- sent ---


class Answering(Broker):
    """Answers every command that was sent and not answered yet."""

    def poll(self, timeout_ms: int) -> dict[str, list[Any]]:
        found = (
            []
            if self.silent
            else [
                SimpleNamespace(key=one["id"].encode(), value=self._answer(one))
                for _, one in self.sent
            ]
        )
        return {"results": found}

    def _answer(self, command: dict[str, Any]) -> bytes:
        outcome = "refused" if command["bundle"] in self.refused else "done"
        told = {
            "id": command["id"],
            "cluster": "eu",
            "kind": "unload",
            "outcome": outcome,
            "text": command["bundle"],
            "rule": None,
        }
        return json.dumps(told | {"at_ms": 1}).encode()

    refused: tuple[str, ...] = ()
    silent = False


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Answering:
    broker = Answering()
    monkeypatch.setattr("lb_stream.io.kafka.commands.SigningProducer", lambda *_, **__: broker)
    monkeypatch.setattr("lb_stream.io.kafka.commands.KafkaConsumer", lambda **_: broker)
    monkeypatch.setattr(sending, "require_kafka", lambda *_: nullcontext())
    monkeypatch.setattr(sending, "require_topics", lambda *_: None)
    monkeypatch.setattr(staleness, "warn_if_stale", lambda *_: None)
    return broker


def sent(kafka: Answering) -> list[tuple[str, str]]:
    assert all(key == "eu" and one["kind"] == "unload" for key, one in kafka.sent)
    return [(f"{one['namespace']}/{one['bundle']}", one["destination"]) for _, one in kafka.sent]


def test_apply_sends_the_moves_in_order_and_prints_each_answer(
    tmp_path: Path, kafka: Answering
) -> None:
    tables = write(tmp_path)
    result = asked(tables, "--apply", "--yes", "--json")
    *answers, found = result.objects
    assert result.code == 0 and found["done"] == len(answers) == 3
    assert sent(kafka) == [(one["bundle"], one["to"]) for one in found["moves"]]
    assert [answer["outcome"] for answer in answers] == ["done"] * 3


def test_apply_asks_first_and_a_no_sends_nothing(tmp_path: Path, kafka: Answering) -> None:
    tables = write(tmp_path, SMALL)
    result = asked(tables, "--apply", stdin=b"n\n")
    assert (result.code, kafka.sent) == (1, []) and "nothing was sent" in result.err
    check_wording(result.err)
    assert asked(tables, "--apply", stdin=b"").code == 1 and not kafka.sent, (
        "nobody there to answer"
    )
    assert asked(tables, "--apply", stdin=b"y\n").code == 0 and len(kafka.sent) == 4


def test_the_first_move_that_is_not_done_ends_it(tmp_path: Path, kafka: Answering) -> None:
    tables = write(tmp_path, SMALL)
    first, second, *_ = told(tables)["moves"]
    kafka.refused = (second["bundle"].rpartition("/")[2],)
    result = asked(tables, "--apply", "--yes")
    assert result.code == 1 and [bundle for bundle, _ in sent(kafka)] == [
        first["bundle"],
        second["bundle"],
    ]
    assert "2 moves not sent" in result.err and "refused: " in result.out


def test_old_figures_are_not_acted_on(tmp_path: Path) -> None:
    result = asked(write(tmp_path, SMALL), "--apply", "--yes")
    assert result.code == 1 and "nothing is sent" in result.err.splitlines()[-1]


def test_what_would_not_be_carried_out_or_not_be_shown_is_not_sent(
    tmp_path: Path, kafka: Answering
) -> None:
    dry = asked(write(tmp_path / "dry", SMALL, dry_run=True), "--apply", "--yes")
    assert dry.code == 1 and "dry run" in dry.err and not kafka.sent
    blind = asked(write(tmp_path / "blind", SMALL), "--apply", "--json", stdin=b"y\n")
    assert blind.code == 2 and "--yes" in blind.err and not blind.out and not kafka.sent


def test_what_an_operator_does_by_hand_waits_for_nobodys_approval(
    tmp_path: Path, kafka: Answering
) -> None:
    tables = write(tmp_path / "approve", SMALL, mode="approve")
    assert told(tables)["moves"] == told(write(tmp_path / "act", SMALL))["moves"]
    assert asked(tables, "--apply", "--yes").code == 0 and len(kafka.sent) == 4


def test_a_move_that_is_not_answered_in_time_ends_it_and_the_last_line_still_comes(
    tmp_path: Path, kafka: Answering
) -> None:
    kafka.silent = True
    result = asked(write(tmp_path, SMALL), "--apply", "--yes", "--json", "--timeout", "0.2")
    assert result.code == 1 and result.objects[-1]["done"] == 0 and len(kafka.sent) == 1
    assert "no result after 0.2 s" in result.err and "3 moves not sent" in result.err


def test_apply_with_nothing_to_move_sends_nothing_and_asks_nothing(
    tmp_path: Path, kafka: Answering
) -> None:
    result = asked(write(tmp_path, dict.fromkeys(SMALL, (1.0,) * 4)), "--apply")
    assert result.code == 0 and not kafka.sent and not result.err


def test_a_plan_that_would_begin_with_a_split_says_so(tmp_path: Path) -> None:
    def wide(number: int) -> str:
        return f"shop/n/0x{number << 28:08x}_0x{(number + 1) << 28:08x}"

    owned = {"a:8080": (6.0, 0.5, 0.5), "b:8080": (1.0,) * 2, "c:8080": (0.5,) * 3}
    at_once = ("--set", "least_moves_min_standard_errors=0")
    found = told(write(tmp_path, owned, topics=20, name=wide), *at_once)
    assert f"would first split {wide(0)} by topic_count_equally_divide" in found["reasons"][0]
    assert {move["bundle"] for move in found["moves"]} <= {wide(1), wide(2)}
    off = write(tmp_path / "off", owned, topics=20, name=wide, split_enabled=False)
    without = told(off, *at_once)
    assert not any("split" in reason for reason in without["reasons"])
