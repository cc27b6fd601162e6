"""Lines of a file of load reports: whose they are, when, and their bytes unchanged."""

import json

import pytest

from lb_stream.io.local.report_lines import Report, Unsendable, read_line

ODD = (
    b'{"webServiceUrl" : "http://b-1:8080",  "msgRateIn":1.50, "a":"\\u00e9\xc3\xa9", "big": '
    b'1e3,\t"lastUpdate": 70}'
)


def test_a_plain_report_is_the_line_itself_and_its_broker_is_in_its_address() -> None:
    assert read_line(b"  " + ODD + b"\r\n") == Report("b-1:8080", ODD, 70.0)


def test_a_simple_report_names_its_broker_itself() -> None:
    line = b'{"name":"b-2:8080","webServiceUrl":"http://elsewhere:1","timestamp":9}'
    assert read_line(line) == Report("b-2:8080", line, 9.0)


def test_a_tls_address_serves_when_there_is_no_other() -> None:
    line = b'{"webServiceUrl":null,"webServiceUrlTls":"https://b-3:8443","cpu":{}}'
    assert read_line(line) == Report("b-3:8443", line, None)


def test_a_captured_report_leaves_its_wrapper_byte_for_byte() -> None:
    line = b'{"capturedAtMs": 5, "broker": "b-9:1", "report": ' + ODD + b' , "more": 1}'
    assert read_line(line) == Report("b-9:1", ODD, 5.0)


def test_a_stored_report_is_that_of_the_broker_in_its_path() -> None:
    line = (
        b'{"capturedAtMs": 5.5, "path": "/loadbalance/brokers/b-9:1", "version": 1, "data": '
        + ODD
        + b"}"
    )
    assert read_line(line) == Report("b-9:1", ODD, 5.5)


@pytest.mark.parametrize(
    "line",
    [
        {"path": "/loadbalance/leader", "data": {"brokerId": "b"}},
        {"path": "/loadbalance/brokers/b-9:1", "removed": True},
        {"path": "/namespace/a/b/0x00000000_0xffffffff", "data": {}},
        {"path": 7, "data": {}},
    ],
)
def test_other_things_from_the_metadata_store_are_no_reports(line: dict[str, object]) -> None:
    assert read_line(json.dumps(line).encode()) is None


def test_an_empty_line_is_no_report() -> None:
    assert read_line(b" \n") is None


def test_a_report_that_does_not_say_whose_it_is_takes_the_given_broker() -> None:
    assert read_line(b'{"cpu":{}}', broker="b-4:8080") == Report("b-4:8080", b'{"cpu":{}}', None)
    assert read_line(b'{"name":"own:1"}', broker="b-4:8080") == Report(
        "own:1", b'{"name":"own:1"}', None
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b'{"a": NaN}', "not a JSON object"),
        (b'{"name": "\xff"}', "not a JSON object"),
        (b'{"cpu":{}}', "give --broker"),
        (b'{"name": 5}', "give --broker"),
        (b'{"webServiceUrl": "http://[::1"}', "give --broker"),
        (b'{"report": {}, "capturedAtMs": 1}', "without its broker"),
        (b'{"report": null, "broker": "b:1"}', "the report is null"),
        (
            b'{"report": {}, "topic": "non-persistent://p/s/t", "key": "b:1"}',
            "extensible load manager",
        ),
        (
            b'{"report": null, "topic": "non-persistent://p/s/t", "key": "b:1"}',
            "extensible load manager",
        ),
    ],
)
def test_a_line_that_cannot_be_sent_says_why(line: bytes, why: str) -> None:
    with pytest.raises(Unsendable, match=why):
        read_line(line)
