"""The text format in which Prometheus reads figures (version 0.0.4).

Owns escaping and the order of lines. Written here, and not by a library, for it is a page long.
Must not know what is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABEL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Page:
    """Families of samples, in the order in which they are added."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(self, name: str, text: str, value: float) -> None:
        """Add a value that goes up and down."""
        self.samples(name, "gauge", text, [({}, value)])

    def counter(self, name: str, text: str, value: float) -> None:
        """Add a value that only grows while the process lives."""
        self.samples(name, "counter", text, [({}, value)])

    def samples(
        self,
        name: str,
        kind: str,
        text: str,
        values: Iterable[tuple[Mapping[str, str], float]],
    ) -> None:
        """A family with labels."""
        self._head(name, kind, text)
        self._lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in values]

    def histogram(
        self, name: str, text: str, bounds: Sequence[float], buckets: Sequence[int], total: float
    ) -> None:
        """`buckets`: how many values up to each bound and above those below it, and one for the
        rest."""
        self._head(name, "histogram", text)
        upto = list(accumulate(buckets))
        for bound, count in zip((*map(_number, bounds), "+Inf"), upto, strict=True):
            self._lines.append(f'{name}_bucket{{le="{bound}"}} {count}')
        self._lines += [f"{name}_sum {_number(total)}", f"{name}_count {upto[-1]}"]

    def _head(self, name: str, kind: str, text: str) -> None:
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    inner = ",".join(f'{key}="{value.translate(_LABEL_ESCAPES)}"' for key, value in labels.items())
    return f"{{{inner}}}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
