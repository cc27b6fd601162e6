"""What is looked at once Spark is there."""

import pytest
from pyspark.sql import SparkSession

from lb_stream.job.session import require_file_system
from lb_stream.store import Store
from lb_stream.stream.ports import FatalError

pytestmark = pytest.mark.jvm


def test_a_checkpoint_that_spark_cannot_write_is_said_in_one_line_with_what_to_do(
    spark: SparkSession,
) -> None:
    for known in (
        "/some/folder",
        "file:///some/folder",
    ):
        require_file_system(spark, Store.at(known))
    with pytest.raises(
        FatalError,
        match=r"s3://b/folder: Spark has no file system for s3a:// .* `lbctl jars fetch --with s3`",
    ) as error:
        require_file_system(spark, Store.at("s3://b/folder"))
    assert "\n" not in str(error.value)
