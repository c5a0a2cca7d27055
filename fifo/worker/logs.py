"""Logs of the command: lines for people, or JSON for programs.

Owns the two formats. The fields of a record about a message are its attribute `fifo`. Must not know
what is logged; libraries and apps log by the standard library, as they like.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "text": record.getMessage(),
            **getattr(record, "fifo", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up(level: str, format: str) -> None:
    """Log to stderr from here on."""
    handler = logging.StreamHandler(sys.stderr)
    text = "%(asctime)s %(levelname)s [%(process)d] %(message)s"
    handler.setFormatter(JsonFormatter() if format == "json" else logging.Formatter(text))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
