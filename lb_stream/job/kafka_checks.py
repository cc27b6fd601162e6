"""What a job asks Kafka before it reads anything: its rights, its topics, and other jobs."""

from __future__ import annotations

from kafka.errors import KafkaError

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.options import spark_options
from lb_stream.io.kafka.outbox import KafkaUnavailable
from lb_stream.io.kafka.rights import REFUSALS, build_denial, require_job_rights
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.io.leadership.liveness import require_no_leader


def prepare_topics(settings: Settings, take_over: bool, standby: bool) -> None:
    """Check the job's rights and topics, create missing topics, require that no other job runs.

    With `standby`, another job may run. Raises SettingError, TopicMismatch, Refusal, FatalError;
    KafkaUnavailable when Kafka doesn't answer.
    """
    # This reports wrong options before Kafka is asked.
    spark_options(settings)
    where = settings.kafka.bootstrap_servers
    try:
        absent = require_job_rights(settings)
        create_topics(where, topic_specs(settings.topics), settings.kafka.options)
        if absent:
            require_job_rights(settings)
        if not standby:
            require_no_leader(settings, take_over)
    except REFUSALS as error:
        raise build_denial(settings, error) from error
    except KafkaError as error:
        raise KafkaUnavailable(
            f"no Kafka at {where} ({error}): `lbctl kafka start` starts one; "
            "kafka.bootstrap_servers names another"
        ) from error
