"""`lbctl what-if` and --preview: what would come of a change, played from a live cluster's
present."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lb_stream.core.model.memory import Proposal
from lb_stream.core.model.operator_state import OperatorState
from tests.support.lbctl_runner import Result, lbctl
from tests.support.present_tables import START_MS, write_present
from tests.support.wordings import check_wording

"""Of each bundle, messages in; a core's worth of cpu for each four bundles."""


def proposal(number: int, kind: Any = "unload") -> Proposal:
    """To move a bundle of a's to b, or to split it."""
    head = {
        "proposal_id": f"eu:1:p{number}",
        "together": f"eu:1:p{number}",
        "kind": kind,
        "bundle": f"shop/n{number}/0x00000000_0xffffffff",
    }
    way = {
        "source": "a:8080",
        "destination": "b:8080" if kind == "unload" else None,
        "proposed_ms": START_MS,
        "expires_ms": START_MS,
    }
    return Proposal(
        **head,
        **way,
        reason="Overloaded",
        rule="above_average",
        strategy="ThresholdShedder",
        explain={},
        bytes_per_s=1e6,
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_present(tmp_path_factory.mktemp("tables"))


def asked(tables: Path, *arguments: str) -> Result:
    return lbctl(*arguments, "--set", f"stream.tables={tables}", cwd=tables)


def test_what_another_setting_would_do_is_shown_beside_what_happens_without_it(
    tables: Path,
) -> None:
    pulsars = "loadBalancerLoadSheddingStrategy=ThresholdShedder"
    wanted = ["--set", "shedding_enabled=true", "--set", pulsars, "--set", "min_throughput_mb=0"]
    result = asked(tables, "what-if", *wanted, "--minutes", "20", "--json")
    assert result.code == 0, result.err
    (found,) = result.objects
    as_it_is, changed = found["as it is"], found["changed"]
    assert (found["cluster"], found["minutes"], as_it_is["moves"]) == ("eu", 20.0, 0)
    assert (
        0 < changed["moves"] == len(changed["moved"])
        and changed["clients_disturbed"] == 7 * changed["moves"]
    )
    assert (
        changed["usage_max_after"]
        < changed["usage_max_now"]
        == as_it_is["usage_max_after"]
        == pytest.approx(8 / 12, rel=0.02)
    )
    assert changed["moved"][0]["from"] == "a:8080" and changed["fits"]


def test_slots_of_any_length_can_be_played(tmp_path: Path) -> None:
    result = asked(
        write_present(tmp_path, 2_000), "what-if", "--drain", "c:8080", "--minutes", "5", "--json"
    )
    assert result.code == 0 and result.objects[0]["changed"]["drain_s"] > 0, result.err


def test_a_drain_that_fits_and_one_that_does_not(tables: Path) -> None:
    fits = asked(tables, "what-if", "--drain", "c", "--json")
    assert fits.code == 0 and fits.objects[0]["changed"]["drain_s"] < 120.0
    full = asked(tables, "what-if", "--drain", "b:8080", "--drain", "c:8080", "--drain", "a:8080")
    assert full.code == 1 and "Doesn't fit: " in full.out


def test_the_commands_that_change_something_have_it_as_a_preview_and_send_nothing(
    tables: Path,
) -> None:
    drained = asked(tables, "brokers", "drain", "c:8080", "--preview")
    assert drained.code == 0 and "clients disturbed" in drained.out
    changed = asked(
        tables,
        "config",
        "set",
        "loadBalancerSheddingEnabled",
        "true",
        "--preview",
        "--json",
    )
    (found,) = changed.objects
    assert (changed.code, found["minutes"], found["as it is"]["moves"]) == (0, 30.0, 0)
    assert found["changed"]["usage_max_now"] == found["as it is"]["usage_max_after"], (
        "both begin from what there is"
    )


BUNDLE = ["shop/n0", "-b", "0x00000000_0xffffffff"]


@pytest.mark.slow
def test_a_bundle_is_moved_to_its_destination_or_to_whom_placement_takes(tables: Path) -> None:
    (found,) = asked(
        tables, "namespaces", "unload", *BUNDLE, "-d", "c:8080", "--preview", "--json"
    ).objects
    (move,) = found["changed"]["moved"]
    assert (move["bundle"], move["from"], move["to"]) == (
        "shop/n0/0x00000000_0xffffffff",
        "a:8080",
        "c:8080",
    )
    assert found["changed"]["clients_disturbed"] == 7 and found["as it is"]["moves"] == 0
    assert [one["outcome"] for one in found["answers"]] == ["done"]
    shown = asked(tables, "namespaces", "unload", "shop/n0", "--preview")
    assert (
        shown.code == 0
        and "done: shop/n0/0x00000000_0xffffffff leaves a:8080" in shown.out
        and "clients disturbed" in shown.out
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["unload", *BUNDLE, "-d", "a:8080"],
            "it would be refused (destination_is_owner): a:8080 owns",
        ),
        (["unload", *BUNDLE, "-d", "z:8080"], "it would be refused (inactive_destination)"),
        (["unload", "shop/other"], "it would be refused (unknown_namespace)"),
        (
            ["unload", "shop/n0", "-b", "0x00000000_0x10000000"],
            "it would be refused (unknown_bundle)",
        ),
    ],
)
@pytest.mark.slow
def test_what_the_balancer_would_refuse_is_one_line(
    tables: Path, arguments: list[str], told: str
) -> None:
    result = asked(tables, "namespaces", *arguments, "--preview")
    assert result.code == 1 and told in result.err.splitlines()[-1] and not result.out


def test_a_policy_that_keeps_the_bundle_away_refuses_in_the_preview_too(tmp_path: Path) -> None:
    policy = {
        "name": "p",
        "namespaces": ["shop/n0"],
        "primary": ["a"],
        "secondary": [],
        "min_available": 1,
    }
    operator_state = OperatorState(isolation={"p": policy})
    result = asked(
        write_present(tmp_path, operator_state=operator_state),
        "namespaces",
        "unload",
        *BUNDLE,
        "-d",
        "c:8080",
        "--preview",
    )
    assert result.code == 1
    check_wording(result.err)


SHEDS = {"shedding_enabled": True, "shedding_strategy": "ThresholdShedder", "min_throughput_mb": 0}


@pytest.mark.parametrize(
    ("settings", "commanded", "command"),
    [
        ({"mode": "observe"}, {}, ["clusters", "mode", "eu", "act"]),
        ({"dry_run": True}, {}, ["clusters", "enable", "eu"]),
        ({"mode": "approve"}, {}, ["clusters", "mode", "eu", "act"]),
        ({"mode": "act"}, {"mode": "approve", "dry_run": True}, ["clusters", "mode", "eu", "act"]),
        ({}, {}, ["clusters", "enable"]),
    ],
)
@pytest.mark.slow
def test_what_would_go_out_if_decisions_were_published(
    tmp_path: Path, settings: dict[str, Any], commanded: dict[str, Any], command: list[str]
) -> None:
    tables = write_present(
        tmp_path, settings=SHEDS | settings, operator_state=OperatorState(settings=commanded)
    )
    result = asked(tables, *command, "--preview", "--json")
    assert result.code == 0, result.err
    (found,) = result.objects
    assert found["as it is"]["moves"] == 0 < found["changed"]["moves"]


@pytest.mark.parametrize(
    ("settings", "commanded", "command", "told"),
    [
        ({"mode": "act"}, {}, ["mode", "eu", "act"], "mode = 'act': expected another one"),
        (
            {"mode": "act"},
            {},
            ["mode", "eu", "approve"],
            "no bundle moves before an operator approves it",
        ),
        (
            {"mode": "approve"},
            {"dry_run": True},
            ["enable", "eu"],
            "no bundle moves before an operator approves it",
        ),
        (
            {"mode": "act"},
            {"mode": "approve", "dry_run": True},
            ["enable", "eu"],
            "before an operator approves it",
        ),
    ],
)
def test_a_mode_that_moves_nothing_is_not_played(
    tmp_path: Path,
    settings: dict[str, Any],
    commanded: dict[str, Any],
    command: list[str],
    told: str,
) -> None:
    tables = write_present(
        tmp_path, settings=SHEDS | settings, operator_state=OperatorState(settings=commanded)
    )
    result = asked(tables, "clusters", *command, "--preview")
    assert result.code == 2 and told in result.err.splitlines()[-1] and not result.out


@pytest.mark.slow
def test_the_end_of_a_pause_and_other_limits(tmp_path: Path) -> None:
    paused = write_present(
        tmp_path / "paused",
        settings=SHEDS | {"mode": "act"},
        operator_state=OperatorState(paused=True),
    )
    (found,) = asked(paused, "clusters", "resume", "eu", "--preview", "--json").objects
    assert found["as it is"]["moves"] == 0 < found["changed"]["moves"]
    (found,) = asked(
        paused,
        "what-if",
        "--cluster",
        "eu",
        "--set",
        "loadBalancerBrokerThresholdShedderPercentage=1",
        "--json",
    ).objects
    assert found["changed"]["moves"] == 0 == found["as it is"]["moves"]
    check_wording(asked(paused, "what-if", "--cluster", "eu", "--set", "enabled=true").err)
    acting = write_present(tmp_path / "acting", settings=SHEDS | {"mode": "act"})
    again = asked(acting, "clusters", "resume", "eu", "--preview")
    assert again.code == 1 and not again.out
    check_wording(again.err)
    (found,) = asked(
        acting, "clusters", "limit", "eu", "--per-minute", "0", "--preview", "--json"
    ).objects
    assert found["changed"]["moves"] == 0 < found["as it is"]["moves"]


@pytest.mark.slow
def test_a_drained_broker_that_is_given_back(tmp_path: Path) -> None:
    tables = write_present(tmp_path, operator_state=OperatorState(drained=("c:8080",)))
    (found,) = asked(tables, "brokers", "undrain", "c", "--preview", "--json").objects
    assert {one["from"] for one in found["as it is"]["moved"]} == {"c:8080"} and found["as it is"][
        "moves"
    ] == 2
    assert found["changed"]["moves"] == 0
    other = asked(tables, "brokers", "undrain", "a:8080", "--preview")
    assert other.code == 2
    check_wording(other.err)


@pytest.mark.slow
def test_silent_brokers_taken_for_dead(tmp_path: Path) -> None:
    tables = write_present(tmp_path, vanished=("c:8080",))
    (found,) = asked(tables, "clusters", "declare-dead", "eu", "--preview", "--json").objects
    assert (
        found["changed"]["failovers"] == 2
        and found["changed"]["moves"] == 0
        and found["changed"]["fits"]
    )
    assert found["changed"]["client_seconds_lost"] < found["as it is"]["client_seconds_lost"]
    speaks = asked(tables, "clusters", "declare-dead", "eu", "--broker", "a:8080", "--preview")
    assert speaks.code == 1
    check_wording(speaks.err)


def test_proposals_are_played_as_moves_while_all_else_waits(tmp_path: Path) -> None:
    tables = write_present(
        tmp_path,
        settings=SHEDS | {"mode": "approve"},
        proposals=(proposal(0), proposal(1, kind="split")),
    )
    (found,) = asked(tables, "approve", "eu:1:p0", "--preview", "--json").objects
    (move,) = found["changed"]["moved"]
    assert (move["from"], move["to"]) == ("a:8080", "b:8080") and found["as it is"]["moves"] == 0
    split = asked(tables, "approve", "--all", "--preview")
    assert split.code == 2 and not split.out
    check_wording(split.err)
    unknown = asked(tables, "approve", "eu:1:p7", "--preview")
    assert unknown.code == 2
    check_wording(unknown.err)


def test_a_preview_is_of_one_cluster(tables: Path) -> None:
    result = asked(tables, "clusters", "enable", "--all-clusters", "--preview")
    assert result.code == 2
    check_wording(result.err)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing to try"),
        (["--set", "threshold_percent"], "expected KEY=VALUE"),
        (["--set", "threshold_percnt=5"], "nearest: threshold_percent"),
        (["--set", "threshold_percent=much"], "expected a number"),
        (["--drain", "z:8080"], "expected one of a:8080, b:8080, c:8080"),
        (["--drain", "z"], "broker z: expected a broker's name"),
        (
            ["--cluster", "us", "--set", "threshold_percent=5"],
            "expected one that bundle_history has: eu",
        ),
    ],
)
def test_what_cannot_be_tried_is_one_line_and_code_two(
    tables: Path, arguments: list[str], told: str
) -> None:
    result = asked(tables, "what-if", *arguments)
    assert (
        result.code == 2
        and told in result.err.splitlines()[-1]
        and "Traceback" not in result.err
        and not result.out
    )
