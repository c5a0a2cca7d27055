"""TCP between simulated machines: ordered bytes, any cut, cuts of links, breaks of connections.

Owns what a kernel and a wire do: connecting, buffers that fill, bytes in flight, half-open ends.
A cut link stalls what is on its way; healed, all of it arrives. A killed program's connections are
reset, a machine without power says nothing. Knows neither frames nor who talks to whom.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from node.testing.clockwork import Program, VirtualLoop, current

RETRY_SECONDS = 1.0
"""A lost SYN is sent again after this, doubled each time."""

READ_BYTES = 262_144
"""Maximum number of bytes that one read takes."""

_FIN = b""
Segment = tuple[float, bytes | None]
"""When the program wrote it, and the bytes; `_FIN` ends the stream, None resets it."""


class Listener:
    """A port that accepts, of one program."""

    def __init__(
        self, network: Network, program: Program, factory: Callable[[], Any], at: tuple[str, int]
    ) -> None:
        self.network = network
        self.program = program
        self.factory = factory
        self.at = at

    def close(self) -> None:
        """Accept no more."""
        if self.network.listeners.get(self.at) is self:
            del self.network.listeners[self.at]

    def accept(self, end: End) -> None:
        """A connection is there; runs as part of the program."""
        end.open(self.factory())


class End(asyncio.Transport):
    """An end of a connection, as the program on it sees it."""

    def __init__(self, network: Network, program: Program, remote: tuple[str, int]) -> None:
        super().__init__()
        self._network = network
        self.program = program
        self._remote = remote
        self.peer: End
        self.number = 0
        self._protocol: Any = None
        self._unsent: deque[tuple[float, bytes]] = deque()
        self._unsent_bytes = 0
        self._in_flight_bytes = 0
        self._received: deque[Segment] = deque()
        self.wire: deque[Segment] = deque()
        self._high, self._low = 65_536, 16_384
        self._reading = True
        self._reads = False
        self._closing = False
        self._told_full = False
        self.gone = False

    def open(self, protocol: Any) -> None:
        """The program has it from here on."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._look()

    # --- asyncio.Transport ---

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._remote if name == "peername" else default

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._look()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 65_536 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def write(self, data: Any) -> None:
        if self._closing or not self.program.alive or not len(data):
            return
        self._unsent.append((self._network.loop.now, bytes(data)))
        self._unsent_bytes += len(data)
        self._pump()
        if self._unsent_bytes > self._high and not self._told_full:
            self._told_full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(map(bytes, list_of_data)))

    def close(self) -> None:
        if self._closing or not self.program.alive:
            return
        self._closing = True
        self._reading = False
        if not self._unsent:
            self._finish()

    def abort(self) -> None:
        if self.gone or not self.program.alive:
            return
        self._closing = True
        self._network.send(self, None)
        self._lose(None)

    # --- out ---

    def _pump(self) -> None:
        """Hand the kernel what it takes."""
        network = self._network
        while self._unsent and self._in_flight_bytes < network.capacity_bytes:
            written_at, data = self._unsent.popleft()
            room = network.capacity_bytes - self._in_flight_bytes
            if len(data) > room:
                self._unsent.appendleft((written_at, data[room:]))
                data = data[:room]
            self._unsent_bytes -= len(data)
            self._in_flight_bytes += len(data)
            network.send(self, data, written_at)
        if self._closing and not self._unsent and not self.gone:
            self._finish()

    def taken(self, size: int) -> None:
        """The other program has read so many bytes; runs as part of this one."""
        self._in_flight_bytes -= size
        if self.gone:
            return
        self._pump()
        if self._told_full and self._unsent_bytes <= self._low:
            self._told_full = False
            self._protocol.resume_writing()

    def _finish(self) -> None:
        self._network.send(self, _FIN)
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        """The program hears that the connection is over."""
        if self.gone:
            return
        self.gone = self._closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._received.clear()
        if self.program.alive and self._protocol is not None:
            self._network.loop.call_soon(
                self._protocol.connection_lost, error, context=self.program.context
            )

    # --- in ---

    def arrive(self, written_at: float, data: bytes | None) -> None:
        """The kernel has received something."""
        if self.gone or not self.program.alive:
            if data is not None and self._network.is_up(self.program.host):
                self._network.send(self, None)
            return
        if data is None and self._network.rng.random() < 0.5:
            self._received.clear()  # A reset may throw away what was not read.
        self._received.append((written_at, data))
        self._look()

    def _look(self) -> None:
        if self._received and not self._reads and self._protocol is not None:
            self._reads = True
            self._network.loop.call_soon(self._read, context=self.program.context)

    def _read(self) -> None:
        self._reads = False
        if self.gone or not self._received:
            return
        if self._received[0][1] is None:
            self._lose(ConnectionResetError(104, "connection reset by peer"))
            return
        if not self._reading:
            return
        pieces = []
        size = 0
        written_at = self._received[0][0]  # Of the oldest: transit is an upper bound.
        while self._received and self._received[0][1] and size < READ_BYTES:
            _, data = self._received.popleft()
            assert data is not None, "resets are seen to above"
            pieces.append(data)
            size += len(data)
        if not pieces:
            self._received.popleft()
            if not self._protocol.eof_received():
                self.close()
            return
        chunk = b"".join(pieces)
        if size > 1 and self._network.rng.random() < self._network.cutting:
            size = self._network.rng.randint(1, size - 1)
            self._received.appendleft((written_at, chunk[size:]))
            chunk = chunk[:size]
        self.program.transits[self.program.clock()] = self._network.loop.now - written_at
        self._network.consumed(self.peer, size)
        self._give(chunk)
        self._look()

    def _give(self, chunk: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(chunk)
            return
        while chunk and not self.gone:
            room: Any = protocol.get_buffer(-1)
            size = min(len(room), len(chunk))
            room[:size] = chunk[:size]
            protocol.buffer_updated(size)
            chunk = chunk[size:]

    def broken(self) -> None:
        """Somebody in the middle has reset the connection."""
        if not self.gone and self.program.alive:
            self._received.clear()
            self._received.append((0.0, None))
            self._look()


class Network:
    """All links and connections. `cutting`: how likely a read gets only a part of what is there."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        loop.network = self
        self.rng = rng
        self.capacity_bytes = rng.choice((2_048, 65_536, 262_144))
        self.cutting = rng.choice((0.02, 0.2))
        self.latency_s = rng.choice((0.0002, 0.001, 0.004))
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.ends: dict[int, End] = {}
        self.down: dict[str, None] = {}
        self.cuts: dict[tuple[str, str], None] = {}
        self.slow: dict[tuple[str, str], float] = {}
        self.dialed: dict[str, int] = {}
        """Connections that each machine has tried to open."""
        self._numbers = 0
        self._stalled: dict[tuple[str, str], list[End]] = {}
        self.bytes = 0

    # --- life of a connection ---

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> Listener:
        """A program listens."""
        at = (host, port)
        known = self.listeners.get(at)
        if known is not None and known.program.alive:
            raise OSError(98, f"address in use: {host}:{port}")
        self.listeners[at] = Listener(self, current(), factory, at)
        return self.listeners[at]

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[End, Any]:
        """The running program dials."""
        return await self.dial(current(), factory, host, port)

    async def dial(
        self, program: Program, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[End, Any]:
        """A program dials; as patient as TCP."""
        self.dialed[program.host] = self.dialed.get(program.host, 0) + 1
        retry_s = RETRY_SECONDS
        while True:
            await asyncio.sleep(2 * self._delay(program.host, host))
            if not self.is_cut(program.host, host) and self.is_up(host):
                break
            await asyncio.sleep(retry_s)
            retry_s *= 2
        listener = self.listeners.get((host, port))
        if listener is None or not listener.program.alive:
            raise ConnectionRefusedError(111, "connection refused")
        self._numbers += 2
        near = End(self, program, (host, port))
        far = End(self, listener.program, (program.host, 40_000 + self._numbers % 20_000))
        near.peer, far.peer = far, near
        for number, end in ((self._numbers, near), (self._numbers + 1, far)):
            end.number = number
            self.ends[number] = end
        self.loop.call_soon(listener.accept, far, context=listener.program.context)
        protocol = factory()
        near.open(protocol)
        return near, protocol

    def kill(self, program: Program, *, power: bool) -> None:
        """A program is gone; its kernel resets its connections, unless that is gone as well."""
        for listener in list(self.listeners.values()):
            if listener.program is program:
                listener.close()
        for end in self._of(program):
            if not power and not end.gone:
                self.send(end, None)
            end.gone = True

    def break_between(self, first: str, second: str) -> None:
        """Reset every connection between two machines."""
        for end in list(self.ends.values()):
            if (end.program.host, end.peer.program.host) in ((first, second), (second, first)):
                end.broken()

    def abandon(self, host: str, others: Iterable[str]) -> None:
        """Those machines see their connections to one end; it does not, and no more gets through
        either way."""
        for other in others:
            self.cut(host, other)
            self.cut(other, host)
            for end in list(self.ends.values()):
                if (end.program.host, end.peer.program.host) == (other, host):
                    end.broken()

    def _of(self, program: Program) -> list[End]:
        return [end for end in self.ends.values() if end.program is program]

    # --- segments ---

    def send(self, end: End, data: bytes | None, written_at: float | None = None) -> None:
        """Put something on the wire."""
        now = self.loop.now
        self._pass(end, (now if written_at is None else written_at, data))

    def _pass(self, end: End, segment: Segment) -> None:
        end.wire.append(segment)
        way = (end.program.host, end.peer.program.host)
        self.loop.after(self._delay(*way), self._arrive, end)

    def _arrive(self, end: End) -> None:
        """The oldest segment on this wire has arrived: whichever timer it was, order is kept."""
        way = (end.program.host, end.peer.program.host)
        if way in self.cuts:
            self._stalled.setdefault(way, []).append(end)
            return
        written_at, data = end.wire.popleft()
        if way[1] in self.down:
            return
        if data:
            self.bytes += len(data)
        end.peer.arrive(written_at, data)
        if end.gone and end.peer.gone and not end.wire and not end.peer.wire:
            self.ends.pop(end.number, None)
            self.ends.pop(end.peer.number, None)

    def consumed(self, end: End, size: int) -> None:
        """Tell a sender, a link later, that its bytes were read."""
        if end.program.alive and not end.gone:
            delay = self._delay(end.peer.program.host, end.program.host)
            self.loop.after(delay, self._acknowledge, end, size)

    def _acknowledge(self, end: End, size: int) -> None:
        self.loop.call_soon(end.taken, size, context=end.program.context)

    def _delay(self, source: str, target: str) -> float:
        return self.latency_s * (0.5 + self.rng.random()) + self.slow.get((source, target), 0.0)

    # --- links ---

    def is_up(self, host: str) -> bool:
        """Whether that machine has power."""
        return host not in self.down

    def is_cut(self, first: str, second: str) -> bool:
        """Whether anything is lost between the two."""
        return (first, second) in self.cuts or (second, first) in self.cuts

    def cut(self, source: str, target: str) -> None:
        """From here on nothing gets from one machine to the other."""
        self.cuts[(source, target)] = None

    def heal(self) -> None:
        """End all cuts: what stalled arrives."""
        self.cuts.clear()
        self.slow.clear()
        stalled, self._stalled = self._stalled, {}
        for way, ends in stalled.items():
            for end in ends:
                self.loop.after(self._delay(*way), self._arrive, end)
