"""The bill of materials of an image, in CycloneDX 1.6: what is in its files, not what was asked for.

That is Debian's packages by dpkg's records, Python's by their metadata, and jars by their SHA-256.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.parser import Parser
from pathlib import PurePosixPath
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.this.builders import this_component
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from tests.release.sbom import to_hash, to_license

_DPKG = re.compile(r"(^|/)var/lib/dpkg/(status|status\.d/[^/]+)$")
_METADATA = re.compile(r"(^|/)[^/]+\.dist-info/METADATA$")
_JAR = re.compile(r"^(?P<name>.+?)-(?P<version>\d[\w.\-]*)\.jar$")


@dataclass
class Materials:
    """What an image holds, by kind and name; each component once."""

    found: dict[str, Component] = field(default_factory=dict)

    def add(self, purl: PackageURL, licence: str = "", digest: str = "") -> None:
        """Add a package or a jar."""
        self.found[purl.to_string()] = Component(
            name=purl.name,
            version=purl.version,
            type=ComponentType.LIBRARY,
            purl=purl,
            bom_ref=purl.to_string(),
            licenses=[to_license(licence)] if licence else (),
            hashes=[to_hash(digest)] if digest else (),
        )


def read_materials(files: tarfile.TarFile) -> Materials:
    """Return what is in the files of an image's root."""
    found = Materials()
    for member in files:
        if not member.isfile():
            continue
        name = member.name
        wanted = _DPKG.search(name) or _METADATA.search(name) or name.endswith(".jar")
        content = files.extractfile(member) if wanted else None
        if content is None:
            continue
        data = content.read()
        if _DPKG.search(name):
            for package in _debian(data.decode(errors="replace")):
                found.add(package)
        elif name.endswith(".jar"):
            found.add(*_jar(PurePosixPath(name).name), hashlib.sha256(data).hexdigest())
        else:
            _add_python(found, data.decode(errors="replace"))
    return found


def _debian(status: str) -> Iterator[PackageURL]:
    for paragraph in status.split("\n\n"):
        fields = Parser().parsestr(paragraph.strip() + "\n\n")
        if fields["Package"] and "installed" in (fields["Status"] or "").split():
            qualifiers = {"arch": fields["Architecture"] or "all"}
            yield PackageURL("deb", "debian", fields["Package"], fields["Version"], qualifiers)


def _jar(file: str) -> tuple[PackageURL, str]:
    named = _JAR.match(file)
    name, version = (named["name"], named["version"]) if named else (file, None)
    return PackageURL("generic", None, name, version), ""


def _add_python(found: Materials, metadata: str) -> None:
    fields = Parser().parsestr(metadata)
    licence = fields["License-Expression"] or fields["License"] or ""
    purl = PackageURL("pypi", None, canonicalize_name(fields["Name"]), fields["Version"])
    found.add(purl, "" if "\n" in licence else licence)


def render_image_bill(
    files: tarfile.TarFile, image: str, version: str, digest: str, epoch: int
) -> str:
    """Return the bill of materials of an image as JSON.

    `files`: of its root, as `docker export` gives them. `digest`: the image's id. `epoch`: its
    time, in seconds. Raises ValueError: it is not valid by CycloneDX's schema.
    """
    purl = PackageURL("oci", None, image, digest, {"tag": version})
    bom = Bom(components=read_materials(files).found.values())
    bom.serial_number = uuid5(NAMESPACE_URL, f"{image}:{version}:{digest}")
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    bom.metadata.component = root = Component(
        name=image,
        version=version,
        type=ComponentType.CONTAINER,
        purl=purl,
        bom_ref=purl.to_string(),
    )
    bom.register_dependency(root, bom.components)
    bom.metadata.tools.components.add(this_component())
    text = JsonV1Dot6(bom).output_as_string(indent=2) + "\n"
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if fault is not None:
        raise ValueError(f"the bill of materials is not valid: {fault.data.message}")
    return text
