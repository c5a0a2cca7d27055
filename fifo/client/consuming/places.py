"""The number of places a consumer takes: its rate times the round trip, and few at first.

Owns the choice behind `prefetch="auto"`, from what a consumer sees: how many messages it has, and
in which state, when the program waits; how long that lasted; how long messages lay in the buffer.
A pure function of these: no clock, no connection. docs/client.md explains it ("How it chooses").
"""

from __future__ import annotations

from fifo.client import limits


class Places:
    """The number of places, `count`, of one consumer: at least 1, at most `most`.

    A place is taken by a message from its arrival until its settlement is answered; a message that
    was lost takes one until its handler ends. Times are seconds of one monotonic clock.
    """

    def __init__(self, most: int, lock_s: float, now: float) -> None:
        self.count = 1
        self._most = most
        self._fitting = most
        self._wait_s = min(limits.BUFFERED_S, lock_s * limits.BUFFERED_PART_OF_LOCK)
        self._fed_at = self._shrunk_at = now
        self._starved_at: float | None = None
        self._room_at: float | None = None
        self._wanted = 1
        self._keys_out_until = now
        # When as many messages as there are places had come last, and how long that took.
        self._turned, self._turn_at, self._turn_s = 0, now, 0.0
        self._bytes = self._messages = 0.0

    def starved(self, now: float, *, held: int, in_hand: int, waiting: int) -> bool:
        """The program waits, `waiting` tasks of it, and nothing is buffered; whether `count` grew.

        `held` places are taken: `in_hand` by messages that the program works on, the others by
        settlements on their way, which are rate times round trip.
        """
        least = self.count if in_hand == held else self.count * limits.STARVED_PART
        if held < least:
            # The answer that made room is read a moment before the delivery into it; where none
            # comes soon, it is the queue that has nothing.
            self._room_at = now if self._room_at is None else self._room_at
            return False
        hands = min(in_hand, limits.PLACES_IN_HAND)
        if in_hand < held:
            # Something is on its way, and will show how long the program had to wait.
            self._wanted = hands + waiting + 2 * (held - in_hand)
            if self._starved_at is None:
                self._starved_at, self._room_at = now, None
            return False
        # All is in the program's hands, and it asks for more: nothing comes without a place.
        self._starved_at = None
        more = waiting if waiting > 1 else min(hands, limits.PLACES_IN_HAND - hands)
        return self._grow(hands + more)

    def delivered(self, now: float, messages: int, size: int, *, waiting: bool) -> bool:
        """Messages came, of `size` bytes; whether `count` changed."""
        self._bytes = self._bytes * limits.SIZE_MEMORY + size
        self._messages = self._messages * limits.SIZE_MEMORY + messages
        self._fitting = max(1, int(limits.PLACES_BYTES * self._messages / max(self._bytes, 1.0)))
        starved_at, self._starved_at = self._starved_at, None
        room_at, self._room_at = self._room_at, None
        self._turned += messages
        if self._turned >= self.count:
            self._turned, self._turn_at, self._turn_s = 0, now, now - self._turn_at
        if self.count > self._fitting:
            # A quarter less, or a mean that wavers would change it with every delivery.
            self.count = max(1, self._fitting * 3 // 4)
            return True
        if not waiting:
            return False
        fed_at, self._fed_at = self._fed_at, now
        if starved_at is None:
            return False
        if room_at is not None and now - room_at > room_at - starved_at:
            return False  # longer than the answer took: the queue was empty
        worked_s, starved_s = starved_at - fed_at, now - starved_at
        is_slow = max(self._turn_s, now - self._turn_at) > self._wait_s
        if is_slow or starved_s < worked_s * limits.STARVED_SHARE:
            return False
        if now < self._keys_out_until:
            return False
        return self._grow(self._wanted)

    def keys_out(self, now: float, *, held: int, wanted: int) -> bool:
        """All that is ready waits for its key, and places are free: keep three quarters of those
        that are taken, and the `wanted` ones of the program; whether `count` shrank."""
        if held >= self.count:
            return False  # from before the last places were given back
        self._keys_out_until = now + limits.KEYS_OUT_S
        kept = max(held * 3 // 4, wanted, limits.KEYS_OUT_PLACES)
        before, self.count = self.count, min(self.count, kept)
        return self.count < before

    def handed_out(self, now: float, received: float, *, in_hand: int) -> bool:
        """A message that came at `received` is taken; whether `count` shrank."""
        if now - received <= self._wait_s or received < self._shrunk_at:
            return False
        self._shrunk_at = now
        before, self.count = self.count, min(self.count, max(1, in_hand, self.count // 2))
        return self.count < before

    def beside(self, lost: int) -> bool:
        """All of `lost` are lost, and their handlers run: keep one place beside them, within what
        a program may have in hand; whether `count` grew."""
        return self._grow(min(lost, limits.PLACES_IN_HAND) + 1)

    def rest(self) -> bool:
        """Nothing came for the time of a lock: begin anew; whether `count` shrank."""
        before, self.count = self.count, 1
        return before > 1

    def _grow(self, wanted: int) -> bool:
        fitting = max(1, self._fitting * 3 // 4) if self._fitting < self._most else self._most
        before, self.count = self.count, max(self.count, min(wanted, fitting, self._most))
        return self.count > before
