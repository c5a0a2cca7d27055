"""From plain data to the types that programs write: what a body says, checked against a hint.

Owns one converter for each kind of type hint, and which kinds there are. Converters are made once
for each parameter; they raise Unfit with the place inside the value. Must not know tasks or
formats.
"""

from __future__ import annotations

import base64
import binascii
import collections.abc
import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, Final, TypeAlias
from uuid import UUID

from fifo.worker.errors import BadTask, Unfit

Converter: TypeAlias = Callable[[Any], Any]

_SHOWN_CHARS: Final = 60
"""Characters of a wrong value in the reason of a dead letter: enough to recognise it."""


def converter(hint: Any) -> Converter:
    """The converter of a type hint. Raises BadTask where there is none."""
    return _Making({}).of(hint)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def _unfit(expected: str, value: Any) -> Unfit:
    return Unfit(f"expected {expected}, got {_shown(value)}")


def _within(place: str, error: Unfit) -> Unfit:
    """The same error as seen from the outside."""
    text = str(error)
    return Unfit(f"{place}{text}" if text[:1] in ".[" else f"{place}: {text}")


def _anything(value: Any) -> Any:
    return value


def _exact(kind: type, name: str, value: Any) -> Any:
    if type(value) is not kind:
        raise _unfit(name, value)
    return value


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise _unfit("a number", value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _unfit("bytes, or their base64", value) from None


def _from_text(parse: Callable[[str], Any], name: str, value: Any) -> Any:
    if isinstance(value, str):
        try:
            return parse(value)
        except (ValueError, InvalidOperation):
            pass
    raise _unfit(name, value)


def _decimal(value: Any) -> Decimal:
    return Decimal(value) if type(value) is int else _from_text(Decimal, "a decimal number", value)


def _timedelta(value: Any) -> timedelta:
    try:
        return timedelta(seconds=_float(value))
    except (Unfit, OverflowError, ValueError):
        raise _unfit("seconds", value) from None


_SCALARS: Final[dict[Any, Converter]] = {
    Any: _anything,
    object: _anything,
    bool: functools.partial(_exact, bool, "true or false"),
    int: functools.partial(_exact, int, "an integer"),
    str: functools.partial(_exact, str, "a text"),
    type(None): functools.partial(_exact, type(None), "null"),
    None: functools.partial(_exact, type(None), "null"),
    float: _float,
    bytes: _bytes,
    Decimal: _decimal,
    timedelta: _timedelta,
    datetime: functools.partial(_from_text, datetime.fromisoformat, "a date and time (ISO 8601)"),
    date: functools.partial(_from_text, date.fromisoformat, "a date (ISO 8601)"),
    time: functools.partial(_from_text, time.fromisoformat, "a time (ISO 8601)"),
    UUID: functools.partial(_from_text, UUID, "a UUID"),
    Path: functools.partial(_from_text, Path, "a path"),
    PurePath: functools.partial(_from_text, PurePath, "a path"),
}

_LISTS: Final[dict[Any, Callable[[list[Any]], Any]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    collections.abc.Set: frozenset,
}
_MAPS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def _items(value: Any, each: Converter) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise _unfit("a list", value)
    found = []
    for index, item in enumerate(value):
        try:
            found.append(each(item))
        except Unfit as error:
            raise _within(f"[{index}]", error) from None
    return found


def _list(build: Callable[[list[Any]], Any], each: Converter, value: Any) -> Any:
    items = _items(value, each)
    try:
        return build(items)
    except TypeError as error:  # unhashable, in a set
        raise Unfit(str(error)) from None


def _tuple(parts: tuple[Converter, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or len(value) != len(parts):
        raise _unfit(f"a list of {len(parts)}", value)
    found = []
    for index, (part, item) in enumerate(zip(parts, value, strict=True)):
        try:
            found.append(part(item))
        except Unfit as error:
            raise _within(f"[{index}]", error) from None
    return tuple(found)


def _map(key: Converter, each: Converter, value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _unfit("an object", value)
    found = {}
    for name, item in value.items():
        try:
            found[key(name)] = each(item)
        except Unfit as error:
            raise _within(f"[{_shown(name)}]", error) from None
        except TypeError as error:  # unhashable, as a key
            raise Unfit(str(error)) from None
    return found


def _number_key(kind: type, value: Any) -> Any:
    """A number as the key of a map, which is text in JSON."""
    try:
        return kind(value) if isinstance(value, str) else _SCALARS[kind](value)
    except ValueError:
        raise _unfit(f"{kind.__name__} as a key", value) from None


def _literal(values: tuple[Any, ...], value: Any) -> Any:
    for known in values:
        if type(known) is type(value) and known == value:
            return known
    raise _unfit(" or ".join(map(repr, values)), value)


def _enum(kind: type[Enum], value: Any) -> Enum:
    try:
        return kind(value)
    except ValueError:
        raise _unfit(" or ".join(repr(member.value) for member in kind), value) from None


def _union(choices: tuple[Converter, ...], names: str, value: Any) -> Any:
    reasons = []
    for choice in choices:
        try:
            return choice(value)
        except Unfit as error:
            reasons.append(error)
    if len(choices) == 2 and value is not None:
        # Optional: the reason is that of the other one.
        others = [error for error in reasons if "expected null" not in str(error)]
        if len(others) == 1:
            raise others[0]
    raise _unfit(names, value)


@dataclasses.dataclass(slots=True)
class _Record:
    """A converter of objects with named fields; `fields` are filled in once they are made."""

    build: Callable[..., Any]
    name: str
    fields: dict[str, Converter] = dataclasses.field(default_factory=dict)
    required: tuple[str, ...] = ()

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise _unfit(f"an object ({self.name})", value)
        found = {}
        for name, convert in self.fields.items():
            if name in value:
                try:
                    found[name] = convert(value[name])
                except Unfit as error:
                    raise _within(f".{name}", error) from None
        for name in self.required:
            if name not in found:
                raise Unfit(f".{name}: is missing ({self.name})")
        try:
            return self.build(**found)
        except (TypeError, ValueError) as error:  # of the program's own __post_init__
            raise Unfit(f"{self.name}: {error}") from error


class _Making:
    """Makes converters; `known` are those of records, which may contain themselves."""

    def __init__(self, known: dict[Any, Converter]) -> None:
        self._known = known

    def of(self, hint: Any) -> Converter:
        """See `converter`."""
        try:
            scalar = _SCALARS.get(hint)
        except TypeError:  # unhashable metadata
            scalar = None
        if scalar is not None:
            return scalar
        if isinstance(hint, typing.NewType):
            return self.of(hint.__supertype__)
        if isinstance(hint, typing.TypeVar):
            return self.of(hint.__bound__) if hint.__bound__ is not None else _anything
        if hasattr(hint, "__value__"):  # type X = ...
            return self.of(hint.__value__)
        origin = typing.get_origin(hint)
        if origin is not None:
            return self._generic(origin, typing.get_args(hint), hint)
        if isinstance(hint, type):
            return self._class(hint)
        raise _unreadable(hint)

    def _generic(self, origin: Any, args: tuple[Any, ...], hint: Any) -> Converter:
        if origin is typing.Annotated:
            return self.of(args[0])
        if origin in (typing.Union, types.UnionType):
            names = " or ".join(_name(arg) for arg in args)
            return functools.partial(_union, tuple(map(self.of, args)), names)
        if origin is typing.Literal:
            return functools.partial(_literal, args)
        if origin in (typing.Required, typing.NotRequired):
            return self.of(args[0])
        if origin is tuple:
            if len(args) == 2 and args[1] is ...:
                return functools.partial(_list, tuple, self.of(args[0]))
            return functools.partial(_tuple, tuple(map(self.of, args)))
        if origin in _LISTS:
            return functools.partial(_list, _LISTS[origin], self.of(args[0]))
        if origin in _MAPS:
            key = args[0]
            name = functools.partial(_number_key, key) if key in (int, float) else self.of(key)
            return functools.partial(_map, name, self.of(args[1]))
        if isinstance(origin, type):
            return self._class(origin)
        raise _unreadable(hint)

    def _class(self, kind: type) -> Converter:
        if kind in _LISTS:
            return functools.partial(_list, _LISTS[kind], _anything)
        if kind in _MAPS:
            return functools.partial(_map, _anything, _anything)
        if kind is tuple:
            return functools.partial(_list, tuple, _anything)
        if issubclass(kind, Enum):
            return functools.partial(_enum, kind)
        if kind in self._known:
            return self._known[kind]
        if typing.is_typeddict(kind):
            return self._typed_dict(kind)
        library = _of_a_library(kind)
        if library is not None:
            return library
        if dataclasses.is_dataclass(kind):
            return self._dataclass(kind)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return self._named_tuple(kind)
        raise _unreadable(kind)

    def _dataclass(self, kind: Any) -> Converter:
        record = self._known[kind] = _Record(kind, kind.__name__)
        hints = _hints(kind)
        fields = [field for field in dataclasses.fields(kind) if field.init]
        record.fields = {field.name: self.of(hints[field.name]) for field in fields}
        record.required = tuple(
            field.name
            for field in fields
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        return record

    def _typed_dict(self, kind: Any) -> Converter:
        record = self._known[kind] = _Record(dict, kind.__name__)
        hints = _hints(kind)
        record.fields = {name: self.of(hint) for name, hint in hints.items()}
        # The class itself does not see NotRequired where its annotations are text.
        optional = {name for name, hint in hints.items() if _is(hint, typing.NotRequired)}
        required = {name for name, hint in hints.items() if _is(hint, typing.Required)}
        record.required = tuple(sorted(kind.__required_keys__ - optional | required))
        return record

    def _named_tuple(self, kind: Any) -> Converter:
        hints = _hints(kind)
        parts = tuple(self.of(hints.get(name, Any)) for name in kind._fields)
        return lambda value: kind(*_tuple(parts, value))


def _is(hint: Any, origin: Any) -> bool:
    return typing.get_origin(hint) is origin


def _of_a_library(kind: type) -> Converter | None:
    msgspec: Any = sys.modules.get("msgspec")
    if msgspec is not None and issubclass(kind, msgspec.Struct):
        # JSON has no other keys than text.
        convert = functools.partial(msgspec.convert, type=kind, str_keys=True)
        return _by_library(convert, msgspec.ValidationError)
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(kind, pydantic.BaseModel):
        validate: Converter = kind.model_validate  # type: ignore[attr-defined]  # pydantic's
        return _by_library(validate, pydantic.ValidationError)
    return None


def _by_library(convert: Converter, wrong: type[Exception]) -> Converter:
    def converted(value: Any) -> Any:
        try:
            return convert(value)
        except wrong as error:
            raise Unfit(" ".join(str(error).split())) from error

    return converted


def _hints(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception as error:
        raise BadTask(f"the annotations of {kind.__qualname__} do not resolve: {error}") from error


def _name(hint: Any) -> str:
    return "null" if hint is type(None) else getattr(hint, "__name__", None) or str(hint)


def _unreadable(hint: Any) -> BadTask:
    return BadTask(
        f"{_name(hint)} cannot be read from a body: use a dataclass, a TypedDict, a msgspec or"
        " pydantic model, or plain types"
    )
