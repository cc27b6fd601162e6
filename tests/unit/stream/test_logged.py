"""A logged batch, as all that follows from it reads it."""

import pyarrow as pa

from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.outbox import _records
from lb_stream.stream.ports import Logged

COLUMNS = {"cluster": "eu", "now_ms": 5, "decisions": "[]", "results": "[]"}
OWNED = '[{"cluster":"eu","bundle":"t/n/0x00000000_0xffffffff","state":"Owned","version":1}]'


def test_a_column_is_parsed_once_and_who_publishes_it_leaves_it_as_it_is() -> None:
    logged = Logged(3, pa.Table.from_pylist([COLUMNS | {"ownership": OWNED}]))
    ((record,),) = logged.entries("ownership")
    ((_, _, published, _),) = _records(logged, Settings().topics)
    assert '"watermark":3' in str(published)
    assert logged.entries("ownership")[0][0] is record and "watermark" not in record
