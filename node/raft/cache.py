"""Commands kept in memory, so that replication and delivery seldom read the disk.

Owns a bounded map from index to command, in order of last use. Knows no file. The journal says
up to which index commands may be dropped, because what is not yet written exists only here.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from node.raft.records import Entry

ENTRY_OVERHEAD_BYTES: Final = 256
"""What a command costs in memory beside its bytes (object header, two slots and a link in the
ordered dict); counted, so that a million tiny commands stay within the bound too."""


class CommandCache:
    """At most `bytes_max` of commands, apart from those that are not written yet."""

    __slots__ = ("_bytes", "_bytes_max", "_commands")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        # A plain dict has an order too, but finding its first key passes over all that were
        # dropped before it: the square of the commands in the cache.
        self._commands: OrderedDict[int, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._commands)

    def __repr__(self) -> str:
        return f"<CommandCache {len(self._commands)} commands, {self._bytes}/{self._bytes_max} B>"

    @property
    def held_bytes(self) -> int:
        """Bytes held, overhead included."""
        return self._bytes

    def put(self, index: int, command: bytes) -> None:
        """Keeps a command as the most recently used; `trim` is the caller's next step."""
        self.put_all(((command, index, 0),))

    def put_all(self, entries: Iterable[Entry]) -> None:
        """The same for each of these entries."""
        commands, held_bytes = self._commands, self._bytes
        for command, index, _ in entries:
            old = commands.pop(index, None)
            if old is not None:
                held_bytes -= len(old) + ENTRY_OVERHEAD_BYTES
            commands[index] = command
            held_bytes += len(command) + ENTRY_OVERHEAD_BYTES
        self._bytes = held_bytes

    def get(self, index: int) -> bytes | None:
        """The command, which becomes the most recently used; None if it is not here."""
        command = self._commands.get(index)
        if command is not None:
            self._commands.move_to_end(index)
        return command

    def peek(self, index: int) -> bytes | None:
        """The command, whose place in the order stays; None if it is not here."""
        return self._commands.get(index)

    def missing_until(self, first: int, last: int) -> int:
        """The end of the gap that begins with `first`, which is not here: at most `last`."""
        for index in range(first + 1, last + 1):
            if index in self._commands:
                return index - 1
        return last

    def drop_range(self, first: int, last: int) -> None:
        """Forgets the commands of indexes `first` to `last`, both included."""
        for index in range(first, last + 1):
            command = self._commands.pop(index, None)
            if command is not None:
                self._bytes -= len(command) + ENTRY_OVERHEAD_BYTES

    def clear(self) -> None:
        """Forgets every command."""
        self._commands.clear()
        self._bytes = 0

    def trim(self, written_index: int) -> None:
        """Drops the least recently used until the bound holds; never one above `written_index`.

        It stops at the first that it may not drop: what is not written is one group, and the
        next trim after its sync makes good for it.
        """
        while self._bytes > self._bytes_max and self._commands:
            index = next(iter(self._commands))
            if index > written_index:
                return
            self._bytes -= len(self._commands.pop(index)) + ENTRY_OVERHEAD_BYTES
