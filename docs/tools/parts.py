"""Parts of pages that follow from the code, between two marks; the rest is written by hand.

A part begins with `<!-- begin: NAME, written by python -m docs.tools -->` and ends with
`<!-- end: NAME -->`. `python -m docs.tools` writes all of them anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from docs.tools import chart_page
from docs.tools.commands_tables import commands_table
from docs.tools.metrics_tables import (
    alerts_table,
    broker_metrics_table,
    cluster_metrics_table,
    stream_metrics_table,
)
from lb_stream.access.roles import ROLES, resource_names
from lb_stream.contracts.settings import Settings, UpkeepSettings
from lb_stream.contracts.tables import TABLES
from lb_stream.contracts.verbs import VERBS, find_role
from lb_stream.core.commands.base import operations

DOCS = Path(__file__).resolve().parents[1]
HOURS_A_DAY = 24

_FLAGS = {"watermark": "--group", "transactions": "--transactional-id"}
_LINKS = {
    "merge_advice": "[merge advice](splitting.md#merge-advice)",
    "bundle_history": "[history](#history)",
    "broker_history": "[history](#history)",
    "proposals": "[approval](approval.md)",
    "rollouts": "[rollouts](rollouts.md)",
    "shadow_rounds": "[shadows](shadows.md)",
    "shadow_decisions": "[shadows](shadows.md)",
    "batches": "[metrics](metrics.md)",
    "backtests": "[back-tests](backtest.md)",
}
"""Table → where more is written about its rows."""


def rights_table() -> str:
    """Return the rights of each role as a table."""
    names = resource_names(Settings())
    rows = [
        f"| {role} | `{names[resource]}` | {', '.join(allowed)} |"
        for role, rights in ROLES.items()
        for resource, allowed in rights.items()
    ]
    return "\n".join(["| role | resource | rights |", "|---|---|---|", *rows])


def rights_commands() -> str:
    """Return the same rights as commands of Kafka's own tool."""
    names = resource_names(Settings())
    lines = []
    for role, rights in ROLES.items():
        alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for resource, allowed in rights.items():
            flag = _FLAGS.get(resource, "--topic")
            alike.setdefault((flag, allowed), []).append(names[resource])
        for (flag, allowed), resources in alike.items():
            lines.append(
                f"kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:lb-{role}"
                + "".join(f" --operation {operation}" for operation in allowed)
                + "".join(f" {flag} {resource}" for resource in resources)
            )
    return "\n".join(["```", *lines, "```"])


def verbs_table() -> str:
    """Return the verbs of commands: what each allows, of which commands, by which role."""
    rows = []
    for verb, text in VERBS.items():
        kinds = [f"`{model.spec.kind}`" for model in operations() if model.spec.verb == verb]
        rows.append(f"| `{verb}` | {text} | {', '.join(kinds)} | {find_role(verb)} |")
    head = ["| verb | what it allows | commands | first role that has it |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])


def tables_table() -> str:
    """Return all tables: what a row is, and how long rows stay."""
    rows = []
    for spec in TABLES:
        link = f"; {_LINKS[spec.name]}" if spec.name in _LINKS else ""
        from_log = "yes" if spec.from_log else ""
        rows.append(f"| `{spec.name}` | {spec.row}{link} | {_kept(spec.name)} | {from_log} |")
    return "\n".join(["| table | a row is | kept | from the log |", "|---|---|---|---|", *rows])


def _kept(table: str) -> str:
    hours = getattr(UpkeepSettings(), f"keep_{table}_hours", None)
    if hours:
        return f"{hours // HOURS_A_DAY} days"
    return "for ever" if table in ("leaders", "backtests", "audit") else "the present"


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "commands.md": {
        "clusters": partial(commands_table, "clusters"),
        "namespaces": partial(commands_table, "namespaces"),
        "brokers and settings": partial(commands_table, "brokers", "config"),
        "proposals": partial(commands_table, "approve", "reject"),
        "rollouts": partial(commands_table, "rollout"),
        "programs": partial(commands_table, ""),
    },
    "security.md": {
        "rights": rights_table,
        "commands": rights_commands,
        "verbs": verbs_table,
    },
    "tables.md": {"tables": tables_table},
    "metrics.md": {
        "stream": stream_metrics_table,
        "clusters": partial(cluster_metrics_table, of_pulsar=False),
        "pulsar": partial(cluster_metrics_table, of_pulsar=True),
        "brokers": broker_metrics_table,
        "alerts": alerts_table,
    },
    **chart_page.PARTS,
}
"""Page → part → the function that writes it."""


def with_parts(page: str, text: str) -> str:
    """Return a page's text with its parts written anew. Raises ValueError: a mark is missing."""
    for name, write in PARTS[page].items():
        pattern = re.compile(
            rf"(<!-- begin: {name}, [^\n]* -->\n).*?(<!-- end: {name} -->)", re.DOTALL
        )
        if not pattern.search(text):
            raise ValueError(f"docs/{page}: expected a part between the marks of {name!r}")
        written = write()
        text = pattern.sub(lambda marks: f"{marks[1]}\n{written}\n\n{marks[2]}", text)  # noqa: B023
    return text
