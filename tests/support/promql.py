"""What an expression of PromQL selects, and which labels its result has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser

Labels = frozenset[str]
PICKING = {"topk", "bottomk", "limitk"}
"""Aggregations that keep the labels of what they pick."""


def parse_promql(text: str) -> promql_parser.Expr:
    """Parse an expression of a dashboard or an alert. Raises ValueError if it is not PromQL."""
    return promql_parser.parse(text.replace("$__rate_interval", "5m"))


def list_selectors(expression: promql_parser.Expr) -> Iterator[promql_parser.VectorSelector]:
    """Yield every selector of series in an expression."""
    selectors: list[promql_parser.VectorSelector] = []

    def visit(part: promql_parser.Expr) -> None:
        if isinstance(part, promql_parser.VectorSelector):
            selectors.append(part)
        elif isinstance(part, promql_parser.MatrixSelector):
            selectors.append(part.vector_selector)

    promql_parser.walk(expression, visit)
    yield from selectors


def find_labels(expression: Any, known: Mapping[str, Labels]) -> Labels:
    """Return the labels of an expression's result; `known`: name of a series → its labels.

    Raises ValueError where a part names a label that its series do not have.
    """
    match expression:
        case promql_parser.VectorSelector():
            labels = known[str(expression.name)]
            require(labels, (matcher.name for matcher in expression.matchers.matchers))
            return labels
        case promql_parser.MatrixSelector():
            return find_labels(expression.vector_selector, known)
        case promql_parser.AggregateExpr():
            inner = find_labels(expression.expr, known)
            return _aggregate(inner, expression)
        case promql_parser.Call():
            given = Labels().union(*(find_labels(part, known) for part in expression.args))
            return given - {"le"} if expression.func.name == "histogram_quantile" else given
        case promql_parser.BinaryExpr():
            left, right = (find_labels(part, known) for part in (expression.lhs, expression.rhs))
            return _match(left, right, expression.modifier)
        case promql_parser.ParenExpr() | promql_parser.UnaryExpr() | promql_parser.SubqueryExpr():
            return find_labels(expression.expr, known)
        case _:
            return Labels()


def require(labels: Labels, names: Any) -> None:
    """Raise ValueError if a name is not among the labels."""
    if unknown := set(names) - labels:
        raise ValueError(f"no labels {sorted(unknown)} among {sorted(labels)}")


def _aggregate(inner: Labels, expression: promql_parser.AggregateExpr) -> Labels:
    if expression.modifier is None:
        return inner if str(expression.op) in PICKING else Labels()
    names = Labels(expression.modifier.labels)
    require(inner, names)
    if str(expression.op) in PICKING:
        return inner
    by = expression.modifier.type == promql_parser.AggModifierType.By
    return names if by else inner - names


def _match(left: Labels, right: Labels, modifier: promql_parser.BinModifier | None) -> Labels:
    """Return the labels of an operation; a number on one side has none."""
    matching = modifier.matching if modifier else None
    if matching is not None:
        on = matching.type == promql_parser.LabelModifierType.Include
        require(left & right if on else left | right, matching.labels)
    return left or right
