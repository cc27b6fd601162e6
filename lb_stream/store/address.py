"""Addresses of folders and their options, as each library that reads and writes there has them.

Options have object_store's names (aws_endpoint, google_service_account, azure_storage_account_key),
which delta-rs and obstore take as they are. Hadoop's s3a, abfs and gs get the options that they
need under Hadoop's names. Options that begin with `fs.` are Hadoop's alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from lb_stream.contracts.keys import SettingError

Kind = Literal["local", "objects"]

LOCAL = ("", "file")
OBJECTS = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "abfs": "abfss",
    "abfss": "abfss",
    "wasb": "abfss",
    "wasbs": "abfss",
}
"""Scheme as it is given → object_store's name of it."""
_HADOOP_SCHEMES = {"s3": "s3a", "wasb": "abfss", "wasbs": "abfss", "abfs": "abfss"}
_EXPECTED = (
    "a folder's path, or an address that begins with file://, s3://, s3a://, gs://, "
    "abfss:// or wasbs://"
)
_URI = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)?$")

_S3A = {
    "access_key_id": "fs.s3a.access.key",
    "secret_access_key": "fs.s3a.secret.key",
    "session_token": "fs.s3a.session.token",
    "endpoint": "fs.s3a.endpoint",
    "endpoint_url": "fs.s3a.endpoint",
    "region": "fs.s3a.endpoint.region",
    "default_region": "fs.s3a.endpoint.region",
}
"""Option without its `aws_` → Hadoop's name."""

_S3A_DEFAULTS = {
    "fs.s3a.performance.flags": "create,delete,mkdir",
    "fs.s3a.input.stream.type": "classic",
}
"""Options of s3a that others may override.

Only the job creates files and folders there, so s3a need not look for them first. Small files are
read by one request, without the library for large ones.
"""
S3A_CHECKPOINTS = "lb_stream.ConditionalCheckpoints"
"""The class of conf/checkpoints.scala: a file of Spark's checkpoint is one PUT or none.

If the file must be new, the PUT has that condition.
"""


class AddressError(SettingError):
    """An address that can't be used; the text has setting, address and what was expected."""


@dataclass(frozen=True, slots=True)
class Address:
    """A folder's address: scheme, authority (bucket, container@account) and path.

    `path`: without a slash at its end; `given`: as people wrote the address.
    """

    scheme: str
    authority: str
    path: str
    given: str = field(default="", compare=False)

    def __truediv__(self, name: str) -> Address:
        """Return the address of a folder in this one."""
        return Address(self.scheme, self.authority, f"{self.path}/{name}", f"{self}/{name}")

    @property
    def root(self) -> Address:
        """Return the address of its bucket, or of this machine."""
        return Address(self.scheme, self.authority, "")

    @property
    def kind(self) -> Kind:
        """Return whether it is on this machine or in an object store."""
        return "local" if self.scheme in LOCAL else "objects"

    @property
    def uri(self) -> str:
        """Return the address for obstore and delta-rs; of this machine an absolute path."""
        if self.kind == "local":
            return self.path
        return f"{OBJECTS[self.scheme]}://{self._native_authority}{self.path}"

    @property
    def for_hadoop(self) -> str:
        """Return the address for Spark and Hadoop."""
        if self.kind == "local":
            return self.path
        return (
            f"{_HADOOP_SCHEMES.get(self.scheme, self.scheme)}://{self._native_authority}{self.path}"
        )

    @property
    def _native_authority(self) -> str:
        """Return the authority; of Hadoop's old wasb addresses that of the account's file service.

        They name its blob service, which has the same files.
        """
        if self.scheme in ("wasb", "wasbs"):
            return self.authority.replace(".blob.", ".dfs.")
        return self.authority

    def __str__(self) -> str:
        """Return the address as it was given."""
        return self.given or self.uri


def parse_address(place: str, setting: str) -> Address:
    """Parse the address that a setting gives; a path of this machine is made absolute.

    Raises AddressError.
    """
    if (found := _URI.match(place)) is None:
        if not place or "://" in place:
            raise AddressError(setting, place, _EXPECTED)
        return Address("", "", str(Path(place).absolute()), place.rstrip("/"))
    scheme, authority, path = found[1].lower(), found[2], (found[3] or "").rstrip("/")
    if scheme == "file":
        if authority not in ("", "localhost"):
            raise AddressError(
                setting, place, f"file:///{authority}{path}: three slashes, then the path"
            )
        return Address("file", "", str(Path(unquote(path) or "/")), place.rstrip("/"))
    if scheme not in OBJECTS:
        raise AddressError(setting, place, _EXPECTED)
    if not authority:
        raise AddressError(setting, place, f"{scheme}://BUCKET/FOLDER")
    if "@" in authority and OBJECTS.get(scheme) in ("s3", "gs"):
        expected = (
            f"{scheme}://BUCKET/FOLDER, and keys in [stream.store_options], or the variables "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
        raise AddressError(setting, f"{scheme}://…@…", expected)
    return Address(scheme, authority, path, place.rstrip("/"))


def object_store_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of obstore: those that are not Hadoop's."""
    return {
        name: value
        for name, value in options.items()
        if not name.startswith("fs.") and _bare(name) != "allow_http"
    }


def delta_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of delta-rs."""
    found = object_store_options(options)
    return found | {"allow_http": "true"} if uses_plain_http(options) else found


def hadoop_options(options: Mapping[str, str], scheme: str = "") -> dict[str, str]:
    """Return the options of Hadoop's file systems.

    `scheme`: Hadoop's name of the address's scheme. s3a doesn't look for an endpoint in the
    environment, as the other libraries do.
    """
    found = dict(_S3A_DEFAULTS) if scheme == "s3a" else {}
    from_environment = _environment("AWS_ENDPOINT", "AWS_ENDPOINT_URL") if scheme == "s3a" else {}
    for name, value in {**from_environment, **options}.items():
        bare = _bare(name)
        if name.startswith("fs."):
            found[name] = value
        elif not name.lower().startswith(("azure_", "google_")) and bare in _S3A:
            found[_S3A[bare]] = value
    # A private S3 server has no host name for each bucket.
    if "fs.s3a.endpoint" in found:
        found.setdefault("fs.s3a.path.style.access", "true")
    if uses_plain_http(options):
        found.setdefault("fs.s3a.connection.ssl.enabled", "false")
    return found


def uses_plain_http(options: Mapping[str, str]) -> bool:
    """Return whether the endpoint is reached without TLS.

    The environment counts where no option says otherwise.
    """
    from_environment = _environment("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP")
    given = {_bare(name): str(value) for name, value in {**from_environment, **options}.items()}
    if (allow_http := given.get("allow_http")) is not None:
        return allow_http.lower() == "true"
    return any(given.get(name, "").startswith("http://") for name in ("endpoint", "endpoint_url"))


def _environment(*names: str) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _bare(name: str) -> str:
    return name.lower().removeprefix("aws_")
