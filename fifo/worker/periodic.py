"""Periodic tasks: each due time is a delayed message in a single-active queue.

Owns the chain of these messages: the active consumer takes one when it is due, sends the task with
the due time as its dedup id, publishes the next, and acks. So the cluster keeps the time, also
while no worker runs, and a crash between two steps repeats them without effect. Must not know how
a task is run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fifo.client import Client, Message, QueueSpec
from fifo.client.durations import Duration, seconds
from fifo.worker import limits
from fifo.worker.cron import Every, Schedule, cron
from fifo.worker.errors import BadTask
from fifo.worker.sending import declare
from fifo.worker.tasks import AnyTask

_log = logging.getLogger("fifo.worker")

CatchUp: TypeAlias = Literal["last", "all", "none"]
"""Due times without a worker: the last one is sent, all of them, or none."""

DUE: Final = "due"
"""Header of what a schedule sends: its due time."""


@dataclass(frozen=True, slots=True)
class Periodic:
    """A task, its schedule and its arguments."""

    task: AnyTask
    schedule: Schedule
    catch_up: CatchUp
    arguments: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The identity of the chain: another schedule of a task is another chain."""
        return f"{self.task.name} {self.schedule}"


def schedule_of(when: str | Duration, zone: str, task: str) -> Schedule:
    """A cron line in a zone, or an interval of whole seconds. Raises BadTask."""
    if isinstance(when, str):
        try:
            found = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise BadTask(
                f"task {task}: there is no time zone {zone!r:.60} here ({error}): name one as"
                " 'Europe/Berlin', or install tzdata"
            ) from error
        try:
            return cron(when, found)
        except BadTask as error:
            raise BadTask(f"task {task}: {error}") from error
    interval_s = seconds(when, f"task {task}: interval")
    if interval_s < 1 or interval_s != int(interval_s):
        raise BadTask(f"task {task}: an interval is whole seconds, not {interval_s:g}")
    return Every(int(interval_s))


def queue_of(periodic: Periodic) -> QueueSpec:
    """The single-active queue of the due times of a task queue's schedules."""
    return QueueSpec(
        f"{periodic.task.queue.name}.periodic",
        ordering="single_active",
        on_delay="skip",  # one that another version of the app knows must not block the others
        dedup_window=limits.DEDUP_SECONDS,
        nack_backoff="exponential:1s..60s*2",
    )


def with_dedup(spec: QueueSpec) -> QueueSpec:
    """The queue of a periodic task: it remembers due times."""
    return (
        spec if spec.dedup_window is not None else replace(spec, dedup_window=limits.DEDUP_SECONDS)
    )


def missed(periodic: Periodic, due: datetime, now: datetime) -> list[datetime]:
    """The due times to send now, of those from `due` on, by the rule of the schedule."""
    if periodic.catch_up == "none":
        late = now - due > timedelta(seconds=limits.LATE_SECONDS)
        return [] if late else [due]
    if periodic.catch_up == "last":
        return [_last(periodic.schedule, due, now)]
    found = [due]
    while (following := periodic.schedule.after(found[-1])) <= now:
        if len(found) == limits.CATCH_UP_MAX:
            _log.warning(
                "task %s: only the first %d of its missed due times are sent",
                periodic.task.name, len(found),
            )  # fmt: skip
            break
        found.append(following)
    return found


def _last(schedule: Schedule, due: datetime, now: datetime) -> datetime:
    """The last due time up to now: looked for in spans that double, backwards."""
    span = timedelta(minutes=1)
    while now - span > due:
        found = schedule.after(now - span)
        if found <= now:
            while (following := schedule.after(found)) <= now:
                found = following
            return found
        span *= 2
    found = due
    while (following := schedule.after(found)) <= now:
        found = following
    return found


class Clockmaker:
    """Sends what is due; one of those that share a queue is active."""

    def __init__(self, client: Client, periodics: list[Periodic]) -> None:
        self._client = client
        self._by_name = {one.name: one for one in periodics}
        self.queues = {queue_of(one).name: queue_of(one) for one in periodics}

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._client.environment.wall(), UTC)

    async def start(self) -> None:
        """Begin the chains; one that goes on already stays as it is."""
        for spec in self.queues.values():
            await declare(self._client, spec)
        for periodic in self._by_name.values():
            view = await declare(self._client, periodic.task.queue)
            if not view.spec.get("dedup_window_ms"):
                _log.warning(
                    "queue %s has no dedup_window: after a crash a due time of task %s may be sent"
                    " twice", periodic.task.queue.name, periodic.task.name,
                )  # fmt: skip
            await self._publish(periodic, periodic.schedule.after(self._now()))

    async def handle(self, message: Message) -> None:
        """Handle one due time, and settle it."""
        async with message.process():
            tick = json.loads(message.body)
            periodic = self._by_name.get(tick["name"])
            if periodic is None:
                await self._not_here(message, tick["name"])
                return
            due, now = datetime.fromisoformat(tick["due"]), self._now()
            for moment in missed(periodic, due, now):
                stamp = moment.isoformat()
                await periodic.task.send(
                    **periodic.arguments,
                    headers={DUE: stamp},
                    dedup_id=f"{periodic.task.name} {stamp}",
                )
            await self._publish(periodic, periodic.schedule.after(max(due, now)))

    async def _publish(self, periodic: Periodic, due: datetime) -> None:
        name, stamp = periodic.name, due.isoformat()
        await self._client.publish(
            queue_of(periodic).name,
            json.dumps({"name": name, "due": stamp}).encode(),
            delay=max(0.0, (due - self._now()).total_seconds()),
            dedup_id=f"{name} {stamp}".encode()[-limits.DEDUP_ID_BYTES_MAX :],
        )

    async def _not_here(self, message: Message, name: str) -> None:
        """Leave it to other workers for a while; then its schedule is gone from the app."""
        if message.attempt < limits.UNKNOWN_TASK_DELIVERIES:
            await message.release(limits.UNKNOWN_TASK_DELAY_SECONDS)
            return
        _log.warning("the schedule %r is none of this app any more: it ends", name)
        await message.ack()
