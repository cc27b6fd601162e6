"""A round with all of its commands, those about settings too, as the job makes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.settings.follow import follow_brokers
from lb_stream.settings.overrides import apply_setting_commands


def decide_with(
    view: ClusterView, memory: Memory, inbox: Inbox, settings: Mapping[str, Any]
) -> Round:
    """Do the commands about settings, then decide. `settings`: the job's own."""
    begin = follow_brokers(apply_setting_commands(settings, memory, inbox), settings, view)
    return decide(view, begin.memory, begin.inbox, begin.config)
