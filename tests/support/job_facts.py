"""What is known of a job that is well."""

from lb_stream.query.health import (
    JobFacts,
)

NOW = 1_767_225_600_000
JOB = JobFacts(
    "lb", 4, "h1", 77, NOW - 3_600_000, True, "process 77 on this machine", NOW - 2_000, 0
)
