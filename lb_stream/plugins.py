"""All that a strategy of another package needs.

It imports this module and nothing else of lb_stream.

A strategy is a function of one context. A decorator registers it under its name, with the model of
its settings; an entry point of the same name leads to its module. It decides and refuses by rules:
values that say why in a sentence. How to write one: docs/plugins.md.

| kind | decorator | entry points | asked with | answers |
|---|---|---|---|---|
| shedder | `shedder` | `lb_stream.shedders` | `ShedContext` | (`Unloads`, memory) |
| placement, modular manager | `placement` | `lb_stream.placements` | `PlacementContext` | (`Best`,
memory) |
| placement, simple manager | `simple_placement` | `lb_stream.simple_placements` |
`PlacementContext` | (`Best`, memory) |
| split algorithm | `split_algorithm` | `lb_stream.split_algorithms` | `SplitContext` | `Boundaries`
|
"""

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Decides, Refuses, Rule, decides, refuses
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
    Disruption,
    MoveLearner,
    Need,
    Observer,
    PlanFacts,
    ShedContext,
    Shedder,
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
    "ClusterView",
    "Decides",
    "Disruption",
    "Floats",
    "Ints",
    "KeyModel",
    "MoveLearner",
    "Need",
    "Observer",
    "Placement",
    "PlacementContext",
    "PlanFacts",
    "Range",
    "Rates",
    "Refusal",
    "Refuses",
    "Rows",
    "Rule",
    "ShedContext",
    "Shedder",
    "SplitAlgorithm",
    "SplitContext",
    "Targets",
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
