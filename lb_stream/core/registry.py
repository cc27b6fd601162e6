"""Strategies by name: a decorator registers one with the model of its settings; Pulsar's class names lead to the same entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lb_stream.contracts.keys import KeyModel

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Strategy(Generic[Function]):
    """One registered strategy. `memory` reads what it remembers between rounds from the JSON object of the last round ({} at first)."""

    name: str
    function: Function
    config: type[KeyModel]
    memory: Callable[[Mapping[str, Any]], Any]


class UnknownStrategyError(ValueError):
    """A strategy that nobody registered."""


class Registry(Generic[Function]):
    """All strategies of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._strategies: dict[str, Strategy[Function]] = {}

    def __call__(self, name: str, *, config: type[KeyModel], memory: Callable[[Mapping[str, Any]], Any]) -> Callable[[Function], Function]:
        """Register the decorated function under `name`."""

        def register(function: Function) -> Function:
            self._strategies[name] = Strategy(name, function, config, memory)
            return function

        return register

    def __getitem__(self, name: str) -> Strategy[Function]:
        """The strategy of that simple name or Pulsar class name. Raises UnknownStrategyError, naming those there are."""
        found = self._strategies.get(name.rpartition(".")[2])
        if found is None:
            raise UnknownStrategyError(f"{self.kind} strategy: {name!r}; expected one of {', '.join(self.names)}")
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Simple names, sorted."""
        return tuple(sorted(self._strategies))
