"""Base classes of the wire models and the one way to write canonical JSON."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat
from pydantic.alias_generators import to_camel

GREATEST = 1e18
"""What no rate, throughput or usage reaches: an exabyte a second. Sums and products of greater numbers would be no numbers any more."""

NonNegative = Annotated[FiniteFloat, Field(ge=0, le=GREATEST)]
"""A rate (messages/s) or throughput (bytes/s): finite and not negative."""

Signed = Annotated[FiniteFloat, Field(ge=-GREATEST, le=GREATEST)]
"""A usage or a limit."""

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
CLUSTER_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
"""Names of clusters and pipelines: they become parts of keys, paths and ids."""

LARGEST_RECORD_BYTES = 10 * 1024 * 1024
"""What a record may have: a report of 10 000 bundles is 2–3 MB."""

LONGEST_BROKER = 1_000
"""Characters of a broker's name: a host's has 253 at most."""

LONGEST_NAMESPACE = 900
"""Characters of `<tenant>/<namespace>`: bundles named after it are in every record about them, and a record that is too large for Kafka
would keep back all others of its batch."""

Millis = Annotated[int, Field(ge=0, le=2**63 - 1, description="milliseconds since the epoch, UTC")]


class PulsarRecord(BaseModel):
    """A record in the broker's own words: camelCase, unknown fields ignored, missing ones defaulted, types strict."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore", frozen=True, strict=True
    )


class OwnRecord(BaseModel):
    """A record that this project defines: snake_case, unknown fields ignored (so that old readers survive new writers)."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    def to_json(self) -> str:
        """Canonical JSON of the record: the same record always gives the same bytes."""
        return canonical_json(self.model_dump(mode="json"))


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces; floats in their shortest form that reads back exactly; NaN is an error."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
