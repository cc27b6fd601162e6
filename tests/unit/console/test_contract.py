"""Generated requests to every route of a running console, by three roles.

No answer may be outside the contract, which is the console's own OpenAPI document. A few requests
for each route; `LB_API_EXAMPLES=200` makes that many, new ones in each run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import Access
from lb_stream.console.routes import build_document
from lb_stream.console.serve import ConsoleServer
from lb_stream.console.sources.reader import Reader
from lb_stream.store import Store
from tests.unit.console.site import BROKER, BUNDLE, PASSWORD, Topic, fleet, settings_of

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
EXAMPLES = int(os.environ.get("LB_API_EXAMPLES", "0"))
ROLES = {"eve": "viewer", "alice": "operator", "root": "admin"}
ENDLESS = "/api/v1/events"
"""Its answer has no end; tests/unit/console/sources/test_live.py has it."""
KNOWN = {"cluster": "eu-1", "broker": BROKER, "bundle": BUNDLE, "id": "eu-1:1:0"}
OPERATIONS = [
    found.ok()
    for found in schemathesis.openapi.from_dict(build_document()).get_all_operations()
    if found.ok().path != ENDLESS
]


@dataclass(frozen=True)
class Running:
    """A running console, and the rights with which each role asks it."""

    server: ConsoleServer
    access: Access

    def log_in(self, name: str) -> dict[str, str]:
        """Begin a session, and return the headers of its requests."""
        return {"Authorization": f"Bearer {self.access.begin_session(name)}"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("contract")
    fleet(folder / "tables")
    users = folder / "users.toml"
    users.write_text("".join(user_lines(name, PASSWORD, role, {}) for name, role in ROLES.items()))
    access, tables = Access.load(users), folder / "tables"
    reader = Reader(Store.at(tables), settings_of(tables), None, clock=lambda: 0.0)
    server = ConsoleServer("127.0.0.1:0", reader, (), None, access, Topic())
    yield Running(server, access)
    server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_no_answer_to_any_role_is_outside_the_contract(
    running: Running, operation: schemathesis.schemas.APIOperation
) -> None:
    headers = {name: running.log_in(name) for name in ROLES}

    @settings(
        max_examples=EXAMPLES or 3,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=build_cases(operation), has_known_names=st.booleans())
    def ask(case: schemathesis.Case, has_known_names: bool) -> None:
        if has_known_names:
            name_known_things(case)
        for name in ROLES:
            answer = case.call(base_url=running.server.url, headers=headers[name])
            case.validate_response(answer, checks=CHECKS)

    ask()


def build_cases(
    operation: schemathesis.schemas.APIOperation,
) -> st.SearchStrategy[schemathesis.Case]:
    """Build requests that fit the document, and such that do not where there is a field."""
    good = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    if not operation.query and not operation.body:
        return good
    return good | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)


def name_known_things(case: schemathesis.Case) -> None:
    """Put names of the tables in the place of generated ones, so that there is an answer."""
    for part in (case.query, case.body):
        if isinstance(part, dict):
            for name in part.keys() & KNOWN.keys():
                part[name] = KNOWN[name]
    if case.path == "/api/v1/cluster" and isinstance(case.query, dict):
        case.query["name"] = KNOWN["cluster"]
