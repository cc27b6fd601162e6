"""The job's program, which `lbctl balance` and jobs/balance.py run.

The job reads load reports and commands from Kafka, and writes decisions to Kafka and Delta tables,
until it is stopped. It creates missing topics. Exit codes: 0 ended by a request, 1 failed, 2 a
wrong setting or topic (found before the stream starts), 3 Spark's JVM had no memory left.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import Settings
from lb_stream.io.local.signals import StopRequest
from lb_stream.io.messages.errors import describe_error
from lb_stream.io.messages.logs import set_up
from lb_stream.io.messages.shown import shown
from lb_stream.io.telemetry.opening import require_telemetry
from lb_stream.job.compiler import lower_compiler_priority
from lb_stream.settings.load import load
from lb_stream.settings.rights import has_unproven_names, load_rights
from lb_stream.settings.secrets import hide
from lb_stream.settings.signing import list_unsigned, require_job_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW_LINE = "\n"


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings in TOML, as conf/default.toml"
    )
    parser.add_argument(
        "--broker-conf",
        type=Path,
        metavar="FILE",
        help="a Pulsar broker.conf: its load balancer's keys are read",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one setting, e.g. kafka.bootstrap_servers=host:9092",
    )
    parser.add_argument("--once", action="store_true", help="read the present records, then end")
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="replace the job that runs this pipeline: fence it, and wait for its end",
    )
    parser.add_argument(
        "--standby",
        action="store_true",
        help="follow the leader, warmed up, and lead once no other job leads",
    )
    options = parser.parse_args()
    if options.standby and (options.once or options.take_over):
        parser.error("--standby goes without --once and --take-over")
    return options


def require_ticks(settings: Settings) -> None:
    """Raise SettingError if leaders send no ticks: a standby could not know that one is gone."""
    if not settings.stream.tick_interval_ms:
        raise SettingError(
            "stream.tick_interval_ms",
            0,
            "more than 0 for --standby: a job that stands by follows the leader's ticks",
        )


def main() -> int:
    """Run the job and return the exit code.

    A foreseen error becomes one line; an unforeseen one is raised with its trace.
    """
    options = parse_arguments()
    set_up()
    # spark-submit's JVM has started this process.
    lower_compiler_priority(os.getppid())
    # Until Kafka answers, its client logs nothing: the error of `prepare_topics` is enough.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with StopRequest() as stop:
        try:
            balance(options, stop)
        except Exception as error:
            # Errors after a request to stop are expected.
            if stop:
                return 0
            if (found := describe_error(error)) is None:
                raise
            return print_end(*found)
    return 0


def start_session(settings: Settings) -> Future[SparkSession]:
    """Start the Spark session in a thread, while this one imports the stream and asks Kafka.

    A process that ends meanwhile doesn't wait for it.
    """
    # PySpark's modules import each other, so two threads must not import them at the same time.
    for name in ("pyspark.sql.classic.dataframe", "pyspark.sql.streaming"):
        import_module(name)
    from lb_stream.job.first_batch import start_workers
    from lb_stream.job.session import spark_session

    session: Future[SparkSession] = Future()

    def start() -> None:
        try:
            session.set_result(spark_session(settings, start_workers))
        except BaseException as error:  # whoever asks for the session gets it
            session.set_exception(error)

    Thread(target=start, name="spark", daemon=True).start()
    return session


def print_end(line: str, code: int) -> int:
    """Print the reason of the job's end, and return the exit code."""
    print(f"balance.py: {shown(hide(line), NEW_LINE)}", file=sys.stderr, flush=True)
    return code


def balance(options: argparse.Namespace, stop: StopRequest) -> None:
    """Read the settings and run the stream until it ends or a stop is requested."""
    loaded = load(options.config, options.broker_conf, options.set)
    settings = loaded.settings
    for warning in loaded.warnings:
        logging.getLogger("balance").warning("%s", warning)
    require_job_key(settings)
    if unsigned := list_unsigned(settings):
        logging.getLogger("balance").warning(
            "%s are not signed: whoever may write to the topics speaks for any broker and user "
            "(docs/security.md)",
            " and ".join(unsigned),
        )
    load_rights(settings.security)
    if has_unproven_names(settings):
        logging.getLogger("balance").warning(
            "security.rights counts in the name that a command's sender gives: "
            "security.commands = signed proves it (docs/security.md)"
        )
    if options.standby:
        require_ticks(settings)
    require_telemetry(settings.otel, "the job")
    from lb_stream.io.without_pandas import keep_pandas_out

    keep_pandas_out()
    session = start_session(settings)

    from lb_stream.job.kafka_checks import prepare_topics

    prepare_topics(settings, options.take_over, options.standby)
    logging.getLogger("kafka").setLevel(logging.WARNING)

    from lb_stream.io.leadership.membership import Member
    from lb_stream.job.first_batch import prepare_first_batch
    from lb_stream.job.leading import lead, stand_by
    from lb_stream.job.running import Stuck

    member = Member(settings, leads=not options.standby)
    if options.take_over:
        member.took_over = "leads: it was started with --take-over"
    if settings.stream.tick_interval_ms and not options.once:
        member.start()
    spark = session.result()
    logging.getLogger("balance").info("Spark is up")
    try:
        if options.standby:
            stand_by(spark, settings, member, lambda: bool(stop))
        else:
            prepare_first_batch(spark)
            lead(spark, settings, member, options.once, lambda: bool(stop))
    except Stuck as error:
        # An orderly end would wait for the batch that doesn't end.
        os._exit(print_end(str(error), 1))
    finally:
        if stop:
            logging.getLogger("balance").info("stopping")
        member.stop()
        with suppress(Exception):  # the JVM may have ended already
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
