"""`lbctl config overrides` and `settable`: the settings that commands have set, and may set."""

from __future__ import annotations

import json

import typer

from lb_stream.cli.shared.output import emit_rich, note, table
from lb_stream.cli.shared.reading import ReadOptions, with_read_options


def register_config(app: typer.Typer) -> None:
    """Add the commands to `lbctl config`."""
    prefix = "Example: lbctl config"
    app.command("overrides", epilog=f"{prefix} overrides --cluster eu-1")(overrides)
    app.command("settable", epilog=f"{prefix} settable")(settable)


@with_read_options()
def overrides(options: ReadOptions) -> None:
    """Show the settings that commands have set in running clusters.

    Where loadManagerClassName is not among them, the job's own load manager is in use.
    """
    from lb_stream.query.cluster_state import read_cluster_states

    rows = [
        {"cluster": state.cluster, "setting": key, "value": value}
        for state in read_cluster_states(options.open_lake(), options.cluster)
        for key, value in sorted(state.operator_state.settings.items())
    ]
    if options.emit_rows(rows, "setting"):
        return
    if not rows:
        note(f"no command has set anything{options.in_cluster}: lbctl config set KEY VALUE")
        return
    cells = [
        (row["cluster"], row["setting"], json.dumps(row["value"], ensure_ascii=False))
        for row in rows
    ]
    emit_rich(table(("cluster", "setting", "value"), cells))


@with_read_options(cluster=False, watch=False)
def settable(options: ReadOptions) -> None:
    """List the settings that can be changed while the job runs, and what each means."""
    options.check_settings()
    from lb_stream.settings.overrides import dynamic_keys

    rows = [{"setting": key, "meaning": meaning} for key, meaning in dynamic_keys().items()]
    if not options.emit_rows(rows, "setting"):
        emit_rich(table(("setting", "meaning"), [tuple(row.values()) for row in rows]))
