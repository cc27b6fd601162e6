"""The AsyncAPI document: valid, complete, and in agreement with rights, schemas and topics."""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from lb_stream.access.asyncapi import build_document, find_roles, find_senders
from lb_stream.access.roles import ROLES
from lb_stream.contracts.columnar import CONTENT_TYPE
from lb_stream.contracts.reports import AGENT_KINDS
from lb_stream.contracts.schemas import BINARY_RECORDS, FOLDER, RECORDS, RecordSchema
from lb_stream.contracts.topics import TOPICS
from lb_stream.io.kafka.topics import topic_specs

PUBLISHED = Path(__file__).parents[2] / "data" / "asyncapi" / "3.0.0.schema.json.gz"
"""schemas/3.0.0-without-$id.json of the npm package @asyncapi/specs 6.11.1 (Apache-2.0)."""
PUBLISHED_SHA256 = "abe96881dbfaad495ccbb6bd8d3fb43ca18a13b9d7564849ccb66f39d5e5b20f"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return build_document()


def resolve(document: dict[str, Any], reference: str) -> dict[str, Any]:
    """Return what a reference within the document names."""
    found = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def test_the_document_fits_the_published_schema_of_asyncapi(document: dict[str, Any]) -> None:
    published = gzip.decompress(PUBLISHED.read_bytes())
    assert hashlib.sha256(published).hexdigest() == PUBLISHED_SHA256
    validator = Draft7Validator(json.loads(published))
    assert [error.json_path for error in validator.iter_errors(document)] == []
    assert not validator.is_valid(document | {"channels": {"reports": {"address": 7}}})


def test_every_reference_leads_to_a_message_or_to_a_file_of_the_folder(
    document: dict[str, Any],
) -> None:
    for name, channel in document["channels"].items():
        for message, reference in channel["messages"].items():
            assert resolve(document, reference["$ref"])["name"] == message, name
    for operation in document["operations"].values():
        assert resolve(document, operation["channel"]["$ref"])["messages"]
        for reference in operation["messages"]:
            assert resolve(document, resolve(document, reference["$ref"])["$ref"])
    for message in document["components"]["messages"].values():
        if message["contentType"] == CONTENT_TYPE:
            continue
        schema = message["payload"]["schema"]
        (file,) = {part["$ref"] for part in schema.get("anyOf", [schema]) if "$ref" in part}
        assert (FOLDER / file).is_file()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_the_example_of_a_message_has_headers_that_fit_their_schema(
    record: RecordSchema, document: dict[str, Any]
) -> None:
    message = document["components"]["messages"][record.name]
    (example,) = message["examples"]
    Draft202012Validator(message["headers"]).validate(example.get("headers", {}))
    assert ("headers" in example) == (record.topic in ("reports", "decisions"))
    signature = {"lb-key", "lb-signed-us", "lb-signature"}
    others = message["headers"]["properties"].keys() - record.headers.keys() - {"traceparent"}
    assert others == signature


def test_a_record_is_sent_by_those_who_have_the_right_to_write_its_topic() -> None:
    for topic in TOPICS:
        senders = [find_senders(record) for record in RECORDS if record.topic == topic.setting]
        assert {role for roles in senders for role in roles} == set(find_roles(topic, "Write"))
    assert set(ROLES["create"]) == {topic.setting for topic in TOPICS}


def test_the_kinds_in_headers_are_those_that_the_stream_reads() -> None:
    records = [*RECORDS, *BINARY_RECORDS]
    kinds = {record.headers["kind"] for record in records if record.topic == "reports"}
    assert kinds == {"report", "roster", "columns", "delta", *AGENT_KINDS}


def test_a_binary_message_names_its_columns_and_its_kind(document: dict[str, Any]) -> None:
    for record in BINARY_RECORDS:
        message = document["components"]["messages"][record.name]
        assert message["contentType"] == CONTENT_TYPE
        assert [column["name"] for column in message["x-arrow-columns"]] == record.schema.names
        assert message["headers"]["properties"]["kind"] == {"type": "string"} | {
            "const": record.headers["kind"]
        }


def test_a_channel_is_cleaned_up_as_its_topic_is_created(document: dict[str, Any]) -> None:
    for spec in topic_specs():
        (channel,) = (
            channel for channel in document["channels"].values() if channel["address"] == spec.name
        )
        kafka = channel["bindings"]["kafka"]
        assert kafka["topicConfiguration"]["cleanup.policy"] == [spec.cleanup_policy]
        assert kafka["partitions"] == spec.partitions
    compacted = [spec.name for spec in topic_specs() if spec.cleanup_policy == "compact"]
    assert compacted == ["lb-ownership"]


def test_the_job_answers_commands_and_receives_the_ticks_of_other_jobs(
    document: dict[str, Any],
) -> None:
    operations = document["operations"]
    assert operations["receive-commands"]["reply"]["channel"] == {"$ref": "#/channels/results"}
    messages = [entry["$ref"] for entry in operations["receive-leadership"]["messages"]]
    assert [name.rpartition("/")[2] for name in messages] == [
        "tick",
        "standby",
        "claim",
        "hand-over",
    ]
    assert [name for name, operation in operations.items() if operation["action"] == "send"] == [
        "send-commands",
        "send-results",
        "send-decisions",
        "send-ownership",
    ]
