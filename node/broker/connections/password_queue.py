"""The queue of passwords that wait for the slow hash, one at a time, and one that overtakes it.

Owns the order: first the addresses at which the fewest attempts have failed lately, of these the
ones at which a secret was right before, of equal ones each address in turn. What is equal still is
taken from both ends, the newest and the oldest by turns: who comes before or after a burst of first
guesses from many addresses waits for two of them, and none waits for ever. Who comes before the
one whose hash is under way does not wait for that either: there is a second thread. Bounded for
each address, and as a whole. Must not know users, hashes or what a verdict means.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from node.broker import limits
from node.journal.io.jobs import Done, Worker


@dataclass(eq=False)
class Job:
    """A password to hash, for everyone who gave the same; `hosts` are their addresses.

    `place` counts those of its address that waited when it came.
    """

    work: Callable[[], None]
    done: Done
    dropped: Callable[[], None]
    place: int
    number: int
    hosts: set[str] = field(default_factory=set)


class PasswordQueue:
    """Waiting passwords, by a key that is the same for equal ones."""

    def __init__(
        self,
        failures_at: Callable[[str], float],
        known: Callable[[str], bool],
        thread: Callable[[], Worker],
    ) -> None:
        """`failures_at` an address, lately; `known`: whether a secret was right at an address;
        `thread` is asked when one is needed, twice at most."""
        self._failures_at = failures_at
        self._known = known
        self._make_thread = thread
        self._idle: list[Worker] = []
        self._jobs: dict[Hashable, Job] = {}
        self._running: dict[Hashable, tuple[Worker, tuple[int, bool]]] = {}
        """With the standing of each when it began."""
        self._next_number = 0
        self._newest_is_next = True

    def join(self, key: Hashable, host: str) -> bool:
        """Wait for the same password of somebody else; False where there is none."""
        job = self._jobs.get(key)
        if job is not None:
            job.hosts.add(host)
        return job is not None

    def add(
        self,
        key: Hashable,
        host: str,
        work: Callable[[], None],
        done: Done,
        dropped: Callable[[], None],
    ) -> bool:
        """Queue `work`, then call `done`; False where too many of this address wait.

        `dropped` is called instead where the queue is full and others have failed less.
        """
        place = sum(host in job.hosts for job in self._jobs.values())
        if place >= limits.LOGINS_CHECKED_PER_ADDRESS_MAX:
            return False
        self._next_number += 1
        self._jobs[key] = Job(work, done, dropped, place, self._next_number, {host})
        if len(self._jobs) > limits.LOGINS_CHECKED_MAX:
            self._drop_last()
        self._go_on()
        return True

    def close(self) -> None:
        """Stop the threads: what waits gets no answer any more."""
        for thread in [*self._idle, *(thread for thread, _ in self._running.values())]:
            thread.close()

    def _standing(self, job: Job) -> tuple[int, bool]:
        """The smallest are served before all others, and overtake the one that is under way."""
        failed = min(self._failures_at(host) for host in job.hosts)
        unknown = not any(map(self._known, job.hosts))
        # Rounded: one failure fades from the moment on that it is counted.
        return round(failed), unknown

    def _rank(self, job: Job) -> tuple[tuple[int, bool], int]:
        return self._standing(job), job.place

    def _waiting(self) -> list[Hashable]:
        return [key for key in self._jobs if key not in self._running]

    def _drop_last(self) -> None:
        last = max(
            self._waiting(), key=lambda key: (self._rank(self._jobs[key]), self._jobs[key].number)
        )
        self._jobs.pop(last).dropped()

    def _next(self) -> Hashable | None:
        """The key of the next one to hash; None where none may begin now."""
        waiting = self._waiting()
        if not waiting:
            return None
        sign = -1 if self._newest_is_next else 1
        key = min(
            waiting, key=lambda key: (self._rank(self._jobs[key]), sign * self._jobs[key].number)
        )
        under_way = [standing for _, standing in self._running.values()]
        if len(under_way) > 1 or (under_way and self._standing(self._jobs[key]) >= under_way[0]):
            return None
        if len(waiting) > 1:
            self._newest_is_next = not self._newest_is_next
        return key

    def _go_on(self) -> None:
        while (key := self._next()) is not None:
            self._begin(key)

    def _begin(self, key: Hashable) -> None:
        job = self._jobs[key]
        thread = self._idle.pop() if self._idle else self._make_thread()
        self._running[key] = thread, self._standing(job)

        def done(error: BaseException | None) -> None:
            del self._running[key], self._jobs[key]
            self._idle.append(thread)
            job.done(error)
            self._go_on()

        thread.run(job.work, done)
