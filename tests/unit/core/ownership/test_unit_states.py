"""Service-unit states: transitions and conflicts as the reference resolves them."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from lb_stream.core.ownership.unit_states import TRANSITIONS, ServiceUnit, Store, accepts

VECTOR = json.loads(
    (Path(__file__).parents[3] / "data" / "vectors" / "own_transitions.json").read_text()
)
STORES: tuple[Store, ...] = get_args(Store)


def unit(form: dict[str, Any] | None) -> ServiceUnit | None:
    """A record in the vector's words."""
    if form is None:
        return None
    return ServiceUnit(
        form["state"], form["dstBroker"], form["sourceBroker"], form["versionId"], form["force"]
    )


def test_the_tables_of_transitions_are_the_references_and_merging_stands_wherever_splitting_does() -> (
    None
):
    for store in STORES:
        reference = {state: set(after) for state, after in VECTOR["transitions"][store].items()}
        merging = {"Merging": reference["Splitting"]}
        assert {state: set(after) for state, after in TRANSITIONS[store].items()} == merging | {
            state: after | ({"Merging"} if "Splitting" in after else set())
            for state, after in reference.items()
        }


@pytest.mark.parametrize(
    "conflict",
    VECTOR["conflicts"],
    ids=lambda one: f"{(one['cur'] or {}).get('state')}-{(one['new'] or {}).get('state')}",
)
def test_a_conflict_ends_as_in_the_reference(conflict: dict[str, Any]) -> None:
    stores = STORES if conflict["store"] == "both" else (conflict["store"],)
    assert [accepts(unit(conflict["cur"]), unit(conflict["new"]), store) for store in stores] == [
        conflict["accept"]
    ] * len(stores)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    "steps",
    [
        [
            ServiceUnit("Owned", "A", None, 1),
            ServiceUnit("Releasing", "B", "A", 2),
            ServiceUnit("Assigning", "B", "A", 3),
            ServiceUnit("Owned", "B", "A", 4),
        ],
        [
            ServiceUnit("Owned", "A", None, 1),
            ServiceUnit("Releasing", None, "A", 2),
            ServiceUnit("Free", None, "A", 3),
        ],
        [
            ServiceUnit("Owned", "A", None, 1),
            ServiceUnit("Splitting", None, "A", 2),
            ServiceUnit("Deleted", None, "A", 3),
        ],
        [
            ServiceUnit("Owned", "A", None, 1),
            ServiceUnit("Merging", None, "A", 2),
            ServiceUnit("Deleted", None, "A", 3),
        ],
    ],
    ids=["transfer", "unload", "split", "merge"],
)
def test_a_whole_life_is_accepted_step_by_step_and_no_step_twice(
    steps: list[ServiceUnit], store: Store
) -> None:
    before: ServiceUnit | None = None
    for step in steps:
        assert accepts(before, step, store)
        assert not accepts(step, step, store)
        before = step


def test_the_version_after_the_last_one_is_the_least() -> None:
    last = ServiceUnit("Owned", "A", None, 2**63 - 1)
    assert accepts(last, ServiceUnit("Releasing", None, "A", -(2**63)), "metadata_store")
    assert not accepts(last, ServiceUnit("Releasing", None, "A", 5), "metadata_store")
