"""`lbctl jars`: the jars of this installation."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lb_stream.cli.shared.options import Json
from lb_stream.cli.shared.output import emit_json, emit_rich, note, table


class Extra(StrEnum):
    """Configurations of jars that not everyone needs (lb_stream.io.local.jars.EXTRAS)."""

    S3 = "s3"


app = typer.Typer(
    name="jars", help="Fetch the jars of Spark's connectors and of Kafka.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Fetch the jars of Spark's connectors and of Kafka."""


@app.command(epilog="Example: lbctl jars fetch --with s3")
def fetch(
    extras: Annotated[
        list[Extra] | None,
        typer.Option("--with", help="More jars. s3: those for a checkpoint in a bucket (13 MB)."),
    ] = None,
    archive: Annotated[
        bool,
        typer.Option(
            help="Also make the archive of Java's classes: jobs start in two thirds of the time "
            "(190 MB, a minute)."
        ),
    ] = True,
    json: Json = False,
) -> None:
    """Fetch the jars that are missing, and list all. They are in .jars of the clone, or in ./.jars.

    Jars that --with has fetched are kept up to date from then on. LB_JARS_DIR names another folder,
    LB_IVY_SETTINGS an ivysettings.xml with another repository. If no jar is missing it needs no
    network.
    """
    from lb_stream.io.local.jars import (
        COMPILED_NAME,
        EXTRAS,
        JarsLock,
        default_folder,
        fetched_extras,
    )
    from lb_stream.io.local.progress import progress
    from lb_stream.kit.fetch_jars import fetch_jars

    # Fetch.
    with progress("jars") as advance:
        fetched = fetch_jars(progress=advance, extras=extras or ())
    archived = _make_archive() if archive else None

    # List what is there.
    folder, present_extras = default_folder(), fetched_extras()
    rows: list[tuple[str, str, str, int]] = []
    for dependency in ET.parse(JarsLock().ivy).iter("dependency"):
        name, version = dependency.attrib["name"], dependency.attrib["rev"]
        used_by = dependency.attrib["conf"].split("->")[0]
        if used_by in EXTRAS and used_by not in present_extras:
            continue
        size = (folder / used_by / f"{name}-{version}.jar").stat().st_size
        rows.append((used_by, name, version, size))
    rows += [
        ("s3", jar.stem, "compiled here", jar.stat().st_size)
        for jar in (folder / "s3").glob(f"{COMPILED_NAME}-*.jar")
    ]
    rows.sort()

    # Print it.
    if json:
        jars = [
            {"used_by": used_by, "name": name, "version": version, "bytes": size}
            for used_by, name, version, size in rows
        ]
        place = archived and str(archived)
        emit_json({"folder": str(folder), "fetched": fetched, "jars": jars, "archive": place})
        return
    cells = [(*row[:3], f"{row[3] / 1e6:.1f}") for row in rows]
    total = f"{len(rows)} jars, {sum(row[3] for row in rows) / 1e6:.0f} MB in {folder}"
    if archived is not None:
        megabytes = archived.stat().st_size / 1e6
        total += f"; archive of Java's classes: {archived.name}, {megabytes:.0f} MB"
    emit_rich(table(("used by", "jar", "version", "MB"), cells, right=("MB",)), total)


def _make_archive() -> Path | None:
    """Make the archive of Java's classes; return None, with a note, if that fails."""
    from lb_stream.io.local.progress import progress
    from lb_stream.job.submit import job_archive
    from lb_stream.kit.record_classes import RecordingError, record_classes

    try:
        with progress("archive of Java's classes", every=1) as advance:
            record_classes(advance)
    except RecordingError as error:
        note(f"no archive of Java's classes, so jobs start slower ({error})")
        return None
    return job_archive()
