"""What the programs in an image talk to: Kafka with the job's topics, and brokers that answer as Pulsar's do.

`python -m tests.image.peers FOLDER` runs in a container of the job's image, which has Kafka's jars.
It prints where they are as one JSON object, and ends at SIGTERM. FOLDER takes Kafka's files.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from tests.pulsar.fake_cluster import fake_cluster


def main(arguments: list[str]) -> int:
    """Run until SIGTERM, which ends it with exit code 0."""
    (folder,) = map(Path, arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with EmbeddedKafka(folder / "kafka") as kafka, fake_cluster() as cluster:
        create_topics(kafka.bootstrap, topic_specs(TopicSettings()))
        print(json.dumps({"kafka": kafka.bootstrap, "brokers": cluster.names}), flush=True)
        while True:
            signal.pause()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
