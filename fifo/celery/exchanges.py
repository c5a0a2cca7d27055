"""Exchanges, which the broker has none of: the queues that a message goes to.

Owns the bindings. One of this process is in a table here; for others it is a queue of its own that
stays empty and whose name says everything: `EXCHANGE.bound/TYPE/ROUTING_KEY/QUEUE`, each part
percent-encoded. A direct exchange, queue and routing key of one name need no such mark. A mark
whose queue is gone is deleted by who finds that out. Must not know messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from amqp.exceptions import NotFound, PreconditionFailed

from fifo.celery import limits

TYPES: Final = ("direct", "topic", "fanout")


class Binding(NamedTuple):
    """A queue bound to an exchange."""

    exchange: str
    type: str
    routing_key: str
    queue: str

    @property
    def mark(self) -> str | None:
        """The name of the queue that tells other processes; None where the names say it."""
        if self.type == "direct" and self.exchange == self.routing_key == self.queue:
            return None
        parts = [self.type, self.routing_key, self.queue]
        return prefix(self.exchange) + "/".join([quote(part, safe="") for part in parts])

    def takes(self, routing_key: str) -> bool:
        """Whether a message with this routing key goes to the queue."""
        match self.type:
            case "fanout":
                return True
            case "topic":
                return _matches(_words(self.routing_key), _words(routing_key))
            case _:
                return self.routing_key == routing_key


def prefix(exchange: str) -> str:
    """The beginning of the names of an exchange's marks."""
    return f"{quote(exchange, safe='')}.bound/"


def from_mark(name: str) -> Binding | None:
    """The binding that a queue's name tells; None for a queue of another kind."""
    exchange, found, rest = name.partition(".bound/")
    parts = [unquote(part) for part in rest.split("/")]
    if not found or len(parts) != 3 or parts[0] not in TYPES:
        return None
    return Binding(unquote(exchange), parts[0], parts[1], parts[2])


class Exchanges:
    """The exchanges that a connection has declared, and the bindings that it knows.

    `marks_of` lists the names of the queues that begin with a prefix; `now` is in seconds.
    """

    def __init__(self, marks_of: Callable[[str], Iterable[str]], now: Callable[[], float]) -> None:
        self._types: dict[str, str] = {"": "direct"}
        self._own: dict[Binding, None] = {}
        self._known: dict[str, tuple[float, list[Binding]]] = {}
        self._marks_of = marks_of
        self._now = now

    def declare(self, exchange: str, kind: str, *, passive: bool) -> None:
        """Declare an exchange. Raises NotFound, and PreconditionFailed for one of another type."""
        known = self._types.get(exchange)
        if passive:
            if known is None and not self._bindings(exchange, fresh=True):
                raise NotFound(f"no exchange {exchange!r}", (40, 10))
        elif kind not in TYPES:
            types = ", ".join(TYPES)
            raise PreconditionFailed(
                f"exchange {exchange!r}: type {kind!r} is not one of {types}", (40, 10)
            )
        elif known not in (None, kind):
            raise PreconditionFailed(
                f"exchange {exchange!r} is of type {known}, not {kind}", (40, 10)
            )
        else:
            self._types[exchange] = kind

    def forget(self, exchange: str) -> list[Binding]:
        """An exchange is deleted; the bindings that it had."""
        self._types.pop(exchange, None)
        return [self.unbind(binding) for binding in self._bindings(exchange, fresh=True)]

    def bind(self, queue: str, exchange: str, routing_key: str) -> Binding:
        """Bind a queue; the caller makes the binding's mark."""
        binding = self._binding(queue, exchange, routing_key)
        self._own[binding] = None
        return binding

    def unbind(self, binding: Binding) -> Binding:
        """Forget a binding; the caller deletes its mark."""
        self._own.pop(binding, None)
        _, known = self._known.get(binding.exchange, (0.0, []))
        if binding in known:
            known.remove(binding)
        return binding

    def unbound(self, queue: str, exchange: str, routing_key: str) -> Binding:
        """`unbind` by its parts."""
        return self.unbind(self._binding(queue, exchange, routing_key))

    def of_queue(self, queue: str) -> list[Binding]:
        """The bindings of a queue that this connection made."""
        return [binding for binding in self._own if binding.queue == queue]

    def route(self, exchange: str, routing_key: str) -> list[Binding]:
        """The bindings by which a message travels; those of one queue once."""
        if not exchange:
            return [Binding("", "direct", routing_key, routing_key)]
        found = self._matching(exchange, routing_key, fresh=False)
        if not found and self._types.get(exchange, "direct") == "direct":
            # Who waits for a reply may have bound its queue a moment ago.
            found = self._matching(exchange, routing_key, fresh=True)
        if not found and exchange == routing_key:
            found = [Binding(exchange, "direct", routing_key, routing_key)]
        return list({binding.queue: binding for binding in found}.values())

    def _matching(self, exchange: str, routing_key: str, *, fresh: bool) -> list[Binding]:
        bindings = self._bindings(exchange, fresh=fresh)
        return [binding for binding in bindings if binding.takes(routing_key)]

    def _bindings(self, exchange: str, *, fresh: bool) -> list[Binding]:
        own = [binding for binding in self._own if binding.exchange == exchange]
        until, known = self._known.get(exchange, (0.0, []))
        if fresh or self._now() >= until:
            marks = [from_mark(name) for name in self._marks_of(prefix(exchange))]
            known = [binding for binding in marks if binding is not None]
            self._known[exchange] = (self._now() + limits.QUEUES_KNOWN_S, known)
        return list(dict.fromkeys([*own, *known]))

    def _binding(self, queue: str, exchange: str, routing_key: str) -> Binding:
        return Binding(exchange, self._types.get(exchange, "direct"), routing_key, queue)


@lru_cache(maxsize=4096)
def _matches(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """A topic's pattern: `*` is one word, `#` any number of them, none too."""
    if not pattern:
        return not words
    first, rest = pattern[0], pattern[1:]
    if first == "#":
        return any(_matches(rest, words[count:]) for count in range(len(words) + 1))
    return bool(words) and first in ("*", words[0]) and _matches(rest, words[1:])


def _words(routing_key: str) -> tuple[str, ...]:
    return tuple(routing_key.split(".")) if routing_key else ()
