"""The parameters of a route, and what a request gives for them.

Owns their checks: an unknown or malformed one is refused with its name and the value received. Must
not know any route.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fifo.wire import Code
from node.http.api.problems import Problem

PATH, QUERY, BODY, HEADER = "path", "query", "body", "header"

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: its name, where it is given, its type in JSON, and its bounds.

    `items`: the fields of each object of an array.
    """

    name: str
    where: str
    kind: str
    help: str
    required: bool = False
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    items: tuple[Param, ...] = ()

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its value."""
        found: dict[str, Any] = {"type": self.kind, "description": self.help}
        if self.low is not None:
            found["minimum"] = self.low
        if self.high is not None:
            found["maximum"] = self.high
        if self.choices:
            found["enum"] = list(self.choices)
        if self.items:
            found["items"] = object_schema(self.items)
        return found

    def check(self, value: Any) -> Any:
        """The value, of this type and within the bounds. Raises Problem."""
        if not isinstance(value, _TYPES[self.kind]) or (
            isinstance(value, bool) and self.kind != "boolean"
        ):
            raise self._wrong(f"must be of type {self.kind}", value)
        if isinstance(value, int) and not isinstance(value, bool):
            if self.low is not None and value < self.low:
                raise self._wrong(f"must be at least {self.low}", value)
            if self.high is not None and value > self.high:
                raise self._wrong(f"must be at most {self.high}", value)
        if self.choices and value not in self.choices:
            raise self._wrong(f"must be one of {', '.join(self.choices)}", value)
        return value

    def read(self, text: str) -> Any:
        """The value that a path or query has as text. Raises Problem."""
        if self.kind == "integer":
            if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 20:
                raise self._wrong("must be a whole number", text)
            return self.check(int(text))
        if self.kind == "boolean":
            if text not in ("true", "false"):
                raise self._wrong("must be true or false", text)
            return text == "true"
        return self.check(text)

    def _wrong(self, fact: str, value: Any) -> Problem:
        return Problem(Code.INVALID_ARGUMENT, f"{self.name}: {fact}, not {value!r:.80}")


def object_schema(params: Sequence[Param]) -> dict[str, Any]:
    """The JSON schema of an object with these fields."""
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {param.name: param.schema() for param in params},
    }
    required = [param.name for param in params if param.required]
    return {**schema, "required": required} if required else schema


def gathered(
    params: Sequence[Param],
    path: Mapping[str, str],
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
) -> dict[str, Any]:
    """The values that a request gives for the parameters of its route. Raises Problem."""
    given: dict[str, Any] = {}
    wanted = {(param.where, param.name): param for param in params}
    for where, texts in ((PATH, path), (QUERY, query)):
        for name, text in texts.items():
            param = wanted.get((where, name))
            if param is None:
                raise _unknown(name, where, params)
            given[name] = param.read(text)
    for param in params:
        if param.where == HEADER and param.name in headers:
            given[param.name] = param.read(headers[param.name])
    given |= fields([param for param in params if param.where == BODY], _object(body), BODY)
    for param in params:
        if param.required and param.name not in given:
            raise _missing(param)
    return given


def fields(params: Sequence[Param], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of an object, checked; one that is null is left out. Raises Problem."""
    wanted = {param.name: param for param in params}
    for name in given:
        if name not in wanted:
            raise _unknown(name, where, params)
    return {name: wanted[name].check(value) for name, value in given.items() if value is not None}


def _object(body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Problem(Code.INVALID_ARGUMENT, "the body of the request must be a JSON object")
    return found


def _missing(param: Param) -> Problem:
    return Problem(Code.INVALID_ARGUMENT, f"{param.name}: is missing ({param.help})")


def _unknown(name: str, where: str, params: Sequence[Param]) -> Problem:
    known = [param.name for param in params if param.where in (where, BODY)]
    use = f"use {', '.join(known)}" if known else "there is none"
    return Problem(Code.INVALID_ARGUMENT, f"unknown parameter {name[:40]!r} of the {where}: {use}")
