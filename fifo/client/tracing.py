"""The way to spans of OpenTelemetry, where the program has set it up (docs/tracing.md).

Owns the look for it, one for each client: a program that does not import OpenTelemetry has none of
it, and nothing is imported for it. Must not know spans: `spans` makes them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fifo.client.spans import Spans


def spans() -> Spans | None:
    """The maker of the spans of a client; None where the program has no provider of tracers."""
    library: Any = sys.modules.get("opentelemetry.trace")
    if library is None:
        return None
    provider = library.get_tracer_provider()
    if isinstance(provider, library.ProxyTracerProvider | library.NoOpTracerProvider):
        return None
    from fifo.client.spans import Spans

    return Spans()


def carried() -> dict[str, str]:
    """The current context as headers, for another process; empty where there is none."""
    found: dict[str, str] = {}
    library: Any = sys.modules.get("opentelemetry.propagate")
    if library is not None:
        library.inject(found)
    return found


@contextmanager
def within(carrier: Mapping[str, str]) -> Iterator[None]:
    """Make the context of another process current, where this one has OpenTelemetry."""
    propagate: Any = sys.modules.get("opentelemetry.propagate")
    if not carrier or propagate is None:
        yield
        return
    context: Any = sys.modules["opentelemetry.context"]
    token = context.attach(propagate.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)
