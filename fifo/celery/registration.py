"""The names `fifo` and `fifos` among kombu's transports.

Owns the entry in kombu's table of URL schemes. Loaded by the entry point group `kombu.serializers`,
the one that kombu imports before an app connects: it has none for transports. Imports
nothing but kombu's table, because every program with kombu runs it. Must not know the transport.
"""

from typing import Final

from kombu.transport import TRANSPORT_ALIASES
from kombu.utils import json

for _scheme in ("fifo", "fifos"):
    TRANSPORT_ALIASES.setdefault(_scheme, "fifo.celery.transport:Transport")

JSON: Final = (json.dumps, json.loads, "application/x-fifo-json", "utf-8")
"""A serializer, because the group is one of serializers: kombu's JSON under another name."""
