"""Answers over HTTP, compared with an OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator


def check_answer(
    document: Mapping[str, Any], path: str, status: int, content: object, method: str = "get"
) -> None:
    """Check that the document describes this status, and that the content fits its schema."""
    answer = document["paths"][path][method]["responses"][str(status)]
    if "$ref" in answer:
        answer = document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    (media,) = answer["content"].values()
    schema = media["schema"] | {"components": document["components"]}
    Draft202012Validator(schema).validate(content)
