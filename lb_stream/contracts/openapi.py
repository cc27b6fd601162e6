"""Builds OpenAPI documents from tables of operations. The schemas are those of pydantic.

Each program that answers over HTTP lists its operations where it answers them: the console, the
lookup server, the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from lb_stream import __version__

OPENAPI = "3.1.0"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
JSON = "application/json"
Method = Literal["get", "post", "delete"]


class WithoutTitles(GenerateJsonSchema):
    """Leaves out titles of fields: they would only repeat the fields' names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class _WithWidths(WithoutTitles):
    """Says that numbers have 64 bits. Generators of clients take 32 where nothing is said."""

    def int_schema(self, schema: Any) -> dict[str, Any]:
        return {**super().int_schema(schema), "format": "int64"}

    def float_schema(self, schema: Any) -> dict[str, Any]:
        return {**super().float_schema(schema), "format": "double"}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer with one status. `model`: the type of its content; None: it has none."""

    description: str
    model: Any = None
    media: str = JSON


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """A method of a path, as its document describes it.

    - `query`: the model of the parameters in the address.
    - `problems`: statuses of answers that several operations have.
    - `needs`: alternatives, each with the security schemes that it needs; empty: none is needed.
    - `extensions`: fields of the document whose names begin with x-.
    """

    method: Method
    path: str
    name: str
    summary: str
    tag: str
    answers: Mapping[int, Answer]
    problems: tuple[int, ...] = ()
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    needs: tuple[Mapping[str, Sequence[str]], ...] = ()
    extensions: Mapping[str, object] = field(default_factory=dict)


def build_openapi(
    title: str,
    description: str,
    operations: Sequence[ApiOperation],
    server: str,
    problems: Mapping[int, Answer] | None = None,
    security: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Build the document.

    `server`: the default address. `problems`: status → the answer that operations share.
    `security`: name → security scheme.
    """
    problems = problems or {}
    models: list[tuple[tuple[str, str, str], JsonSchemaMode, TypeAdapter[Any]]] = []
    for operation in operations:
        place = operation.method, operation.path
        if operation.body is not None:
            models.append(((*place, "body"), "validation", TypeAdapter(operation.body)))
        for status, answer in operation.answers.items():
            if answer.model is not None:
                adapter: TypeAdapter[Any] = TypeAdapter(answer.model)
                models.append(((*place, str(status)), "serialization", adapter))
    for status, answer in problems.items():
        models.append((("", "", str(status)), "serialization", TypeAdapter(answer.model)))
    found, shared = TypeAdapter.json_schemas(
        models, ref_template="#/components/schemas/{model}", schema_generator=_WithWidths
    )
    schemas = {key: schema for (key, _), schema in found.items()}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _build(operation, schemas)
    components: dict[str, Any] = {"schemas": shared.get("$defs", {})}
    if problems:
        components["responses"] = {
            f"Problem{status}": _build_answer(answer, schemas["", "", str(status)])
            for status, answer in problems.items()
        }
    if security:
        components["securitySchemes"] = security
    return {
        "openapi": OPENAPI,
        "jsonSchemaDialect": DIALECT,
        "info": {
            "title": title,
            "version": __version__,
            "description": description,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": server}],
        "paths": paths,
        "components": components,
    }


def _build(
    operation: ApiOperation, schemas: Mapping[tuple[str, str, str], object]
) -> dict[str, Any]:
    place = operation.method, operation.path
    answers = {
        str(status): _build_answer(answer, schemas.get((*place, str(status))))
        for status, answer in operation.answers.items()
    }
    for status in operation.problems:
        answers[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": dict(sorted(answers.items())),
        **operation.extensions,
    }
    if operation.query is not None:
        described["parameters"] = list_parameters(operation.query)
    if operation.body is not None:
        schema = schemas[*place, "body"]
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    if operation.needs:
        described["security"] = list(operation.needs)
    return described


def _build_answer(answer: Answer, schema: object) -> dict[str, Any]:
    built: dict[str, Any] = {"description": answer.description}
    if answer.model is not None:
        built["content"] = {answer.media: {"schema": schema}}
    return built


def list_parameters(query: type[BaseModel]) -> list[dict[str, Any]]:
    """Return the parameters in an address, from their model."""
    schema = query.model_json_schema(schema_generator=_WithWidths)
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": field.pop("description", ""),
            "schema": _without_null(field),
        }
        for name, field in schema.get("properties", {}).items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that may be missing, and can't be null."""
    if "anyOf" not in schema:
        return schema
    (found,) = (option for option in schema["anyOf"] if option != {"type": "null"})
    return dict(found)
