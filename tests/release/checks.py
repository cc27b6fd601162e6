"""What an installed release must do."""

from __future__ import annotations

from tests.support.environments import PROJECT, Environment

REPORTS = PROJECT / "tests" / "data" / "modular-load-reports.jsonl.gz"


def check_base(made: Environment, version: str) -> None:
    """Run what the base is for: lbctl, its settings, a strategy from Python."""
    shown = made.run("lbctl", "--version").strip()
    if shown != f"lbctl {version}":
        raise AssertionError(f"lbctl --version prints {shown!r}, expected lbctl {version}")
    ask = f"import lb_stream; lb_stream.ask(lb_stream.load_reports({str(REPORTS)!r}))"
    made.run("python", "-c", ask)
    made.run("lbctl", "config", "show", "--json")
