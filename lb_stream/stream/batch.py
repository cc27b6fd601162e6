"""What happens to each micro-batch once its shards' views are there: decide, log, publish, project."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from lb_stream.contracts.settings import Settings
from lb_stream.stream.crash import crash_point
from lb_stream.stream.decide import BatchContext
from lb_stream.stream.directory import write_directory
from lb_stream.stream.ports import Log, Observer, Publisher, Reading, Tables, Unobserved
from lb_stream.stream.transforms import to_rounds


@dataclass(slots=True)
class Balancer:
    """The `foreachBatch` of the job. Everything it keeps can be had again from the log."""

    settings: Settings
    log: Log
    outbox: Publisher
    tables: Tables
    caught_up: Reading
    epoch: int
    observer: Observer = field(default_factory=Unobserved)

    def __call__(self, shards: DataFrame, batch_id: int) -> None:
        """Decide once, then publish and project what the log says; run again, it decides nothing anew."""
        crash_point("on_entry")
        self.observer.begin(batch_id)
        self.caught_up.read(batch_id)  # at once: a batch that is run again after a restart is told the same
        logged = self.log.find(batch_id)
        if logged is None:
            rounds = self._decide(shards, batch_id)
            self.observer.done("decide")
            crash_point("before_log")
            logged = self.log.append_once(batch_id, rounds)
            self.observer.done("log")
            crash_point("after_log")
        else:
            self.log.remember(logged.rounds)
            shards.write.format("noop").mode("overwrite").save()  # Spark commits the state only of a frame that has been run
            self.observer.done("decide")
        self.outbox.publish(logged)
        self.observer.done("publish")
        crash_point("after_publish")
        self.tables.project(logged)
        self.observer.done("project")
        write_directory(self.settings.stream.checkpoint, batch_id + 1, dict.fromkeys(self.log.memories, 1))
        self.observer.finish(logged)
        crash_point("before_commit")

    def _decide(self, shards: DataFrame, batch_id: int) -> pa.Table:
        """The one action of a batch."""
        context = BatchContext(
            settings=self.settings,
            file_tag=f"{self.log.app.rpartition('/')[2]}-{batch_id:09d}",
            log_seq=self.log.last_seq + 1,
            epoch=self.epoch,
            caught_up=self.caught_up.now,
            memories=dict(self.log.memories),
        )
        return shards.transform(to_rounds(context)).toArrow()
