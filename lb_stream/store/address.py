"""Addresses of folders, and how each of the libraries that read and write there spells them and
their options.

Options are given once, under the names that object_store has for them (aws_endpoint,
google_service_account, azure_storage_account_key): delta-rs and obstore take them as they are;
Hadoop's s3a, abfs and gs get those that it needs under its own names. Options that begin with `fs.`
are Hadoop's alone.
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
"""Scheme as it is given → as object_store knows it."""
_AS_HADOOP = {"s3": "s3a", "wasb": "abfss", "wasbs": "abfss", "abfs": "abfss"}
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

_S3A_WAYS = {
    "fs.s3a.performance.flags": "create,delete,mkdir",
    "fs.s3a.input.stream.type": "classic",
}
"""How s3a works unless options say otherwise: nobody else makes folders where it makes files, so it
needn't look; small files are read by one request, without the library for large ones."""
S3A_CHECKPOINTS = "lb_stream.ConditionalCheckpoints"
"""conf/checkpoints.scala: a file of Spark's checkpoint is one PUT or none at all, on a condition
where it must be new."""


class AddressError(SettingError):
    """A folder that can't be used; names the address and what was expected."""


@dataclass(frozen=True, slots=True)
class Address:
    """A folder: its scheme as given, its authority (bucket, container@account), its path without a
    slash at its end."""

    scheme: str
    authority: str
    path: str
    given: str = field(default="", compare=False)  # how people wrote it, for them to read

    def __truediv__(self, name: str) -> Address:
        """A folder within."""
        return Address(self.scheme, self.authority, f"{self.path}/{name}", f"{self}/{name}")

    @property
    def root(self) -> Address:
        """What it is a folder of: a bucket, this machine."""
        return Address(self.scheme, self.authority, "")

    @property
    def kind(self) -> Kind:
        """By what it is reached."""
        return "local" if self.scheme in LOCAL else "objects"

    @property
    def uri(self) -> str:
        """As obstore, delta-rs and pyarrow read it; of this machine the absolute path."""
        if self.kind == "local":
            return self.path
        return f"{OBJECTS[self.scheme]}://{self._native_authority}{self.path}"

    @property
    def for_hadoop(self) -> str:
        """As Spark and Hadoop read it."""
        if self.kind == "local":
            return self.path
        return f"{_AS_HADOOP.get(self.scheme, self.scheme)}://{self._native_authority}{self.path}"

    @property
    def _native_authority(self) -> str:
        """Hadoop's old wasb addresses name the account's blob service; what is there is read at its
        file service."""
        return (
            self.authority.replace(".blob.", ".dfs.")
            if self.scheme in ("wasb", "wasbs")
            else self.authority
        )

    def __str__(self) -> str:
        """As it was given."""
        return self.given or self.uri


def parse_address(place: str, setting: str) -> Address:
    """Read the address that a setting gives; a path of this machine is made absolute.

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
        where = (
            "in [stream.store_options], or the variables AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
        raise AddressError(
            setting, f"{scheme}://…@…", f"{scheme}://BUCKET/FOLDER, and keys {where}"
        )
    return Address(scheme, authority, path, place.rstrip("/"))


def object_store_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options of obstore: those that are not Hadoop's."""
    return {
        name: value
        for name, value in options.items()
        if not name.startswith("fs.") and _bare(name) != "allow_http"
    }


def delta_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options of delta-rs."""
    return object_store_options(options) | (
        {"allow_http": "true"} if uses_plain_http(options) else {}
    )


def hadoop_options(options: Mapping[str, str], scheme: str = "") -> dict[str, str]:
    """Options of Hadoop's own file systems.

    `scheme`: of the address in question, as Hadoop spells it.

    s3a doesn't look for an endpoint in the environment, where the other libraries find it.
    """
    found = dict(_S3A_WAYS) if scheme == "s3a" else {}
    of_environment = _of_environment("AWS_ENDPOINT", "AWS_ENDPOINT_URL") if scheme == "s3a" else {}
    for name, value in {**of_environment, **options}.items():
        bare = _bare(name)
        if name.startswith("fs."):
            found[name] = value
        elif not name.lower().startswith(("azure_", "google_")) and bare in _S3A:
            found[_S3A[bare]] = value
    if "fs.s3a.endpoint" in found:  # a server of one's own has no host name for each bucket
        found.setdefault("fs.s3a.path.style.access", "true")
    if uses_plain_http(options):
        found.setdefault("fs.s3a.connection.ssl.enabled", "false")
    return found


def uses_plain_http(options: Mapping[str, str]) -> bool:
    """Whether the endpoint is asked without TLS; the environment counts where no option says
    otherwise."""
    of_environment = _of_environment("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP")
    by_name = {_bare(name): str(value) for name, value in {**of_environment, **options}.items()}
    said = by_name.get("allow_http")
    if said is not None:
        return said.lower() == "true"
    return any(by_name.get(name, "").startswith("http://") for name in ("endpoint", "endpoint_url"))


def _of_environment(*names: str) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _bare(name: str) -> str:
    return name.lower().removeprefix("aws_")
