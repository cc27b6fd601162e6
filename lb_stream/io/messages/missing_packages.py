"""Says which extra of lb_stream has a package that is missing.

Without extras lb_stream has what agents, the core and the simulator need.
"""

from __future__ import annotations

from importlib.util import find_spec

MODULES = {
    "job": ("pyspark", "delta", "pandas", "prometheus_client"),
    "cli": ("duckdb", "deltalake", "obstore", "yaml"),
    "console": ("starlette", "uvicorn", "jinja2", "argon2"),
    "notify": ("apprise",),
    "pictures": ("matplotlib",),
    "suggest": ("optuna",),
    "exact": ("highspy",),
    "otel": ("opentelemetry",),
    "pulsar": ("pulsar",),
}
"""Extra → the modules that only it has; `job` has those of `cli`, too, but DuckDB and
PyYAML."""

ARROW = "pyarrow"
"""Every installation has it, unless somebody has left it out for agents."""


class MissingPackageError(RuntimeError):
    """A package that only some programs need is not installed. The text says how to install it."""


def require_extras(program: str, *extras: str) -> None:
    """Require that all packages of these extras are installed. Raises MissingPackageError.

    `program`: its name for the message.
    """
    missing = [extra for extra in extras if any(find_spec(name) is None for name in MODULES[extra])]
    if missing:
        raise MissingPackageError(f"{program} needs more packages: {install_line(*missing)}")


def describe_missing_package(error: BaseException) -> str | None:
    """Return the line that says what to install; None if `error` is about something else."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    name = (error.name or "").partition(".")[0]  # PackageNotFoundError has it too
    if name == ARROW:
        return f"this needs the package {name}: pip install {name}"
    extra = next((extra for extra, modules in MODULES.items() if name in modules), None)
    return None if extra is None else f"this needs the package {name}: {install_line(extra)}"


def install_line(*extras: str) -> str:
    """Return the command that installs these extras."""
    return f"pip install 'lb_stream[{','.join(extras)}]'"
