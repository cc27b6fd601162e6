"""A small server that answers as S3 does, in memory: for tests and benchmarks of what is kept in an
object store.

It knows what delta-rs, object_store and Hadoop's s3a ask for: objects whole and by range, lists,
copies, uploads in parts, deletes of many, and writes on a condition (If-None-Match, If-Match),
which are atomic. It believes every signature. Every request is noted, so that they can be counted;
writes can be made to fail, before or after they are done. It is a process of its own, because some
calls of delta-rs keep Python's lock while they wait for an answer. `python -m
tests.support.s3_server --port 9000` runs it alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from urllib.request import urlopen
from xml.etree import ElementTree
from xml.sax.saxutils import escape

ACCESS_KEY, SECRET_KEY = "test-access", "test-secret-key"
CONTROL = "-"
"""The bucket that is none: what is asked of it is said to the server itself."""
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
MOST_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Request:
    """One request: what kind (GET, HEAD, PUT, PUT-COPY, LIST, DELETE, …), of which key, and the
    answer's status."""

    kind: str
    key: str
    status: int
    agent: str


@dataclass(frozen=True, slots=True)
class S3Object:
    """What is kept under a key."""

    body: bytes
    etag: str
    changed_s: float


@dataclass(slots=True)
class Refused(Exception):
    """An answer other than a good one."""

    status: int
    code: str


@dataclass(slots=True)
class Buckets:
    """All that is kept: bucket/key → object. One lock, so that every write is atomic."""

    objects: dict[str, S3Object] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    failing: list[tuple[str, str]] = field(default_factory=list)
    """What becomes of the next writes: of what keys (a part of them), and `before` or `after` they
    are done the answer is an error."""

    def fails(self, key: str, when: str) -> bool:
        """Whether this write is to fail at this moment; once."""
        with self.lock:
            found = next((one for one in self.failing if one[0] in key and one[1] == when), None)
            if found is not None:
                self.failing.remove(found)
            return found is not None

    def put(self, key: str, body: bytes, conditions: Mapping[str, str]) -> S3Object:
        """Keep an object, if the conditions hold."""
        made = S3Object(
            body, f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"', time.time()
        )
        with self.lock:
            there = self.objects.get(key)
            if conditions.get("if-none-match") == "*" and there is not None:
                raise Refused(412, "PreconditionFailed")
            if (wanted := conditions.get("if-match")) is not None and (
                there is None or there.etag.strip('"') != wanted.strip('"')
            ):
                raise Refused(412, "PreconditionFailed")
            self.objects[key] = made
        return made

    def get(self, key: str) -> S3Object:
        """What is there; Refused 404 where there is nothing."""
        with self.lock:
            if (found := self.objects.get(key)) is None:
                raise Refused(404, "NoSuchKey")
            return found

    def delete(self, key: str) -> None:
        """Remove an object, if it is there."""
        with self.lock:
            self.objects.pop(key, None)

    def names(self, prefix: str) -> list[str]:
        """All keys that begin so, sorted."""
        with self.lock:
            return sorted(key for key in self.objects if key.startswith(prefix))


class Handler(BaseHTTPRequestHandler):
    """Answers one connection's requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    buckets: Buckets

    def log_message(self, *_: object) -> None:
        """Say nothing: what has been asked is in `Buckets.requests`."""

    def do_GET(self) -> None:
        bucket, key, query = self._asked()
        if bucket == CONTROL:
            self._said(key, query)
        elif key:
            self._answered("GET", lambda: self._get(f"{bucket}/{key}"))
        else:
            self._answered("LIST", lambda: self._list(bucket, query))

    def do_HEAD(self) -> None:
        bucket, key, _ = self._asked()
        self._answered("HEAD", lambda: self._get(f"{bucket}/{key}") if key else (200, {}, b""))

    def do_PUT(self) -> None:
        bucket, key, query = self._asked()
        body = self._body()
        if not key:
            self._answered("PUT-BUCKET", lambda: (200, {}, b""))
        elif "uploadId" in query:
            self._answered("PUT-PART", lambda: self._put_part(query, body))
        elif source := self.headers.get("x-amz-copy-source"):
            self._answered(
                "PUT-COPY", lambda: self._copy(f"{bucket}/{key}", unquote(source).lstrip("/"))
            )
        else:
            self._answered("PUT", lambda: self._put(f"{bucket}/{key}", body))

    def do_POST(self) -> None:
        bucket, key, query = self._asked()
        body = self._body()
        if "delete" in query:
            self._answered("DELETE", lambda: self._delete_many(bucket, body))
        elif "uploads" in query:
            self._answered("POST-UPLOAD", lambda: self._begin_upload(bucket, key))
        else:
            self._answered("POST-COMPLETE", lambda: self._complete(f"{bucket}/{key}", query))

    def do_DELETE(self) -> None:
        bucket, key, query = self._asked()
        self._answered("DELETE", lambda: self._delete(f"{bucket}/{key}", query))

    # --- what is asked, what is answered ---

    def _asked(self) -> tuple[str, str, dict[str, str]]:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        return bucket, key, dict(parse_qsl(parts.query, keep_blank_values=True))

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("transfer-encoding", ""):
            raw = b"".join(self._chunks())
        else:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        return (
            unsigned(raw)
            if self.headers.get("x-amz-content-sha256", "").startswith("STREAMING")
            else raw
        )

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _answered(
        self, kind: str, answer: Callable[[], tuple[int, Mapping[str, str], bytes]]
    ) -> None:
        key = unquote(urlsplit(self.path).path).lstrip("/")
        try:
            if kind == "PUT" and self.buckets.fails(key, "before"):
                raise Refused(503, "SlowDown")
            status, headers, body = answer()
            if kind == "PUT" and self.buckets.fails(key, "after"):
                raise Refused(500, "InternalError")
        except Refused as refused:
            status, headers = refused.status, {}
            body = (
                "<?xml "
                f"version='1.0'?><Error><Code>{refused.code}</Code><Message>{refused.code}</Message></Error>"
            ).encode()
        self.buckets.requests.append(Request(kind, key, status, self.headers.get("user-agent", "")))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers and status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # whoever asked may have heard enough
                self.wfile.write(body)

    def _said(self, what: str, query: Mapping[str, str]) -> None:
        """What the tests say to the server: `requests` gives those since the last time, `fail`
        makes the next write of a key fail."""
        made: list[Request] = []
        if what == "requests":
            made, self.buckets.requests = self.buckets.requests, []
        else:
            self.buckets.failing.append((query["key"], query["when"]))
        body = json.dumps([asdict(one) for one in made]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _get(self, key: str) -> tuple[int, Mapping[str, str], bytes]:
        found = self.buckets.get(key)
        headers = {
            "ETag": found.etag,
            "Last-Modified": formatdate(found.changed_s, usegmt=True),
            "Accept-Ranges": "bytes",
        }
        size = len(found.body)
        if self.command == "HEAD":
            return 200, headers | {"Content-Length": str(size)}, b""
        if asked := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("range", "")):
            first = int(asked[1]) if asked[1] else max(0, size - int(asked[2]))
            last = min(int(asked[2]), size - 1) if asked[1] and asked[2] else size - 1
            if first >= size:
                raise Refused(416, "InvalidRange")
            return (
                206,
                headers | {"Content-Range": f"bytes {first}-{last}/{size}"},
                found.body[first : last + 1],
            )
        return 200, headers, found.body

    def _put(self, key: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        made = self.buckets.put(
            key, body, {name.lower(): value for name, value in self.headers.items()}
        )
        return 200, {"ETag": made.etag}, b""

    def _copy(self, key: str, source: str) -> tuple[int, Mapping[str, str], bytes]:
        made = self.buckets.put(key, self.buckets.get(source).body, {})
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(made.changed_s))
        return (
            200,
            {},
            xml(
                "CopyObjectResult",
                f"<ETag>{escape(made.etag)}</ETag><LastModified>{when}</LastModified>",
            ),
        )

    def _delete(self, key: str, query: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        if "uploadId" in query:
            self.buckets.uploads.pop(query["uploadId"], None)
        else:
            self.buckets.delete(key)
        return 204, {}, b""

    def _delete_many(self, bucket: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        keys = [
            one.text or "" for one in ElementTree.fromstring(body).iter() if one.tag.endswith("Key")
        ]
        for key in keys:
            self.buckets.delete(f"{bucket}/{key}")
        return (
            200,
            {},
            xml(
                "DeleteResult",
                "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys),
            ),
        )

    def _begin_upload(self, bucket: str, key: str) -> tuple[int, Mapping[str, str], bytes]:
        number = uuid.uuid4().hex
        self.buckets.uploads[number] = {}
        said = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key><UploadId>{number}</UploadId>"
        return 200, {}, xml("InitiateMultipartUploadResult", said)

    def _put_part(
        self, query: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        self.buckets.uploads[query["uploadId"]][int(query["partNumber"])] = body
        return 200, {"ETag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'}, b""

    def _complete(self, key: str, query: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        parts = self.buckets.uploads.pop(query["uploadId"])
        body = b"".join(parts[number] for number in sorted(parts))
        made = self.buckets.put(
            key, body, {name.lower(): value for name, value in self.headers.items()}
        )
        bucket, _, name = key.partition("/")
        said = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(name)}</Key><ETag>{escape(made.etag)}</ETag>"
        return 200, {}, xml("CompleteMultipartUploadResult", said)

    def _list(self, bucket: str, query: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        """ListObjectsV2 and V1: names in order, those behind the delimiter put together."""
        if query.keys() & {"location", "versioning", "uploads", "acl"}:
            return 200, {}, xml(f"{next(iter(query)).capitalize()}Result", "")
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = (
            query.get("continuation-token") or query.get("start-after") or query.get("marker") or ""
        )
        most = min(int(query.get("max-keys", MOST_LISTED)), MOST_LISTED)
        shown, folders, last, cut = [], list[str](), "", False
        for full in self.buckets.names(f"{bucket}/{prefix}"):
            key = full[len(bucket) + 1 :]
            folder = (
                prefix + key[len(prefix) :].partition(delimiter)[0] + delimiter
                if delimiter and delimiter in key[len(prefix) :]
                else ""
            )
            if key <= after or (folder and (folder in folders or after.startswith(folder))):
                continue
            if len(shown) + len(folders) >= most:
                cut = True
                break
            last = f"{folder}\U0010fffd" if folder else key
            if folder:
                folders.append(folder)
            else:
                shown.append((key, self.buckets.objects.get(full)))
        return 200, {}, xml("ListBucketResult", _listed(query, shown, folders, last if cut else ""))


def _listed(
    query: Mapping[str, str],
    shown: list[tuple[str, S3Object | None]],
    folders: list[str],
    next_: str,
) -> str:
    coded = (lambda text: escape(quote(text))) if query.get("encoding-type") == "url" else escape
    said = [
        f"<Prefix>{coded(query.get('prefix', ''))}</Prefix><MaxKeys>{MOST_LISTED}</MaxKeys><KeyCount>{len(shown) + len(folders)}</KeyCount>"
    ]
    said.append(f"<IsTruncated>{str(bool(next_)).lower()}</IsTruncated>")
    if next_:
        said.append(
            f"<NextContinuationToken>{coded(next_)}</NextContinuationToken><NextMarker>{coded(next_)}</NextMarker>"
        )
    for key, one in shown:
        if one is not None:
            when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(one.changed_s))
            said.append(
                f"<Contents><Key>{coded(key)}</Key><LastModified>{when}</LastModified><ETag>{escape(one.etag)}</ETag>"
                f"<Size>{len(one.body)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            )
    said += [
        f"<CommonPrefixes><Prefix>{coded(folder)}</Prefix></CommonPrefixes>" for folder in folders
    ]
    return "".join(said)


def xml(name: str, content: str) -> bytes:
    """An answer's text."""
    return f'<?xml version="1.0" encoding="UTF-8"?><{name} xmlns="{NAMESPACE}">{content}</{name}>'.encode()


def unsigned(body: bytes) -> bytes:
    """A body that was signed chunk by chunk (aws-chunked): `SIZE[;chunk-signature=…]`, the chunk,
    and so on; behind it trailers."""
    found, at = [], 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].split(b";")[0], 16)
        if not size:
            return b"".join(found)
        found.append(body[end + 2 : end + 2 + size])
        at = end + 4 + size


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server. `url` is its endpoint."""

    url: str

    def settings(self, bucket: str) -> dict[str, str]:
        """Settings of a job that keeps all that it has in a bucket."""
        options = {f"stream.store_options.{name}": value for name, value in self.options.items()}
        return options | {
            "stream.tables": f"s3://{bucket}/tables",
            "stream.checkpoint": f"s3://{bucket}/checkpoint",
        }

    @property
    def options(self) -> dict[str, str]:
        """What `stream.store_options` needs to reach it."""
        return {
            "aws_endpoint": self.url,
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": "us-east-1",
        }

    def requests(self) -> list[Request]:
        """The requests that there have been since this was asked last."""
        with urlopen(f"{self.url}/{CONTROL}/requests") as answer:
            return [Request(**one) for one in json.load(answer)]

    def fail_next(self, key: str, when: str) -> None:
        """Let the next PUT of a key that holds this text fail, `before` or `after` it is done."""
        urlopen(f"{self.url}/{CONTROL}/fail?key={quote(key)}&when={when}").close()


@contextmanager
def s3_server(host: str = "127.0.0.1", port: int = 0) -> Iterator[S3Server]:
    """A server of one's own, in a process of its own, until the block ends.

    Port 0: any free one.
    """
    command = [
        sys.executable,
        "-m",
        "tests.support.s3_server",
        "--host",
        host,
        "--port",
        str(port),
        "--until-eof",
    ]
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield S3Server(process.stdout.readline().split()[0])
        finally:
            process.terminate()


def main() -> None:
    """Run until somebody ends it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument(
        "--until-eof",
        action="store_true",
        help="end when nobody can write to stdin any more: who started it is gone",
    )
    options = parser.parse_args()
    server = ThreadingHTTPServer(
        (options.host, options.port), type("Own", (Handler,), {"buckets": Buckets()})
    )
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="s3", daemon=True).start()
    print(
        f"http://{options.host}:{server.server_address[1]} access key {ACCESS_KEY}, secret key "
        f"{SECRET_KEY}",
        flush=True,
    )
    if options.until_eof:
        sys.stdin.read()
    else:
        threading.Event().wait()


if __name__ == "__main__":
    main()
