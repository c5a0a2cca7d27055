"""The text format in which Prometheus reads figures (version 0.0.4).

Owns escaping and the order of lines. Written here, and not by a library, for it is a page long, and
so that a page of ten thousand lines can be made in pieces. Must not know what is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LABEL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family:
    """The samples of one name, in the order in which they are added."""

    __slots__ = ("lines", "name")

    def __init__(self, name: str, kind: str, text: str) -> None:
        self.name = name
        self.lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]

    def add(self, value: float, labels: str = "") -> None:
        """Add a sample; `labels` as `labels_of` renders them."""
        self.lines.append(f"{self.name}{labels} {_number(value)}")


class Page:
    """Families of samples, in the order in which they are begun."""

    def __init__(self) -> None:
        self._families: list[Family] = []

    def family(self, name: str, kind: str, text: str) -> Family:
        """Begin a family whose samples are added one by one."""
        found = Family(name, kind, text)
        self._families.append(found)
        return found

    def gauge(self, name: str, text: str, value: float) -> None:
        """Add a value that goes up and down."""
        self.family(name, "gauge", text).add(value)

    def counter(self, name: str, text: str, value: float) -> None:
        """Add a value that only grows while the process lives."""
        self.family(name, "counter", text).add(value)

    def samples(
        self,
        name: str,
        kind: str,
        text: str,
        values: Iterable[tuple[Mapping[str, str], float]],
    ) -> None:
        """Add a family with labels."""
        family = self.family(name, kind, text)
        for labels, value in values:
            family.add(value, labels_of(labels))

    def histogram(
        self, name: str, text: str, bounds: Sequence[float], buckets: Sequence[int], total: float
    ) -> None:
        """`buckets`: how many values up to each bound and above those below it, and one for the
        rest."""
        add_histogram(self.family(name, "histogram", text), {}, bounds, buckets, total)

    def __str__(self) -> str:
        return "\n".join(chain.from_iterable(one.lines for one in self._families)) + "\n"


def add_histogram(
    family: Family,
    labels: Mapping[str, str],
    bounds: Sequence[float],
    buckets: Sequence[int],
    total: float,
) -> None:
    """Add one histogram to a family of them."""
    upto = list(accumulate(buckets))
    for bound, count in zip((*map(_number, bounds), "+Inf"), upto, strict=True):
        family.lines.append(f"{family.name}_bucket{labels_of({**labels, 'le': bound})} {count}")
    shown = labels_of(labels)
    family.lines.append(f"{family.name}_sum{shown} {_number(total)}")
    family.lines.append(f"{family.name}_count{shown} {upto[-1]}")


def labels_of(labels: Mapping[str, str]) -> str:
    """Labels in braces, escaped; nothing for none."""
    if not labels:
        return ""
    inner = ",".join(f'{key}="{value.translate(_LABEL_ESCAPES)}"' for key, value in labels.items())
    return f"{{{inner}}}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
