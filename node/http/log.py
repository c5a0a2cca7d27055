"""The log of the http port: what a stranger sends is one line, what fails in here a traceback.

Owns the form of those lines. Must not know pages.
"""

from __future__ import annotations

import logging
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError

_logger: Final = logging.getLogger(__name__)


def request_logger() -> logging.Logger:
    """The logger for aiohttp's errors of a request."""
    if _shorten not in _logger.filters:
        _logger.addFilter(_shorten)
    return _logger


def _shorten(record: logging.LogRecord) -> bool:
    """Make one line of a request that aiohttp could not parse; let everything else pass."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        host = record.args[0] if isinstance(record.args, tuple) and record.args else "?"
        found = " ".join(str(error.message).split())
        record.msg = "event=http_request_malformed host=%s error=%.200s"
        record.args = (host, found)
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True
