"""The log of the http port: what a stranger sends is one line, what fails in here a traceback.

Owns the form of those lines. Must not know pages.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError

from node.raft import Seldom

_logger: Final = logging.getLogger(__name__)


def request_logger(now: Callable[[], float] = time.monotonic) -> logging.Logger:
    """A logger for aiohttp's errors of a request, one line a minute for each address; `now` in
    seconds."""
    made = logging.Logger(__name__)
    made.parent = _logger
    made.addFilter(partial(_shorten, Seldom(now)))
    return made


def _shorten(seldom: Seldom, record: logging.LogRecord) -> bool:
    """Make one line of a request that aiohttp could not parse, or none; let all else pass."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, HttpProcessingError):
        return True
    host = record.args[0] if isinstance(record.args, tuple) and record.args else "?"
    found = " ".join(str(error.message).split())
    record.msg = "event=http_request_malformed host=%s error=%.200s"
    record.args = (host, found)
    record.exc_info = record.exc_text = None
    record.levelno, record.levelname = logging.INFO, "INFO"
    return seldom.may(str(host))
