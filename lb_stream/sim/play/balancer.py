"""The balancer's side of a played scenario: the job's own path from a micro-batch to a round. It sees what arrives, and nothing else."""

from __future__ import annotations

from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.blocks import Batch, Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.round.decide import Inbox, Round, decide


class Balancer:
    """One cluster's averages and memory, from round to round."""

    def __init__(self, cluster: str, config: ClusterConfig) -> None:
        """Before the first report."""
        self.cluster, self.config = cluster, config
        self.shard, self.memory = Shard.empty(), Memory(epoch=1)

    def ask(self, batch: Batch, inbox: Inbox, now_ms: int) -> Round:
        """Fold what has arrived, and decide. Raises RuntimeError for a report that is refused: the model makes none that can be."""
        self.shard, refused = fold(self.shard, batch, now_ms, self.config.fold)
        if len(refused):
            raise RuntimeError(f"a report was taken for an old one: {refused.to_pylist()[0]}")
        view = view_of(self.cluster, [self.shard], now_ms, self.config.balancer.weights)
        made = decide(view, self.memory, inbox, self.config)
        self.memory = made.memory
        return made
