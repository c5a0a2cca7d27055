"""A thread that looks for an event loop that does not turn: a handler that never yields.

Owns the line that says where the loop stands. It ends nothing: locks are renewed meanwhile, up to
`max_lock`, and a probe of liveness fails. Must not know tasks.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from types import TracebackType

from fifo.worker import limits

_log = logging.getLogger("fifo.worker")


class Watch:
    """Watches the running loop: `with Watch():`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._turned_at = time.monotonic()
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="fifo-watch", daemon=True)
        self._beat: asyncio.TimerHandle | None = None

    def __enter__(self) -> Watch:
        self._turn()
        self._watching.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._beat is not None:
            self._beat.cancel()
        self._watching.join()

    def _turn(self) -> None:
        self._turned_at = time.monotonic()
        self._beat = self._loop.call_later(limits.BEAT_SECONDS, self._turn)

    def _watch(self) -> None:
        reported_at = 0.0
        while not self._over.wait(limits.BEAT_SECONDS):
            turned_at = self._turned_at
            blocked_s = time.monotonic() - turned_at
            if blocked_s > limits.BLOCKED_SECONDS and reported_at != turned_at:
                reported_at = turned_at
                _log.error(
                    "the event loop has not turned for %.0f s, and no other task runs; it is at %s"
                    " (a handler that blocks is written with `def`, or awaits)",
                    blocked_s, self._place(),
                )  # fmt: skip

    def _place(self) -> str:
        frame = sys._current_frames().get(self._thread)
        if frame is None:
            return "an unknown place"
        own = [line for line in traceback.extract_stack(frame) if "asyncio" not in line.filename]
        return " < ".join(f"{one.filename}:{one.lineno} {one.name}" for one in own[:-4:-1])
