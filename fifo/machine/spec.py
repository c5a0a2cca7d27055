"""The options of queues and consumers, validated at construction.

Owns what options mean together, the validation of plain values, and the difference that a
redeclaration is refused with. The rows of the options stand in `fifo.words`. Must not know state or
commands.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from fifo.machine import validators
from fifo.words import backoff, bounds
from fifo.words.consumer_options import REPLICATED, ConsumerOptions
from fifo.words.options import Kind, Option
from fifo.words.queue_options import QUEUE_OPTIONS, QueueOptions


class SpecError(ValueError):
    """A spec or options that cannot be: the text names the field."""


@dataclass(frozen=True, slots=True)
class QueueSpec(QueueOptions):
    """A queue's validated options, and what follows from them. Backoffs are text forms."""

    @property
    def has_priorities(self) -> bool:
        """Whether priorities order this queue (else they are only carried along)."""
        return self.ordering == "none" if self.priorities is None else self.priorities

    @property
    def failures_max(self) -> int | None:
        """The number of failures that exhausts a message; None is unlimited."""
        if self.max_deliveries is None and self.dead_letter is not None:
            return bounds.MAX_DELIVERIES_DEFAULT
        return self.max_deliveries


def _one_of(*names: str) -> validators.Checker:
    def check(value: Any) -> str:
        if value not in names or type(value) is not str:
            raise ValueError("not one of " + ", ".join(names))
        return value

    return check


def _backoff(value: Any) -> str:
    if type(value) is not str or len(value) > bounds.BACKOFF_CHARS_MAX:
        raise ValueError("not a backoff's text form")
    return str(backoff.parse(value))


def _checker(option: Option) -> validators.Checker:
    """The form of an option's value, by its kind."""
    match option.kind:
        case Kind.DURATION | Kind.COUNT | Kind.SIZE:
            return validators.integer(option.low, option.high)
        case Kind.FLAG:
            return validators.flag
        case Kind.CHOICE:
            return _one_of(*option.choices)
        case Kind.QUEUE | Kind.TEXT | Kind.SECRET:
            return validators.new_name
        case Kind.BACKOFF:
            return _backoff


_QUEUE_FORMS: Final = {option.wire_name: _checker(option) for option in QUEUE_OPTIONS}

_FIXED_FIELDS: Final = tuple(option.wire_name for option in QUEUE_OPTIONS if not option.changeable)

_CONSUMER_FORMS: Final = {option.wire_name: _checker(option) for option in REPLICATED}


def queue_spec(given: Mapping[str, Any]) -> QueueSpec:
    """A spec from plain values; a field that is absent or None has its default.

    Raises `SpecError`.
    """
    spec: QueueSpec = _build(QueueSpec, _QUEUE_FORMS, given)
    if spec.max_lock_ms < spec.lock_ms:
        raise SpecError(f"max_lock_ms: {spec.max_lock_ms} is below lock_ms, {spec.lock_ms}")
    unlimited = spec.max_deliveries is None
    if not unlimited and spec.dead_letter is None and spec.on_exhausted != "drop":
        raise SpecError("max_deliveries: needs a dead_letter queue or on_exhausted=drop")
    if spec.dead_letter_overflow and spec.dead_letter is None:
        raise SpecError("dead_letter_overflow: needs a dead_letter queue")
    return spec


def updated_spec(spec: QueueSpec, changes: Mapping[str, Any]) -> QueueSpec:
    """`spec` with `changes`, where None restores a default. Raises `SpecError`."""
    merged = plain(spec)
    for field_name, value in changes.items():
        if field_name not in _QUEUE_FORMS:
            raise SpecError(f"{_shown(field_name)}: unknown option")
        merged[field_name] = value
    changed = queue_spec(merged)
    for field_name in _FIXED_FIELDS:
        if getattr(changed, field_name) != getattr(spec, field_name):
            raise SpecError(f"{field_name}: cannot be changed while the queue exists")
    return changed


def consumer_options(given: Mapping[str, Any]) -> ConsumerOptions:
    """Options from plain values. Raises `SpecError`."""
    options: ConsumerOptions = _build(ConsumerOptions, _CONSUMER_FORMS, given)
    if options.renewals and not options.renewable:
        raise SpecError("renewals: the consumer's locks are not renewable")
    return options


def _build(
    kind: Callable[..., Any], checks: Mapping[str, validators.Checker], given: Mapping[str, Any]
) -> Any:
    values = {}
    for field_name, value in given.items():
        check = checks.get(field_name)
        if check is None:
            raise SpecError(f"{_shown(field_name)}: unknown option")
        if value is None:
            continue
        try:
            values[field_name] = check(value)
        except ValueError as error:
            raise SpecError(f"{field_name}: {error}") from None
    return kind(**values)


def _shown(field_name: str) -> str:
    return field_name[:40]


def plain(spec: QueueSpec) -> dict[str, Any]:
    """All fields of a spec as plain values."""
    return {item.name: getattr(spec, item.name) for item in fields(spec)}


def differences(old: QueueSpec, new: QueueSpec) -> dict[str, tuple[Any, Any]]:
    """Field name -> (what is, what was asked for), only where they differ."""
    before, after = plain(old), plain(new)
    return {key: (before[key], after[key]) for key in before if before[key] != after[key]}
