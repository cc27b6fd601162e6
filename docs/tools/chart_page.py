"""Parts of the chart's README that follow from its files, and files of the chart that are copies.

A key of values.yaml with a comment above it is a value: its comment is what the README says of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

PROJECT = Path(__file__).resolve().parents[2]
CHART = PROJECT / "conf" / "deploy" / "chart"
README = "../conf/deploy/chart/README.md"
ALERTS = "../conf/deploy/chart/files/prometheus-alerts.yml"
"""Both are named from the folder docs, as pages are."""

_KEY = re.compile(r"^( *)([A-Za-z]\w*):")
_INDENT = 2


class Value(NamedTuple):
    """A value of the chart: its name with dots, its default, what it means."""

    name: str
    default: Any
    meaning: str


def chart_values(text: str) -> Iterator[Value]:
    """Return the values that a values.yaml describes, in its order."""
    defaults = yaml.safe_load(text)
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        if (found := re.match(r"^ *# (.*)", line)) is not None:
            comment.append(found[1])
            continue
        if (key := _KEY.match(line)) is not None:
            path = [*path[: len(key[1]) // _INDENT], key[2]]
            if comment:
                default = defaults
                for name in path:
                    default = default[name]
                yield Value(".".join(path), default, " ".join(comment))
        comment = []


def values_table() -> str:
    """Return all values of the chart as a table."""
    rows = [
        f"| `{value.name}` | `{_flow(value.default)}` | {_escape(value.meaning)} |"
        for value in chart_values((CHART / "values.yaml").read_text())
    ]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])


def _flow(default: Any) -> str:
    return json.dumps(default, ensure_ascii=False)


def _escape(text: str) -> str:
    return re.sub(r"(\{[^}]*\}+|\[[^\]]*\])", r"`\1`", text).replace("|", "\\|")


def file_block(path: Path) -> str:
    """Return a file of YAML as a block of code."""
    return f"```yaml\n{path.read_text().rstrip()}\n```"


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    README: {
        "example": partial(
            file_block, PROJECT / "tests" / "data" / "chart" / "tls-s3-standbys.yaml"
        ),
        "sidecar": partial(file_block, CHART / "files" / "pulsar-values.yaml"),
        "values": values_table,
    }
}


def pages() -> dict[str, str]:
    """Return the chart's copies of other files: helm reads none outside of the chart."""
    return {ALERTS: (PROJECT / "conf" / "prometheus-alerts.yml").read_text()}
