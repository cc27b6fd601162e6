"""Ids of traces follow from names, and the header traceparent takes nothing but its own form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.contracts.trace_ids import (
    MAX_HEADER_BYTES,
    TraceParent,
    derive_span_id,
    derive_trace_id,
    move_trace_id,
    parse_traceparent,
    published_span,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_the_ids_of_a_decision_are_those_that_were_fixed_once() -> None:
    span = published_span("eu-1:42:0", "eu-1:43:1")
    assert span.encode() == b"00-fce30593fd210d3e0f99b6ece5247f59-621ab889ad2b35b1-01"


@given(st.lists(st.text(), min_size=1, max_size=4), st.lists(st.text(), min_size=1, max_size=4))
def test_different_names_have_different_ids_and_the_same_names_the_same(
    names: list[str], others: list[str]
) -> None:
    assert (derive_trace_id(*names) == derive_trace_id(*others)) == (names == others)
    assert (derive_span_id(TRACE, *names) == derive_span_id(TRACE, *others)) == (names == others)


@given(st.text(), st.booleans())
def test_a_header_is_read_as_it_was_written(name: str, sampled: bool) -> None:
    trace = move_trace_id(name)
    parent = TraceParent(trace, derive_span_id(trace, name), sampled)
    assert parse_traceparent(parent.encode()) == parent


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"garbage",
        b"\xff\xfe\x00",
        b"0" * 10_000,
        f"00-{TRACE}-{SPAN}".encode(),
        f"00-{TRACE}-{SPAN}-01-more".encode(),
        f"ff-{TRACE}-{SPAN}-01".encode(),
        f"00-{TRACE.upper()}-{SPAN}-01".encode(),
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{TRACE}-{SPAN}-01\n".encode(),
        f"01-{TRACE}-{SPAN}-01-{'x' * MAX_HEADER_BYTES}".encode(),
    ],
)
def test_a_header_of_another_form_is_none(value: bytes | None) -> None:
    assert parse_traceparent(value) is None


@given(st.binary(max_size=300))
def test_no_bytes_make_the_parser_fail(value: bytes) -> None:
    found = parse_traceparent(value)
    assert found is None or len(value) >= len(found.encode())


def test_a_header_of_a_later_version_may_have_more_at_its_end() -> None:
    found = parse_traceparent(f"01-{TRACE}-{SPAN}-03-later".encode())
    assert found == TraceParent(TRACE, SPAN, True)
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-02".encode()) == TraceParent(TRACE, SPAN, False)
