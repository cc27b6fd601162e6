"""`delete-config`: take back what `set-config` has set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lb_stream.contracts.commands import LONGEST_WORD
from lb_stream.core.commands.base import (
    Button,
    CommandLine,
    Effect,
    Operation,
    SettingsCommand,
    argument,
    command,
    done,
    named,
    refused,
)

if TYPE_CHECKING:
    from lb_stream.core.model.operator_state import OperatorState
    from lb_stream.settings.overrides import SettingsChange


@command(
    CommandLine(
        "config unset",
        "config unset loadBalancerSheddingEnabled",
        "Remove an override: the job's own setting is in force again.",
        all_clusters=True,
    ),
    verb="settings",
    effect="removes an override: the job's own setting is in force again",
    buttons=[
        Button(
            "unset",
            "Remove an override",
            "Remove the override of a setting: the job's own setting counts again.",
            asks=("key",),
        )
    ],
)
class DeleteConfig(SettingsCommand):
    """Take back what `set-config` has set: the job's own setting counts again."""

    kind: Literal["delete-config"] = "delete-config"
    phrase = "removes the override of {key}"
    key: Annotated[
        str,
        argument("KEY"),
        Field(
            min_length=1,
            max_length=LONGEST_WORD,
            description="The key, by Pulsar's name or this project's.",
        ),
    ]
    objects = {"key": "setting"}

    def change_settings(self, change: SettingsChange) -> Effect:
        after = change.without_key(self.key)
        if len(after) == len(change.overrides):
            text = f"no command has set {self.key}; overrides: {named(change.overrides)}"
            return refused("not_set", text)
        return done(f"{self.key} is the job's own setting again", settings=after)

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        from lb_stream.settings.overrides import build_inverse_commands

        return build_inverse_commands([self.key], before)

    def subject(self) -> tuple[str, str]:
        from lb_stream.settings.names import to_our_name

        return "setting", to_our_name(self.key, "")

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        from lb_stream.settings.names import to_our_name

        return self.subject()[1] not in {to_our_name(*given) for given in now.settings.items()}
