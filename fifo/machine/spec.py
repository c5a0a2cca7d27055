"""What a queue is declared with and what a consumer subscribes with, validated at construction.

Owns names, ranges and defaults of both, and the difference that a redeclaration is shown. Knows
neither state nor commands. Update with it: the client's `QueueSpec`, the command line's options and
`docs/machine.md`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from fifo.machine import backoff, limits, validators


class SpecError(ValueError):
    """A spec or options that cannot be: the text names the field."""


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue's spec, defaults of semantics.md sections 3, 7, 9 and 11. Backoffs are text forms."""

    ordering: str = "none"
    priorities: bool | None = None  # None: only where ordering is "none"
    on_delay: str = "block"
    lock_ms: int = limits.LOCK_MS_DEFAULT
    max_lock_ms: int = limits.MAX_LOCK_MS_DEFAULT
    max_deliveries: int | None = None  # None: 20 with a dead-letter queue, else unlimited
    on_exhausted: str = "dead_letter"
    count_timeouts: bool = True
    nack_backoff: str | None = None
    timeout_backoff: str | None = None
    dead_letter: str | None = None
    dead_letter_expired: bool = True
    dead_letter_overflow: bool = False
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: str = "reject"
    ttl_ms: int | None = None
    expires_unused_ms: int | None = None
    disconnect_grace_ms: int | None = None
    dedup_window_ms: int | None = None
    dedup_max: int = limits.DEDUP_IDS

    @property
    def has_priorities(self) -> bool:
        """Whether priorities order this queue (else they are only carried along)."""
        return self.ordering == "none" if self.priorities is None else self.priorities

    @property
    def failures_max(self) -> int | None:
        """The number of failures that exhausts a message; None is unlimited."""
        if self.max_deliveries is None and self.dead_letter is not None:
            return limits.MAX_DELIVERIES_DEFAULT
        return self.max_deliveries


def _one_of(*names: str) -> validators.Checker:
    def check(value: Any) -> str:
        if value not in names or type(value) is not str:
            raise ValueError("not one of " + ", ".join(names))
        return value

    return check


def _backoff(value: Any) -> str:
    if type(value) is not str or len(value) > 4_096:
        raise ValueError("not a backoff's text form")
    return backoff.parse(value).text()


_optional_flag = validators.optional(validators.flag)
_lock = validators.integer(limits.LOCK_MS_MIN, limits.LOCK_MS_MAX)
_max_lock = validators.integer(limits.LOCK_MS_MIN, limits.MAX_LOCK_MS_MAX)

_QUEUE_FORMS: Final[dict[str, validators.Checker]] = {
    "ordering": _one_of("none", "key", "single_active"),
    "priorities": _optional_flag,
    "on_delay": _one_of("block", "skip"),
    "lock_ms": _lock,
    "max_lock_ms": _max_lock,
    "max_deliveries": validators.optional(validators.integer(1, limits.MAX_DELIVERIES_MAX)),
    "on_exhausted": _one_of("dead_letter", "drop"),
    "count_timeouts": validators.flag,
    "nack_backoff": validators.optional(_backoff),
    "timeout_backoff": validators.optional(_backoff),
    "dead_letter": validators.optional(validators.name),
    "dead_letter_expired": validators.flag,
    "dead_letter_overflow": validators.flag,
    "max_length": validators.optional(validators.integer(1, limits.QUEUE_LENGTH_MAX)),
    "max_bytes": validators.optional(validators.integer(1, limits.QUEUE_BYTES_MAX)),
    "overflow": _one_of("reject", "drop_oldest"),
    "ttl_ms": validators.optional(validators.integer(1, limits.DURATION_MS)),
    "expires_unused_ms": validators.optional(
        validators.integer(limits.EXPIRES_UNUSED_MS_MIN, limits.DURATION_MS)
    ),
    "disconnect_grace_ms": validators.optional(validators.integer(0, limits.GRACE_MS_MAX)),
    "dedup_window_ms": validators.optional(validators.integer(1, limits.DEDUP_WINDOW_MS_MAX)),
    "dedup_max": validators.integer(1, limits.DEDUP_IDS),
}

FIXED_FIELDS: Final = ("ordering", "priorities")
"""What decides where messages stand: it cannot be changed while a queue exists."""


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What a consumer asks for; None is the queue's own value."""

    prefetch: int = 100
    lock_ms: int | None = None
    max_lock_ms: int | None = None
    priority: int = 0
    renewable: bool = True
    nack_backoff: str | None = None
    timeout_backoff: str | None = None
    credit: str = "auto"


_CONSUMER_FORMS: Final[dict[str, validators.Checker]] = {
    "prefetch": validators.integer(1, limits.PREFETCH),
    "lock_ms": validators.optional(_lock),
    "max_lock_ms": validators.optional(_max_lock),
    "priority": validators.integer(-limits.CONSUMER_PRIORITY, limits.CONSUMER_PRIORITY),
    "renewable": validators.flag,
    "nack_backoff": validators.optional(_backoff),
    "timeout_backoff": validators.optional(_backoff),
    "credit": _one_of("auto", "explicit"),
}


def queue_spec(given: Mapping[str, Any]) -> QueueSpec:
    """A spec from plain values; a field that is absent or None has its default.

    Raises `SpecError`.
    """
    spec: QueueSpec = _build(QueueSpec, _QUEUE_FORMS, given)
    if spec.max_lock_ms < spec.lock_ms:
        raise SpecError("max_lock_ms: below lock_ms")
    unlimited = spec.max_deliveries is None
    if not unlimited and spec.dead_letter is None and spec.on_exhausted != "drop":
        raise SpecError("max_deliveries: without a dead_letter queue it needs on_exhausted=drop")
    if spec.dead_letter_overflow and spec.dead_letter is None:
        raise SpecError("dead_letter_overflow: there is no dead_letter queue")
    return spec


def updated_spec(spec: QueueSpec, changes: Mapping[str, Any]) -> QueueSpec:
    """`spec` with `changes`, where None restores a default. Raises `SpecError`."""
    merged = plain(spec)
    for field_name, value in changes.items():
        if field_name not in _QUEUE_FORMS:
            raise SpecError(f"{_shown(field_name)}: unknown")
        merged[field_name] = value
    changed = queue_spec(merged)
    for field_name in FIXED_FIELDS:
        if getattr(changed, field_name) != getattr(spec, field_name):
            raise SpecError(f"{field_name}: cannot be changed while the queue exists")
    return changed


def consumer_options(given: Mapping[str, Any]) -> ConsumerOptions:
    """Options from plain values. Raises `SpecError`."""
    options: ConsumerOptions = _build(ConsumerOptions, _CONSUMER_FORMS, given)
    return options


def _build(
    kind: Callable[..., Any], checks: Mapping[str, validators.Checker], given: Mapping[str, Any]
) -> Any:
    values = {}
    for field_name, value in given.items():
        check = checks.get(field_name)
        if check is None:
            raise SpecError(f"{_shown(field_name)}: unknown")
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
