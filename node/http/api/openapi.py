"""The OpenAPI document of the API, made from its table of routes.

Owns its form. `python -m node.http.api.openapi` writes `docs/openapi.json` anew; a test says when
that is needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from node.http.api.params import BODY, object_schema
from node.http.api.problems import CONTENT_TYPE
from node.http.api.routes import Route
from node.http.api.table import ROUTES

PREFIX: Final = "/api/v1"
FILE: Final = Path(__file__).parents[3] / "docs" / "openapi.json"

_PROBLEM: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "retryable"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "Fact, received value and fix."},
        "code": {"type": "string", "description": "A code of docs/protocol.md 11."},
        "retryable": {"type": "boolean"},
        "info": {"description": "More, for programs: by code."},
    },
}


def document() -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fifo",
            "version": "1",
            "description": "Reads and verbs of a cluster, on any of its nodes.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM},
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"password": []}, {"token": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.help,
        "description": f"Permission: {route.permission}.",
        "parameters": [
            {
                "name": param.name,
                "in": param.where,
                "required": param.required,
                "schema": param.schema(),
            }
            for param in route.params
            if param.where != BODY
        ],
        "responses": {
            str(route.status): {"description": "Done.", "content": _content(route)},
            "default": {
                "description": "Refused.",
                "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
        },
    }
    if route.conditional:
        found["parameters"].append(
            {
                "name": "If-Match",
                "in": "header",
                "required": False,
                "schema": {
                    "type": "string",
                    "description": "The ETag, or the revision of a user, that was seen; else 412.",
                },
            }
        )
    body = [param for param in route.params if param.where == BODY]
    if route.is_raw:
        anything = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
        found["requestBody"] = {"required": True, "content": anything}
    elif body:
        schema = object_schema(body)
        content = {"application/json": {"schema": schema}}
        found["requestBody"] = {"required": "required" in schema, "content": content}
    return found


def _content(route: Route) -> dict[str, Any]:
    if route.is_stream:
        return {"text/event-stream": {"schema": {"type": "string"}}}
    return {"application/json": {"schema": {}}}


def text() -> str:
    """The document as it is kept."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
