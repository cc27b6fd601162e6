"""Why crc32c is a dependency: kafka-python checks every record batch, in Python when that package
is missing."""

import json
from collections.abc import Iterator

from crc32c import crc32c
from kafka.record._crc32c import crc as crc32c_in_python

from tests.bench import Sides, side_by_side


@side_by_side("checksum_of_a_report", ours="crc32c (C)", other="kafka-python's own")
def checksum_of_a_report() -> Iterator[Sides]:
    bundles = {
        f"tenant/space/0x{number:08x}_0x{number + 1:08x}": {"msgRateIn": number / 7}
        for number in range(1_000)
    }
    report = json.dumps(bundles).encode()
    yield Sides(lambda: crc32c(report), lambda: crc32c_in_python(report))
