"""The two forms of a failure: one line, and the stack of the program's own code.

Owns both forms. Must not know what becomes of the message.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from pathlib import Path
from typing import Final

from fifo.worker import limits
from fifo.worker.errors import ChildDied, TimeLimit

_MACHINERY: Final = tuple(
    str(Path(file).parent) for file in (__file__, asyncio.__file__, concurrent.futures.__file__)
)
"""Folders of the code that calls handlers."""

_OURS: Final = (TimeLimit, ChildDied)
"""Errors that the worker raises about a handler: their place says nothing."""


def line(error: BaseException) -> str:
    """Class and text of an error, in one line of a bounded length."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    most = limits.LINE_CHARS_MAX
    return text if len(text) <= most else f"{text[: most - 3]}..."


def own(error: BaseException) -> BaseException:
    """The error, its traceback without the calls between the worker and the handler."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_MACHINERY):
        trace = trace.tb_next
    if trace is None and not isinstance(error, _OURS):
        return error  # of the machinery itself: all of it is of use
    return error.with_traceback(trace)
