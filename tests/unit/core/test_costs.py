"""What is made to cost much: commands and policies whose work must stay linear.

Work is counted, not timed.
"""

import pytest
from pydantic import ValidationError

from lb_stream.contracts.namespaces import MOST_BUNDLES, RING_END, Namespace
from lb_stream.contracts.patterns import LONGEST_EXPRESSION
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.policies import NO_POLICIES, IsolationPolicy, Policies
from lb_stream.core.model.topics import Ring
from lb_stream.core.observing.known_bundles import find_missing_bundles
from lb_stream.operations.create_namespace import CreateNamespace
from tests.support.call_counts import calls
from tests.support.command_rounds import TWO, command, play, view


def test_an_expression_that_costs_exponential_time_elsewhere_is_matched_in_linear_time() -> None:
    policies = Policies(isolation=(IsolationPolicy((r"t/(a+)+$",), (r"(x|x)*y",)),))
    assert policies.isolation_of("t/" + "a" * 2_000 + "!") is None
    assert policies.isolation_of("t/" + "a" * 2_000) is not None
    assert not policies.isolation[0].is_primary("x" * 2_000)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (r"t/(a)\1", r"invalid escape sequence: \1"),
        (r"t/(?=a).*", "look-around"),
        (r"t/a++", "bad repetition operator"),
        (r"((a{100}){100}){100}", "invalid repetition size"),
        ("a)|(b", "unexpected )"),
        (r"\Qt/n", "missing )"),
        ("a" * (LONGEST_EXPRESSION + 1), "it has 1001 characters, 1000 are allowed"),
    ],
)
def test_an_expression_that_has_no_bound_is_refused_with_the_reason(
    expression: str, why: str
) -> None:
    policy = {"name": "p", "namespaces": [expression], "primary": ["a"]}
    (answer,) = play(
        view(**TWO), Memory(), command("set-policies", "1", isolation=[policy])
    ).results
    assert (answer.outcome, answer.rule) == ("refused", "not_an_expression")
    assert why in answer.text and len(answer.text) < 2_000


def test_an_expression_that_was_remembered_unchecked_matches_nothing() -> None:
    laid_down = {"p": {"name": "p", "namespaces": ["t/(?!x).*"], "primary": ["a"]}}
    policies = OperatorState(isolation=laid_down).policies(NO_POLICIES)
    assert policies.isolation_of("t/n") is None


def test_a_namespace_of_more_bundles_than_any_cluster_has_is_refused() -> None:
    CreateNamespace(id="1", namespace="t/n", bundles=MOST_BUNDLES)
    with pytest.raises(ValidationError, match="less than or equal to 16384"):
        CreateNamespace(id="1", namespace="t/n", bundles=MOST_BUNDLES + 1)
    with pytest.raises(ValidationError, match="at most 16385 items"):
        Namespace(name="t/n", boundaries=[*range(MOST_BUNDLES + 1), RING_END])


def test_twice_the_bundles_are_twice_the_work() -> None:
    def work(bundles: int) -> int:
        """A namespace of which every second bundle is known: the others are looked for among
        these."""
        names = Ring.new("t/n", bundles).names
        seen = view(a=names[::2], b=names[1::4])
        lacking = names[3::4]
        found: list[str] = []
        count = calls(lambda: found.extend(find_missing_bundles(seen, {"t/n": bundles})))
        assert found == lacking
        return count

    work(16)
    assert work(2_048) < 2.2 * work(1_024)
