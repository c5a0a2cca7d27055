"""Commands kept in memory, so that replication and delivery seldom read the disk.

Owns a bounded map from index to command. The oldest is evicted first, but one that was used
meanwhile gets a second chance. Must not know files. The journal says up to which index commands
may be evicted, because a command that is not yet written exists only here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ENTRY_OVERHEAD_BYTES: Final = 256
"""Memory that a command takes beside its bytes (object header, slots of a dict, a
queue and a set); counted, so that a million tiny commands stay within the bound too."""


class CommandCache:
    """At most `bytes_max` of commands, apart from those that are not written yet."""

    __slots__ = ("_bytes", "_bytes_max", "_commands", "_order", "_used")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._commands: dict[int, bytes] = {}
        # The dict has an order too, but finding its first key passes over all that were dropped
        # before it: the square of the commands in the cache.
        self._order: deque[int] = deque()
        self._used: set[int] = set()

    def __len__(self) -> int:
        return len(self._commands)

    def __repr__(self) -> str:
        return f"<CommandCache {len(self._commands)} commands, {self._bytes}/{self._bytes_max} B>"

    @property
    def held_bytes(self) -> int:
        """Bytes held, overhead included."""
        return self._bytes

    def put(self, index: int, command: bytes) -> None:
        """Keep a command, or use the one that is here; `trim` is the caller's next step."""
        if self.get(index) is None:
            self.put_run(index, (command,), len(command))

    def put_run(self, first: int, commands: Sequence[bytes], size: int) -> None:
        """Keep the commands, `size` bytes together, of the entries from `first` on; none is here.

        What is done for each of them is done by the interpreter's own loops: every entry of the log
        passes here.
        """
        indexes = range(first, first + len(commands))
        self._commands.update(zip(indexes, commands, strict=True))
        self._order.extend(indexes)
        self._bytes += size + ENTRY_OVERHEAD_BYTES * len(commands)

    def get(self, index: int) -> bytes | None:
        """The command, which counts as used; None if it is not here."""
        command = self._commands.get(index)
        if command is not None:
            self._used.add(index)
        return command

    def peek(self, index: int) -> bytes | None:
        """The command, which does not count as used; None if it is not here."""
        return self._commands.get(index)

    def peek_run(self, first: int, last: int) -> list[bytes] | None:
        """The same of the entries from `first` to `last`; None if one of them is not here."""
        try:
            return list(map(self._commands.__getitem__, range(first, last + 1)))
        except KeyError:
            return None

    def missing_until(self, first: int, last: int) -> int:
        """The end of the gap that begins with `first`, which is not here: at most `last`."""
        for index in range(first + 1, last + 1):
            if index in self._commands:
                return index - 1
        return last

    def drop_range(self, first: int, last: int) -> None:
        """Forget the commands of indexes `first` to `last`, both included."""
        for index in range(first, last + 1):
            command = self._commands.pop(index, None)
            if command is not None:
                self._bytes -= len(command) + ENTRY_OVERHEAD_BYTES
        self._order = deque(index for index in self._order if index in self._commands)
        self._used.intersection_update(self._order)

    def clear(self) -> None:
        """Forget every command."""
        self._commands.clear()
        self._order.clear()
        self._used.clear()
        self._bytes = 0

    def trim(self, written_index: int) -> None:
        """Evict the oldest unused commands until the bound holds; never one above `written_index`.

        It stops at the first that it may not drop: what is not written is one group, and the
        next trim after its sync makes good for it.
        """
        order, used = self._order, self._used
        while self._bytes > self._bytes_max and order:
            index = order[0]
            if index in used:
                used.discard(index)
                order.rotate(-1)
            elif index > written_index:
                return
            else:
                order.popleft()
                self._bytes -= len(self._commands.pop(index)) + ENTRY_OVERHEAD_BYTES
