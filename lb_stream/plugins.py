"""All that a strategy of another package imports from lb_stream.

A strategy is a function of one context. A decorator registers it under its name, with the model of
its settings. An entry point of the same name leads to its module. Its decisions and refusals name
rules, and a rule explains itself in a sentence. How to write one: docs/plugins.md.

| kind | decorator | entry points | context | returns |
|---|---|---|---|---|
| shedder | `shedder` | `lb_stream.shedders` | `ShedContext` | `Unloads`, memory |
| placement | `placement` | `lb_stream.placements` | `PlacementContext` | `Best`, memory |
| simple placement | `simple_placement` | `lb_stream.simple_placements` | `PlacementContext` | as above |
| split algorithm | `split_algorithm` | `lb_stream.split_algorithms` | `SplitContext` | `Boundaries` |

A placement serves the modular manager, a simple placement the simple one.
"""

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Decides, Refuses, Rule, decides, refuses
from lb_stream.core.model.topic_shares import TopicShares
from lb_stream.core.model.view import (
    Bools,
    Brokers,
    Bundles,
    ClusterView,
    Floats,
    Ints,
    Rates,
    Rows,
)
from lb_stream.core.placement.base import (
    Best,
    Placement,
    PlacementContext,
    Targets,
    placement,
    simple_placement,
)
from lb_stream.core.shedding.base import (
    BundleRules,
    Choosable,
    Disruption,
    MoveLearner,
    Need,
    PlanExpectation,
    PlanFacts,
    PlanProblem,
    ReportObserver,
    ShedContext,
    Shedder,
    SplitProposal,
    Splittable,
    Traits,
    Unload,
    Unloads,
    heaviest_first,
    rows_by_broker,
    shed_throughput,
    shedder,
    until_enough,
)
from lb_stream.core.splitting.base import (
    Boundaries,
    Range,
    SplitAlgorithm,
    SplitContext,
    Topics,
    split_algorithm,
)

__all__ = [
    "Best",
    "Bools",
    "Boundaries",
    "Brokers",
    "BundleRules",
    "Bundles",
    "Choosable",
    "ClusterView",
    "Decides",
    "Disruption",
    "Floats",
    "Ints",
    "KeyModel",
    "MoveLearner",
    "Need",
    "Placement",
    "PlacementContext",
    "PlanExpectation",
    "PlanFacts",
    "PlanProblem",
    "Range",
    "Rates",
    "Refusal",
    "Refuses",
    "ReportObserver",
    "Rows",
    "Rule",
    "ShedContext",
    "Shedder",
    "SplitAlgorithm",
    "SplitContext",
    "SplitProposal",
    "Splittable",
    "Targets",
    "TopicShares",
    "Topics",
    "Traits",
    "Unload",
    "Unloads",
    "decides",
    "heaviest_first",
    "key",
    "placement",
    "refusal",
    "refuses",
    "rows_by_broker",
    "shed_throughput",
    "shedder",
    "simple_placement",
    "split_algorithm",
    "until_enough",
]
