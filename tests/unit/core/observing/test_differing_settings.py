"""Brokers grouped by the settings that differ from the balancer's."""

from __future__ import annotations

import pytest

from lb_stream.core.commands.responder import Received
from lb_stream.core.model.memory import Memory
from lb_stream.core.observing.differing_settings import update_differing
from lb_stream.core.round.decide import Inbox
from lb_stream.settings.overrides import apply_setting_commands
from tests.support.wordings import check_wording

KNOWN = {"k1": ("a", "b"), "k1,k2": ("c",)}


def test_brokers_stay_as_they_are_known_until_they_report_otherwise() -> None:
    assert update_differing({}, {}, ()) == {}
    assert update_differing(KNOWN, {}, ()) == KNOWN
    assert update_differing(KNOWN, {"a": ("k2", "k1"), "d": ()}, ()) == {
        "k1": ("b",),
        "k1,k2": ("a", "c"),
    }
    assert update_differing(KNOWN, {"a": (), "b": (), "c": ()}, ()) == {}


def test_what_a_broker_reported_before_it_died_does_not_count() -> None:
    assert update_differing(KNOWN, {}, ("a", "c")) == {"k1": ("b",)}
    assert update_differing(KNOWN, {"a": ("k3",)}, ("a",)) == {
        "k1": ("b",),
        "k1,k2": ("c",),
        "k3": ("a",),
    }


@pytest.mark.parametrize("known", [True, False], ids=["known before", "with the command"])
def test_the_answer_to_clusters_enable_names_brokers_with_other_settings(known: bool) -> None:
    keys = ("loadBalancerLoadSheddingStrategy", "maxUnloadPercentage")
    command = Received(1, {"id": "c1", "kind": "dry-run", "on": False, "by": "me"})
    inbox = Inbox(commands=(command,), differing={} if known else {"b:1": keys, "a:1": keys})
    memory = Memory(differing={",".join(keys): ("a:1", "b:1")} if known else {})
    (answer,) = apply_setting_commands({}, memory, inbox).inbox.answers
    check_wording(answer.text)


def test_the_answer_to_clusters_disable_does_not() -> None:
    command = Received(1, {"id": "c1", "kind": "dry-run", "on": True, "by": "me"})
    memory = Memory(differing={"maxUnloadPercentage": ("a:1",)})
    (answer,) = apply_setting_commands({}, memory, Inbox(commands=(command,))).inbox.answers
    assert "a:1" not in answer.text
