"""The shared part of adapters of other frameworks: options that an app gives in groups, and the end
of a message that its framework cannot read.

Owns the check of these groups where an app is made, so that no worker finds out later, and their
defaults for consumers. Must not know a framework.
"""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fifo.client import checks, limits
from fifo.client.consuming import consume_options
from fifo.client.consuming.message import Message
from fifo.client.errors import InvalidArgument, NoDeadLetterQueue
from fifo.client.option_values import unknown
from fifo.client.spec import changes_to_wire
from fifo.words import bounds, consumer_options

_PUSHED: Final = "a worker has messages sent to it, and asks for none"


class GroupNames(NamedTuple):
    """Names of the groups in an adapter; errors begin with them."""

    queue: str = "queue"
    queues: str = "queues"
    consumer: str = "consumer"


_PLAIN: Final = GroupNames()


@dataclass(frozen=True, slots=True)
class OptionGroups:
    """Options by the names of the client, checked: of all queues, of single ones, of consumers."""

    of_all: Mapping[str, Any]
    of_one: Mapping[str, Mapping[str, Any]]
    of_consumers: Mapping[str, Any]

    def of_queue(self, name: str) -> dict[str, Any]:
        """The options with which a queue is declared."""
        return {**self.of_all, **self.of_one.get(name, {})}


def option_groups(
    queue: object,
    queues: object,
    consumer: object,
    *,
    names: GroupNames = _PLAIN,
    chosen: Mapping[str, str] | None = None,
) -> OptionGroups:
    """Check the groups; None is an empty one. Raises InvalidArgument with group, option and value.

    `chosen` are options of consumers that the framework decides about, with what to do instead. A
    lock lasts for as long as its process lives, unless `consumer` says otherwise.
    """
    of_consumers = _of_consumers(consumer, names.consumer, {"pull": _PUSHED, **(chosen or {})})
    return OptionGroups(
        _of_queue(queue, names.queue),
        {
            checks.name(name, f"{names.queues}: queue name"): _of_queue(
                options, f"{names.queues}: {name}"
            )
            for name, options in mapping(queues, names.queues).items()
        },
        {"max_lock": bounds.TOTAL_LOCK_MS_MAX / 1000, "pull": False, **of_consumers},
    )


def mapping(given: object, what: str) -> dict[str, Any]:
    """A group as it was given, empty for None. Raises InvalidArgument where it is no mapping."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"{what}: must be a mapping of names, not {reprlib.repr(given)}")
    for name in given:
        if not isinstance(name, str):
            raise InvalidArgument(f"{what}: names are text, not {reprlib.repr(name)}")
    return dict(given)


def _of_queue(given: object, what: str) -> dict[str, Any]:
    found = mapping(given, what)
    try:
        changes_to_wire(found)
    except InvalidArgument as error:
        raise InvalidArgument(f"{what}: {error}") from None
    return found


def _of_consumers(given: object, what: str, chosen: Mapping[str, str]) -> dict[str, Any]:
    found = mapping(given, what)
    for name, value in found.items():
        if name in chosen:
            raise InvalidArgument(f"{what}: {name}: {chosen[name]}; remove it")
        if name not in consumer_options.OF_ALL:
            raise unknown(name, consumer_options.OF_ALL, "a consumer", f"{what}: ")
        consume_options.check(name, value, f"{what}: {name}")
    return found


async def dead(
    message: Message, reason: str, description: str, error: Exception | None, log: logging.Logger
) -> None:
    """Terminate a message that its framework cannot run, with a line in the log.

    Without a dead-letter queue it stays in its queue, and is offered again in a minute. Raises
    FifoError.
    """
    log.error("message %s of queue %s: %s: %s", message.id, message.queue, reason, description)
    try:
        await message.terminate(reason, description, error)
    except NoDeadLetterQueue:
        log.error(
            "message %s stays in queue %s, which has no dead-letter queue: offered again in %g s",
            message.id,
            message.queue,
            limits.NO_DEAD_LETTER_DELAY_S,
        )
        await message.release(limits.NO_DEAD_LETTER_DELAY_S)
