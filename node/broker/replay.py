"""A second machine beside that of the node, to which Raft applies the log once more.

Owns its marks, which are those that the node's own machine gave in the same place. It writes no
line of the audit log, answers nothing and is thrown away. Must not know why it is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from fifo.machine.contract import Machine
from node.broker.digests import digest_of
from node.broker.machine_host import MachineHost
from node.raft import Mark


class Replay(MachineHost):
    """See `node.raft.environment.Replay`."""

    def __init__(self, read: Callable[[int], memoryview]) -> None:
        """`read(index)`: the payload of an entry in this node's log."""
        super().__init__(Machine(), read)

    def marking(self, own: Mark) -> Generator[None, None, Mark]:
        """The mark of this state in the place of `own`, in steps."""
        machine = self.machine
        if not own.whole:
            return Mark(own.index, machine.version, machine.running_hash)
        digest = yield from digest_of(machine)
        return Mark.of_state(own.index, machine.version, digest)
