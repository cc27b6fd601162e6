"""Options that several commands share, and get as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

CliCommand = Callable[..., None]


def read_parameters(function: Callable[..., object]) -> dict[str, Parameter]:
    """Return a function's parameters by name, with their annotations evaluated."""
    return dict(signature(function, eval_str=True).parameters)


def group_options(
    command: CliCommand,
    name: str,
    read: Callable[..., object],
    shared: Mapping[str, Parameter],
    first: Mapping[str, Parameter] | None = None,
) -> CliCommand:
    """Replace a command's parameter `name` by the shared options, from which `read` makes it.

    `shared`: option → parameter of `read`. `first`: those of them that come before the command's
    own parameters, in the form that they have for this command.
    """
    own = read_parameters(command)
    own.pop(name, None)
    before = dict(first or {})

    @wraps(command)
    def with_options(**given: Any) -> None:
        value = read(**{option: given.pop(option) for option in shared})
        command(**given, **{name: value})

    parameters = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for parameter in (before | own | dict(shared) | before).values()
    ]
    with_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {
        parameter.name: parameter.annotation for parameter in parameters
    }
    return with_options
