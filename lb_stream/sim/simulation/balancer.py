"""The balancer of a simulation: the balancer's own code, fed with what has arrived."""

from __future__ import annotations

from lb_stream.contracts.keys import GivenSettings
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Batch, Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.round.decide import Inbox, Round, decide
from lb_stream.settings.follow import follow_brokers
from lb_stream.settings.overrides import apply_setting_commands
from lb_stream.settings.resolve import resolve


class SimulatedBalancer:
    """A balancer of one cluster: its averages and memory, from round to round."""

    def __init__(self, cluster: str, settings: GivenSettings) -> None:
        """Begin before the first report. `settings`: under our names or Pulsar's."""
        self.cluster, self.settings = cluster, settings
        self.config = config = resolve(settings).config
        self.fold_config, self.load_manager = config.fold, config.balancer.load_manager
        self.shard, self.memory = Shard.empty(), Memory(epoch=1)

    def decide(self, batch: Batch, inbox: Inbox, now_ms: int) -> Round:
        """Fold what has arrived, and decide.

        Raises RuntimeError for a rejected report: the model builds none that can be rejected.
        """
        self.shard, rejected = fold(self.shard, batch, now_ms, self.fold_config)
        if len(rejected):
            raise RuntimeError(f"a report was rejected as old: {rejected.to_pylist()[0]}")
        begin = apply_setting_commands(self.settings, self.memory, inbox)
        view = view_of(self.cluster, [self.shard], now_ms, begin.config.balancer.weights)
        begin = follow_brokers(begin, self.settings, view)
        made = decide(view, begin.memory, begin.inbox, begin.config)
        self.memory = made.memory
        return made
