"""`lbctl jars`: the JVM side of this installation."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import typer

from lb_stream.cli.shared.options import Json
from lb_stream.cli.shared.output import emit_json, emit_rich, table


def register(app: typer.Typer) -> None:
    """Add the command to lbctl."""
    app.command("jars", epilog="Example: lbctl jars --json")(jars)


def jars(json: Json = False) -> None:
    """Fetch the jars of Spark's connectors and of Kafka that are not here yet, and show which versions there are."""
    from lb_stream.io.local.jars import Lock, default_folder, retrieve
    from lb_stream.io.local.progress import jar_progress

    with jar_progress() as progress:
        fetched = retrieve(progress=progress)
    folder = default_folder()
    rows = []
    for dependency in ET.parse(Lock().ivy).iter("dependency"):
        name, version, used_by = dependency.attrib["name"], dependency.attrib["rev"], dependency.attrib["conf"].split("->")[0]
        size = (folder / used_by / f"{name}-{version}.jar").stat().st_size
        rows.append({"used_by": used_by, "name": name, "version": version, "bytes": size})
    rows.sort(key=lambda row: (row["used_by"], row["name"]))
    if json:
        emit_json({"folder": str(folder), "fetched": fetched, "jars": rows})
        return
    cells = [(row["used_by"], row["name"], row["version"], f"{row['bytes'] / 1e6:.1f}") for row in rows]
    total = f"{len(rows)} jars, {sum(row['bytes'] for row in rows) / 1e6:.0f} MB in {folder}"
    emit_rich(table(("used by", "jar", "version", "MB"), cells, right=("MB",)), total)
