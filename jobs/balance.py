"""The balancer: `spark-submit --properties-file conf/spark-defaults.conf jobs/balance.py --config conf/default.toml`.

Reads load reports and commands from Kafka, writes decisions to Kafka and Delta tables, until it is stopped.
Makes the topics that are missing. Exit codes: 0 ended as asked, 1 failed, 2 a wrong setting or topic (found before Spark starts), 3 Spark's
JVM had no memory left.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from kafka.errors import KafkaError

from lb_stream.contracts.settings import Settings
from lb_stream.core.config import SettingError
from lb_stream.io.alive import make_way
from lb_stream.io.configuration import load
from lb_stream.io.kafka_options import spark_options
from lb_stream.io.topics import TopicMismatch, TopicNames, create_topics, topic_specs
from lb_stream.stream.ports import Stopped


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML, as conf/default.toml")
    parser.add_argument("--broker-conf", type=Path, metavar="FILE", help="a Pulsar broker.conf: its load balancer's keys are read")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one setting, e.g. kafka.bootstrap_servers=host:9092"
    )
    parser.add_argument("--once", action="store_true", help="read what is there now, then end")
    parser.add_argument("--take-over", action="store_true", help="replace the job that runs this pipeline: shut it out, wait for its end")
    return parser.parse_args()


def stop_on_signal(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM as Ctrl-C: the batch under way is finished or run again at the next start."""
    raise KeyboardInterrupt


def ready_topics(settings: Settings) -> None:
    """Make the topics that are missing and check the others. Raises SettingError, TopicMismatch, or KafkaError when nobody answers."""
    spark_options(settings)  # what it can't have is said now, not when Spark is there
    create_topics(settings.kafka.bootstrap_servers, topic_specs(TopicNames(**settings.topics.model_dump())), settings.kafka.options)


def main() -> int:
    """Run the job; the exit code."""
    options = arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # until somebody has answered: the message below says it once
    try:
        loaded = load(options.config, options.broker_conf, options.set)
        settings = loaded.settings
        for warning in loaded.warnings:
            logging.getLogger("balance").warning("%s", warning)
        ready_topics(settings)
        make_way(settings, options.take_over)
        logging.getLogger("kafka").setLevel(logging.WARNING)
    except Stopped as error:
        print(f"balance.py: {error}", file=sys.stderr)
        return 1
    except (SettingError, TopicMismatch) as error:
        print(f"balance.py: {error}", file=sys.stderr)
        return 2
    except KafkaError as error:
        where = settings.kafka.bootstrap_servers
        print(
            f"balance.py: no Kafka at {where} ({error}): `lbctl kafka start` starts one; kafka.bootstrap_servers names another",
            file=sys.stderr,
        )
        return 1

    from lb_stream.io.outbox import KafkaAway
    from lb_stream.io.running import Stuck
    from lb_stream.io.session import spark_session
    from lb_stream.io.supervise import run

    signal.signal(signal.SIGTERM, stop_on_signal)
    spark = spark_session(settings)
    try:
        run(spark, settings, options.once)
    except Stuck as error:
        print(f"balance.py: {error}", file=sys.stderr, flush=True)
        os._exit(1)  # an orderly end would wait for the batch, too
    except (Stopped, KafkaAway) as error:
        print(f"balance.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        logging.getLogger(__name__).info("stopping")
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
