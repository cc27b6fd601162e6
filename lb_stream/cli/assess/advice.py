"""What to do where a cluster's admin API gives no usable answer."""

from __future__ import annotations

import http.client
import socket
import ssl

from lb_stream.agent.adapter import BrokerError
from lb_stream.agent.pulsar.admin import (
    REDIRECTS,
    AdminError,
    AdminRefused,
    AdminSettings,
    AdminTimeout,
    UnusableAnswer,
)

_ADDRESS = "give the admin API of a broker, which is at port 8080 as a rule"
_BY_STATUS = {
    404: _ADDRESS,
    407: "a proxy in between wants a login: run this where the brokers are reached directly",
    429: "give a lower --max-requests",
    **dict.fromkeys(
        (500, 502, 503, 504),
        "the broker, or a proxy in between, can't serve it now: give another broker, or try later",
    ),
    **dict.fromkeys(
        (301, 302, 303),
        "a proxy or a page for logins answers, no broker: give a broker's own address",
    ),
    **dict.fromkeys(
        REDIRECTS,
        "the cluster advertises an address that leads back or is less safe: give another broker, "
        "or https:// if brokers have TLS",
    ),
}
"""Status → what to do. Those of 401 and 403 are part of the error's text."""


def advise(error: BrokerError, settings: AdminSettings) -> str:
    """Return what to do about an error, to be put after its text; empty if nothing is known."""
    if isinstance(error.__cause__, BrokerError):  # no broker answers under its own name
        inner = advise(error.__cause__, settings)
        where = "run this where brokers' own names lead to them"
        return f"{inner}, or {where}" if inner else f": {where}"
    if isinstance(error, AdminTimeout):
        return f" ({settings.read_timeout_s:g} s): raise --read-timeout"
    if isinstance(error, UnusableAnswer):
        return f": {_ADDRESS}"
    if isinstance(error, AdminError) and error.status:
        found = _BY_STATUS.get(error.status)
        return "" if found is None else f": {found}"
    match error.__cause__:
        case ssl.SSLCertVerificationError():
            return ": give --ca-file; for another host name only, --no-verify-hostname"
        case ssl.SSLError():
            return ": give http:// if that port has no TLS, and --cert-file if brokers want one"
        case socket.gaierror():
            return ": give a name that this machine knows"
        case http.client.HTTPException() | ConnectionError() if settings.url.startswith("http:"):
            more = "" if isinstance(error, AdminRefused) else "; with TLS, https://"
            return f": {_ADDRESS}{more}"
        case http.client.HTTPException() | ConnectionError():
            return ": give the admin API of a broker, which is at port 8443 with TLS as a rule"
        case OSError():
            return ": run this where the brokers can be reached"
    return ""
