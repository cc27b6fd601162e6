"""The bill of materials: the Python packages of requirements.lock, the jars of conf/ivy.xml.

The format is CycloneDX 1.6. Nothing in it depends on the machine or the hour: the same commit and
environment give the same bytes.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.contrib.this.builders import this_component
from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    Property,
    XsUri,
)
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import License, LicenseAcknowledgement
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OPTIONAL_JARS = ("broker", "s3")
"""Configurations of conf/ivy.xml that a job needs only in some settings."""
BUILD_TOOLS = ("setuptools", "wheel")
"""Packages of requirements.lock that no package asks for: PySpark is built with them."""


@dataclass(frozen=True)
class Pin:
    """A line of a lock file: a package's version, the machines it is for, its archives' hashes."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


def read_pins(text: str) -> list[Pin]:
    """Return the pins of a lock file."""
    found = []
    for block in re.split(r"\n(?=\S)", text.strip()):
        head, *rest = block.splitlines()
        pinned, _, marker = head.rstrip("\\ ").partition(" ; ")
        name, _, version = pinned.partition("==")
        hashes = tuple(re.findall(r"--hash=sha256:(\w+)", "\n".join(rest)))
        found.append(Pin(name, version, marker, hashes))
    return found


def describe_package(pin: Pin) -> Component:
    """Return a package of requirements.lock, with its licence if it is installed here."""
    purl = PackageURL("pypi", None, pin.name, pin.version)
    archives = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(purl.to_string()),
        comment="any of the archives with these hashes",
        hashes=map(to_hash, pin.hashes),
    )
    return Component(
        name=pin.name,
        version=pin.version,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=_find_licenses(pin),
        external_references=[archives],
        scope=ComponentScope.OPTIONAL if pin.marker else ComponentScope.REQUIRED,
        properties=[Property(name="lb_stream:marker", value=pin.marker)] if pin.marker else (),
    )


def describe_jars(conf: Path) -> list[Component]:
    """Return the jars of ivy.xml with their hashes of jars.sha256."""
    lines = (conf / "jars.sha256").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split() for line in lines)}
    uses: dict[PackageURL, dict[str, str]] = {}
    for dependency in ET.parse(conf / "ivy.xml").iter("dependency"):
        found = dependency.attrib
        use = found["conf"].partition("->")[0]
        purl = PackageURL("maven", found["org"], found["name"], found["rev"])
        uses.setdefault(purl, {})[use] = sums[f"{use}/{found['name']}-{found['rev']}.jar"]
    return [_describe_jar(purl, by_use) for purl, by_use in uses.items()]


def render_sbom(
    project: Path, version: str, commit: str, epoch: int, archives: Mapping[str, str]
) -> str:
    """Return the bill of materials of a commit as JSON.

    `epoch` is the commit's time, in seconds; `archives` has the SHA-256 of the package's own files
    by name. Raises ValueError: it is not valid by CycloneDX's schema.
    """
    purl = PackageURL("pypi", None, "lb-stream", version)
    ours = Component(
        name="lb_stream",
        version=version,
        type=ComponentType.APPLICATION,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=[to_license("Apache-2.0")],
        external_references=[
            ExternalReference(
                type=ExternalReferenceType.DISTRIBUTION, url=XsUri(name), hashes=[to_hash(digest)]
            )
            for name, digest in archives.items()
        ],
    )
    pins = read_pins((project / "requirements.lock").read_text())
    packages = [(pin, describe_package(pin)) for pin in pins]
    jars = describe_jars(project / "conf")
    bom = Bom(components=[*(component for _, component in packages), *jars])
    bom.serial_number = uuid5(NAMESPACE_URL, f"lb_stream:{version}:{commit}")
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    bom.metadata.component = ours
    bom.metadata.tools.components.add(this_component())
    by_name: dict[str, list[Component]] = {}
    for pin, component in packages:
        by_name.setdefault(pin.name, []).append(component)
        bom.register_dependency(component)
    for pin, component in packages:
        bom.register_dependency(component, _pick(by_name, _find_needs(pin)))
    needed = {*_find_needs(Pin("lb-stream", version, "", ()), extras=True), *BUILD_TOOLS}
    bom.register_dependency(ours, [*_pick(by_name, needed), *jars])
    text = JsonV1Dot6(bom).output_as_string(indent=2) + "\n"
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if fault is not None:
        raise ValueError(f"the bill of materials is not valid: {fault.data.message}")
    return text


def _describe_jar(purl: PackageURL, by_use: Mapping[str, str]) -> Component:
    optional = all(use in OPTIONAL_JARS for use in by_use)
    return Component(
        name=purl.name,
        group=purl.namespace,
        version=purl.version,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
        hashes=map(to_hash, set(by_use.values())),
        scope=ComponentScope.OPTIONAL if optional else ComponentScope.REQUIRED,
        properties=[Property(name="lb_stream:jars", value=use) for use in sorted(by_use)],
    )


def to_hash(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


def to_license(name: str) -> License:
    declared = LicenseAcknowledgement.DECLARED
    return LicenseFactory().make_from_string(name, license_acknowledgement=declared)


def _installed(pin: Pin) -> Distribution | None:
    """Return the installed package if it has the version of the pin."""
    try:
        found = distribution(pin.name)
    except PackageNotFoundError:
        return None
    return found if found.version == pin.version else None


def _find_licenses(pin: Pin) -> list[License]:
    """Return the licences of a pin that is installed here."""
    found = _installed(pin)
    return [] if found is None else list(map(to_license, find_license_texts(found)))


def find_license_texts(found: Distribution) -> list[str]:
    """Return what a package's metadata declares: an expression, else a name, else classifiers."""
    expression = found.metadata.get("License-Expression") or found.metadata.get("License", "")
    if expression and "\n" not in expression:
        return [expression]
    prefix = "License :: OSI Approved :: "
    classifiers = found.metadata.get_all("Classifier") or []
    return [text.removeprefix(prefix) for text in classifiers if text.startswith(prefix)]


def _find_needs(pin: Pin, extras: bool = False) -> set[str]:
    """Return the names of the packages that an installed package asks for, on any machine."""
    found = _installed(pin)
    requirements = map(Requirement, (found and found.requires) or ())
    return {
        canonicalize_name(requirement.name)
        for requirement in requirements
        if extras or "extra ==" not in str(requirement.marker)
    }


def _pick(by_name: Mapping[str, list[Component]], names: Iterable[str]) -> list[Component]:
    return [component for name in sorted(names) for component in by_name.get(name, ())]
