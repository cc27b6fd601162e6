"""Balance message-broker clusters from a PySpark Structured Streaming pipeline.

Without Java, on a laptop, any strategy decides about load reports in a file:

    import lb_stream

    view = lb_stream.load_reports("tests/data/modular-load-reports.jsonl.gz")
    for name in lb_stream.shedder.names:
        answer = lb_stream.ask(view, shedding_strategy=name, min_throughput_mb=0)
        print(name, [decision.bundle for decision in answer.decisions])
        print(name, [refusal.rule for refusal in answer.refusals])

`load_tables` reads the tables of a job in place of a file. A strategy of another package imports
`lb_stream.plugins`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lb_stream.core.config.cluster_config import ClusterConfig
    from lb_stream.core.model.memory import Memory
    from lb_stream.core.model.view import ClusterView
    from lb_stream.core.placement import placement, simple_placement
    from lb_stream.core.round.decide import Inbox, Round, decide
    from lb_stream.core.shedding import shedder
    from lb_stream.core.splitting import split_algorithm
    from lb_stream.recorded import ask, load_reports, load_tables
    from lb_stream.settings.load import load_settings
    from lb_stream.settings.resolve import cluster_config

__version__ = "0.1.0"

__all__ = [
    "ClusterConfig",
    "ClusterView",
    "Inbox",
    "Memory",
    "Round",
    "ask",
    "cluster_config",
    "decide",
    "load_reports",
    "load_settings",
    "load_tables",
    "placement",
    "shedder",
    "simple_placement",
    "split_algorithm",
]

_MODULES = {
    "core.config.cluster_config": ("ClusterConfig",),
    "settings.names": ("placement", "shedder", "simple_placement", "split_algorithm"),
    "settings.resolve": ("cluster_config",),
    "core.model.memory": ("Memory",),
    "core.model.view": ("ClusterView",),
    "core.round.decide": ("Inbox", "Round", "decide"),
    "settings.load": ("load_settings",),
    "recorded": ("ask", "load_reports", "load_tables"),
}
"""Module → the names that it holds.

A module is imported at the first use of a name: commands that don't need it start sooner.
"""


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
