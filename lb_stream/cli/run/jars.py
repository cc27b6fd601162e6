"""`lbctl jars`: the JVM side of this installation."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import typer

from lb_stream.cli.shared.options import Json
from lb_stream.cli.shared.output import emit_json, emit_rich, table

app = typer.Typer(name="jars", help="The jars of Spark's connectors and of Kafka.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """The jars of Spark's connectors and of Kafka."""


@app.command(epilog="Example: lbctl jars fetch --json")
def fetch(json: Json = False) -> None:
    """Fetch the jars that are not here yet, and show which there are: in a clone below its .jars, else below ./.jars.

    LB_JARS_DIR names another folder, LB_IVY_SETTINGS an ivysettings.xml with another repository. Once they are here it needs no network.
    """
    from lb_stream.io.local.jars import Lock, default_folder, retrieve
    from lb_stream.io.local.progress import progress

    with progress("jars") as told:
        fetched = retrieve(progress=told)
    folder = default_folder()
    rows: list[tuple[str, str, str, int]] = []
    for dependency in ET.parse(Lock().ivy).iter("dependency"):
        name, version, used_by = dependency.attrib["name"], dependency.attrib["rev"], dependency.attrib["conf"].split("->")[0]
        size = (folder / used_by / f"{name}-{version}.jar").stat().st_size
        rows.append((used_by, name, version, size))
    rows.sort()
    if json:
        jars = [{"used_by": used_by, "name": name, "version": version, "bytes": size} for used_by, name, version, size in rows]
        emit_json({"folder": str(folder), "fetched": fetched, "jars": jars})
        return
    cells = [(*row[:3], f"{row[3] / 1e6:.1f}") for row in rows]
    total = f"{len(rows)} jars, {sum(row[3] for row in rows) / 1e6:.0f} MB in {folder}"
    emit_rich(table(("used by", "jar", "version", "MB"), cells, right=("MB",)), total)
