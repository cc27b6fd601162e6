"""Lookups over HTTP, for clients in any language.

`GET /lookup?topic=TOPIC&cluster=CLUSTER` answers with a JSON object (`client.LookupResult`):

- 200: `broker` serves the topic
- 202: no broker serves it yet, ask again in a moment
- 400: no topic's or cluster's name
- 404: there is no such namespace, scalable topic or path
- 503: the answer would be too old, or Pulsar doesn't name a scalable topic's segments

For a scalable topic it is a `scalable.ScalableResult`, with an answer for each segment.

`GET /health` says how old answers are: 200, or 503 if they are too old.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from urllib.parse import parse_qs, urlsplit

from lb_stream.contracts.servers import LookupSettings
from lb_stream.core.model.topics import is_scalable
from lb_stream.io.local.http_server import HttpAnswer, HttpServer
from lb_stream.io.local.tls import ServerTls
from lb_stream.io.lookup.client import Lookup, LookupFailed, LookupResult
from lb_stream.io.lookup.scalable import FindSegments, UnknownScalable, find_scalable

PATHS = ("/lookup?topic=TOPIC&cluster=CLUSTER", "/health")


def serve_lookups(
    address: str,
    lookup: Lookup,
    find_segments: FindSegments | None = None,
    settings: LookupSettings | None = None,
    tls: ServerTls | None = None,
) -> HttpServer:
    """Answer lookups until stopped. `address`: host:port. Raises OSError if it is not available.

    `find_segments` None: scalable topics are refused, their segments are not.
    """
    return HttpServer(
        address, lambda path: _answer(lookup, find_segments, path), settings, tls, ("/health",)
    )


def _answer(lookup: Lookup, find_segments: FindSegments | None, path: str) -> HttpAnswer:
    try:
        parts = urlsplit(path)
    except ValueError as error:  # an IPv6 address without its closing bracket
        return _json(400, {"error": f"{path!r}: {error}"})
    page = parts.path.rstrip("/")
    if page == "/health":
        return _health(lookup)
    if page != "/lookup":
        return _json(404, {"error": f"path = {parts.path!r}: expected {' or '.join(PATHS)}"})
    given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if "topic" not in given or not given.keys() <= {"topic", "cluster"}:
        expected = "topic=TOPIC and, if there are several clusters, cluster=CLUSTER"
        return _json(400, {"error": f"query = {parts.query!r}: expected {expected}"})
    topic, cluster = given["topic"], given.get("cluster")
    try:
        if is_scalable(topic) and find_segments is not None:
            scalable = find_scalable(lookup, find_segments, topic, cluster)
            return _json(200 if scalable.is_served else 202, asdict(scalable))
        found = lookup.find(topic, cluster)
    except ValueError as error:
        return _json(400, {"error": str(error)})
    except UnknownScalable as error:
        return _json(404, {"error": str(error)})
    except LookupFailed as error:
        return _json(503, {"error": str(error)})
    return _json(_status(found), asdict(found))


def _status(found: LookupResult) -> int:
    if found.broker is not None:
        return 200
    unknown = found.bundle is None and (
        found.owner_request is None or found.owner_request.outcome == "refused"
    )
    return 404 if unknown else 202


def _health(lookup: Lookup) -> HttpAnswer:
    age_ms = lookup.age_ms
    fresh = age_ms is not None and age_ms <= lookup.config.max_age_s * 1_000
    clusters, bundles = lookup.known_clusters()
    content = {
        "age_ms": age_ms,
        "max_age_ms": int(lookup.config.max_age_s * 1_000),
        "clusters": clusters,
        "bundles": bundles,
    }
    return _json(200 if fresh else 503, content)


def _json(status: int, content: Mapping[str, object]) -> HttpAnswer:
    return HttpAnswer(status, "application/json", json.dumps(content).encode() + b"\n")
