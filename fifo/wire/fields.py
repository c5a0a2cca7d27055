"""Checks for single fields of a header: plain msgpack values in, typed values out.

Owns the little language in which `messages` describes its fields. A check takes a decoded value and
returns it normalised (lists become tuples), or raises `FieldError` with words that a stranger who
writes a client understands. Types are compared exactly, for msgpack makes no others: it is quicker,
and a bool is no integer. Must not know any frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from fifo.wire import limits

Check: TypeAlias = Callable[[Any], Any]

U8_MAX: Final = 2**8 - 1
U16_MAX: Final = 2**16 - 1
U32_MAX: Final = 2**32 - 1
U63_MAX: Final = 2**63 - 1

_PLAIN_DEPTH_MAX: Final = 8
"""Nesting of a free-form value (specs, results): no honest peer sends deeper ones."""

_PLAIN_TYPES: Final = frozenset({type(None), bool, int, float, str, bytes})


NAMES: Final[dict[Check, str]] = {}
"""The values that each check accepts, in the notation of `docs/protocol.md`: tables and clients are
generated from it."""


AT_ONCE: Final[dict[Check, str]] = {}
"""For checks of single values: an expression, `{0}` for the value, that is true where the check
would return the value as it is. A call for each field costs more than all else of a small frame."""


def _called(name: str, check: Check, at_once: str = "") -> Check:
    NAMES[check] = name
    if at_once:
        AT_ONCE[check] = at_once
    return check


class FieldError(ValueError):
    """A field holds what it must not hold."""


def integer(low: int = 0, high: int = U63_MAX) -> Check:
    """An integer in low..high; a bool is not one."""

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise FieldError(f"must be an integer from {low} to {high}")
        return value

    at_once = f"type({{0}}) is int and {low} <= {{0}} <= {high}"
    return _called(f"integer {low}..{high}", check, at_once)


def boolean(value: Any) -> bool:
    """True or false, nothing that merely looks like it."""
    if type(value) is not bool:
        raise FieldError("must be true or false")
    return value


def text(bytes_max: int, bytes_min: int = 0) -> Check:
    """UTF-8 text whose encoded length lies in bytes_min..bytes_max."""

    def check(value: Any) -> str:
        if type(value) is not str:
            raise FieldError("must be text")
        size = len(value) if value.isascii() else len(value.encode())
        if not bytes_min <= size <= bytes_max:
            raise FieldError(f"must be {bytes_min} to {bytes_max} bytes long")
        return value

    at_once = f"type({{0}}) is str and {{0}}.isascii() and {bytes_min} <= len({{0}}) <= {bytes_max}"
    return _called(f"text {bytes_min}..{bytes_max}", check, at_once)


def octets(bytes_max: int, bytes_min: int = 0) -> Check:
    """Bytes whose length lies in bytes_min..bytes_max."""

    def check(value: Any) -> bytes:
        if type(value) is not bytes or not bytes_min <= len(value) <= bytes_max:
            raise FieldError(f"must be {bytes_min} to {bytes_max} bytes")
        return value

    at_once = f"type({{0}}) is bytes and {bytes_min} <= len({{0}}) <= {bytes_max}"
    return _called(f"bytes {bytes_min}..{bytes_max}", check, at_once)


def maybe(inner: Check) -> Check:
    """Nil, or what `inner` accepts."""

    def check(value: Any) -> Any:
        return None if value is None else inner(value)

    return _called(f"{NAMES[inner]} or nil", check, "{0} is None")


def list_of(inner: Check, items_max: int) -> Check:
    """An array of at most items_max values, each accepted by `inner`; becomes a tuple."""

    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > items_max:
            raise FieldError(f"must be a list of at most {items_max} items")
        if len(value) == 1:
            return (inner(value[0]),)
        return tuple([inner(item) for item in value])

    return _called(f"list {items_max} of {NAMES[inner]}", check)


def record(*inner: Check, required: int | None = None) -> Check:
    """An array with one value per check; values beyond `required` may be missing at its end."""
    least = len(inner) if required is None else required

    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or not least <= len(value) <= len(inner):
            raise FieldError(f"must be a list of {least} to {len(inner)} values")
        # B905: the lengths are checked above, and the keyword costs a quarter of this function.
        return tuple([one(item) for one, item in zip(inner, value)])  # noqa: B905

    names = [NAMES[one] + ("?" if at >= least else "") for at, one in enumerate(inner)]
    return _called(f"[{', '.join(names)}]", _quick_record(inner, least, check))


def _quick_record(inner: tuple[Check, ...], least: int, check: Check) -> Check:
    """The same check, without a call for each value where all of them are as they should be."""
    if not all(one in AT_ONCE for one in inner[:least]):
        return check
    conditions = [f"type(value) is list and {least} <= len(value) <= {len(inner)}"]
    for at, one in enumerate(inner):
        fits = AT_ONCE[one].format(f"value[{at}]") if one in AT_ONCE else "False"
        conditions.append(f"({fits})" if at < least else f"(len(value) <= {at} or {fits})")
    source = f"lambda value: tuple(value) if {' and '.join(conditions)} else check(value)"
    quick: Check = eval(source, {"check": check})  # of the numbers above alone
    return quick


def ranges(items_max: int) -> Check:
    """Token ranges [first, last], ascending and apart from each other."""

    def check(value: Any) -> tuple[tuple[int, int], ...]:
        if type(value) is not list or len(value) > items_max:
            raise FieldError(f"must be a list of at most {items_max} ranges")
        result: list[tuple[int, int]] = []
        below = 0
        for item in value:
            if type(item) is not list or len(item) != 2:
                raise FieldError("a range must be [first, last]")
            first, last = item
            if type(first) is not int or type(last) is not int or not below < first <= last:
                raise FieldError("ranges must ascend: 0 < first <= last < next first")
            if last > U63_MAX:
                raise FieldError(f"a token must be at most {U63_MAX}")
            result.append((first, last))
            below = last
        return tuple(result)

    return _called(f"list {items_max} of token range", check)


def plain(value: Any, values_max: int = limits.PLAIN_VALUES_MAX) -> Any:
    """Any nesting of nil, bool, integer, float, text, bytes, list and text-keyed map."""
    layer, left = [value], values_max
    for _ in range(_PLAIN_DEPTH_MAX + 1):
        left -= len(layer)
        if left < 0:
            raise FieldError(f"must hold at most {values_max} values")
        layer = _below(layer)
        if not layer:
            return value
    raise FieldError(f"must not nest deeper than {_PLAIN_DEPTH_MAX}")


def _below(layer: list[Any]) -> list[Any]:
    """The values that the lists and maps among these hold."""
    below: list[Any] = []
    for value in layer:
        kind = type(value)
        if kind is list:
            below += value
        elif kind is dict:
            for key in value:
                if type(key) is not str:
                    raise FieldError("map keys must be text")
            below += value.values()
        elif kind not in _PLAIN_TYPES:
            raise FieldError(f"must not hold {kind.__name__}")
    return below


def mapping(value: Any) -> dict[str, Any]:
    """A map from text to plain values, for options and records."""
    if type(value) is not dict:
        raise FieldError("must be a map")
    plain(value, limits.MAP_VALUES_MAX)
    return value


NAMES.update({boolean: "bool", plain: "any", mapping: "map"})
AT_ONCE[boolean] = "type({0}) is bool"
