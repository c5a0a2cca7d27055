"""The log of a node: each event one line on stderr, as key=value text or as a JSON object.

Owns both formats and the levels. Events are written as `event=name key=%s ...`: the keys of a JSON
object come from that template and never from a value, so no client can add one. Must not know which
events there are.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from enum import StrEnum
from typing import Any, Final

_KEY: Final = re.compile(r"(?:^|(?<= ))([a-z][a-z0-9_]*)=")
_CONVERSION: Final = re.compile(r"%(?:%|[-#0 +]*[\d*]*(?:\.[\d*]+)?[a-zA-Z])")
_PLAIN: Final = (bool, int, float, str, type(None))


class LogFormat(StrEnum):
    """The forms of a log line."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least level of a line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LineFormatter(logging.Formatter):
    """Format an event as one line: time, level and logger as key=value, then the event."""

    def __init__(self) -> None:
        super().__init__("time=%(asctime)s level=%(levelname)s logger=%(name)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Format the time as UTC with milliseconds."""
        return time_text(record)

    def format(self, record: logging.LogRecord) -> str:
        """Format the record as one line, traceback included; FIFO_DEBUG keeps line breaks."""
        text = super().format(record)
        if "\n" in text and not os.environ.get("FIFO_DEBUG"):
            text = text.replace("\n", " | ")
        return text


class JsonFormatter(logging.Formatter):
    """Format an event as one JSON object: time, level, logger, then the event's own keys."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record; what is no key of the event is its `message`."""
        found: dict[str, Any] = {
            "time": time_text(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        for key, value in fields_of(record).items():
            found[key if key not in found else f"{key}_"] = value
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=True, default=str)


def time_text(record: logging.LogRecord) -> str:
    """The time of a record as UTC with milliseconds."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The keys and values of an event; numbers stay numbers. Text before the first key, or a record
    without any, is its `message`."""
    template, arguments = record.msg, record.args
    if not isinstance(template, str) or isinstance(arguments, dict):
        return {"message": record.getMessage()}
    left = list(arguments or ())
    keys = list(_KEY.finditer(template))
    found: dict[str, Any] = {}
    head = template[: keys[0].start()] if keys else template
    if head.strip():
        found["message"] = _filled(head.strip(), left, has_arguments=bool(arguments))
    for at, key in enumerate(keys):
        end = keys[at + 1].start() if at + 1 < len(keys) else len(template)
        value = _filled(template[key.end() : end].strip(), left, has_arguments=bool(arguments))
        found[key[1]] = value
    return found


def _filled(template: str, left: list[Any], *, has_arguments: bool) -> Any:
    """The value of a part of a template, which takes its arguments from the front of `left`."""
    if not has_arguments:
        return template
    wanted = [one for one in _CONVERSION.findall(template) if one != "%%"]
    taken, left[:] = left[: len(wanted)], left[len(wanted) :]
    if len(wanted) == 1 and wanted[0] == template and isinstance(taken[0], _PLAIN):
        return taken[0]
    return template % tuple(taken)


def start_logging(form: LogFormat = LogFormat.TEXT, level: LogLevel = LogLevel.INFO) -> None:
    """Log to stderr in this form from this level on, or everything with FIFO_DEBUG."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else LineFormatter())
    number = logging.getLevelNamesMapping()[level.upper()]
    if os.environ.get("FIFO_DEBUG"):
        number = logging.DEBUG
    logging.basicConfig(level=number, handlers=[handler], force=True)
    if number > logging.DEBUG:
        # A line per health probe would drown the events of the node.
        logging.getLogger("aiohttp.access").setLevel(max(number, logging.WARNING))
