"""Makes the archive of Java's classes, with which a job's JVM starts faster.

`python -m lb_stream.kit.record_classes` runs a job once, with a Kafka broker and folders of its
own, and its JVM writes the archive. If there is one, it does nothing. Jobs run without it, too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from kafka import KafkaProducer

from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.io.local.jars import JarsError, default_folder
from lb_stream.io.local.java import JavaUnfit
from lb_stream.io.local.native_libraries import unpack_libraries
from lb_stream.io.local.processes import locked
from lb_stream.job.submit import PYSPARK, archive_prefix, job_archive, submit_command
from lb_stream.kit.embedded_kafka import EmbeddedKafka, KafkaError

LONGEST_RUN_S = 300
FOLDER = ".recording-"


class RecordingError(RuntimeError):
    """The archive could not be made; the text says why."""


def record_classes(progress: Callable[[str, int, int], None] = lambda *_: None) -> bool:
    """Make the archive for this Java and these jars; return False if it exists.

    The native libraries of Spark's jars are unpacked first, so that no JVM writes its own.
    Archives for earlier contents of PySpark's folder are removed. `progress` takes the present
    step, steps done, steps in all. Raises RecordingError, JarsError, JavaUnfit.
    """
    unpack_libraries()
    archive = job_archive()
    if archive.exists():
        return False
    with locked(default_folder() / ".archive.lock"):
        if archive.exists():
            return False
        for leftover in default_folder().glob(f"{FOLDER}*"):  # of a recording that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=default_folder(), prefix=FOLDER) as place:
            try:
                made = _run_job(Path(place), progress)
            except (KafkaError, subprocess.TimeoutExpired, OSError) as error:
                raise RecordingError(str(error)) from error
            for earlier in default_folder().glob(f"{archive_prefix(PYSPARK)}*"):
                earlier.unlink()
            made.rename(archive)
    return True


def _run_job(place: Path, progress: Callable[[str, int, int], None]) -> Path:
    """Run a job on one report until it ends; return the file that its JVM has written."""
    archive, topics = place / "classes.jsa", TopicSettings()
    progress("a Kafka for it starts", 0, 3)
    with EmbeddedKafka(place / "kafka") as kafka:
        create_topics(kafka.bootstrap, topic_specs(topics))
        with KafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
            producer.send(topics.reports, key=BROKER, value=json.dumps(REPORT).encode())
        settings = {
            "kafka.bootstrap_servers": kafka.bootstrap,
            "stream.tables": place / "tables",
            "stream.checkpoint": place / "checkpoint",
            "stream.metrics_address": "",
        }
        arguments = ["--once"]
        for name, value in settings.items():
            arguments += ["--set", f"{name}={value}"]
        command, environment = submit_command(
            arguments, driver_memory="1g", record=archive, short_lived=True
        )
        progress("a job runs on one report", 1, 3)
        job = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST_RUN_S,
            check=False,
        )
    if job.returncode != 0 or not archive.exists():
        raise RecordingError(f"the job ended with {job.returncode}: {job.stdout[-2000:].strip()}")
    progress("written", 3, 3)
    return archive


BROKER = b"recording/broker-1:8080"
REPORT = {
    "cpu": {"usage": 50.0, "limit": 100.0},
    "msgThroughputIn": 1e6,
    "lastUpdate": 1,
    "lastStats": {
        "acme/orders/0x00000000_0xffffffff": {
            "msgRateIn": 10.0,
            "msgThroughputIn": 1e6,
            "topics": 1,
        }
    },
    "loadReportType": "LocalBrokerData",
}
"""A broker's load report, as a modular load manager sends it."""


def main() -> int:
    """Make the archive and print its path; return 0 also if it fails: jobs only start slower."""
    from lb_stream.io.local.progress import progress

    try:
        with progress("archive of Java's classes", every=1) as advance:
            made = record_classes(advance)
    except (RecordingError, JarsError, JavaUnfit) as error:
        print(f"no archive of Java's classes, so jobs start slower ({error})", file=sys.stderr)
        return 0
    except KeyboardInterrupt:
        print("interrupted; run it again to make it", file=sys.stderr)
        return 130
    size = job_archive().stat().st_size / 1e6
    state = "created" if made else "exists"
    print(f"archive of Java's classes {state}: {job_archive()} ({size:.0f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
