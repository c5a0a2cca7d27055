"""`python -m bench.peers.picture RUN.json ...`: the comparison as a picture, or a page's table.

Owns how a run of `bench.peers --json` is shown to people: each figure of each load is a line, with
a dot for each system where this project is so many times better (right of 1) or worse (left of it);
what is worst comes first. Measures nothing. Several runs may be given: of some systems each.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.drawing import DATA, INK, SECOND, THIRD, page, write
from bench.peers.servers import Fifo

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH_INCHES: Final = 9.0
_LINE_INCHES: Final = 0.27
_FRAME_INCHES: Final = 1.3
_LOOKS: Final = ((DATA, "o"), (SECOND, "s"), (THIRD, "^"))
"""Colour and mark of each system: either is enough to tell them apart."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Factor by which this project is better than a system, by one figure of one load."""

    load: str
    figure: str
    system: str
    median: float
    lowest: float
    highest: float

    @property
    def line(self) -> str:
        """The words beside its line."""
        return f"{self.load}: {self.figure}"


def ratios_of(reports: Sequence[dict[str, Any]]) -> list[Ratio]:
    """All ratios of some runs; a later run of the same system counts."""
    found = {}
    for report in reports:
        for row in report["figures"]:
            if row["ratio"]:
                one = Ratio(row["load"], row["figure"], row["system"], *row["ratio"])
                found[one.line, one.system] = one
    return list(found.values())


def lines_of(ratios: Sequence[Ratio]) -> list[tuple[str, list[Ratio]]]:
    """Ratios by line, the line with the worst of all first."""
    lines: dict[str, list[Ratio]] = {}
    for one in ratios:
        lines.setdefault(one.line, []).append(one)
    return sorted(lines.items(), key=lambda line: min(one.median for one in line[1]))


def names_of(reports: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Each system but this project, with its version."""
    return {
        name: f"{name} ({about['version']})"
        for report in reports
        for name, about in report["systems"].items()
        if name != Fifo.name
    }


def markdown(reports: Sequence[dict[str, Any]]) -> str:
    """The table of a page: the same lines in the same order."""
    names = names_of(reports)
    ours = {
        f"{row['load']}: {row['figure']}": row["values"][0]
        for report in reports
        for row in report["figures"]
        if row["system"] == Fifo.name
    }
    table = [["load: figure", "here", *names.values()], ["--"] * (2 + len(names))]
    for line, ratios in lines_of(ratios_of(reports)):
        cells = {one.system: _cell(one) for one in ratios}
        table.append([line, _short(ours[line]), *(cells.get(name, "") for name in names)])
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def draw(reports: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the picture."""
    lines, names = lines_of(ratios_of(reports)), names_of(reports)
    height = _FRAME_INCHES + _LINE_INCHES * len(lines)
    with page(_WIDTH_INCHES, height) as (picture, axes):
        for (system, label), (colour, mark) in zip(names.items(), _LOOKS, strict=False):
            dots = [
                (one, place)
                for place, (_, ratios) in enumerate(lines)
                for one in ratios
                if one.system == system
            ]
            places = [place for _, place in dots]
            axes.hlines(
                places,
                [one.lowest for one, _ in dots],
                [one.highest for one, _ in dots],
                color=colour,
                alpha=0.5,
                linewidth=2,
            )
            medians = [one.median for one, _ in dots]
            axes.plot(medians, places, mark, color=colour, ms=6, ls="none", label=label)
        axes.axvline(1, color=INK, linewidth=1)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g} x")
        axes.set_yticks(range(len(lines)), [line for line, _ in lines], fontsize=9)
        axes.tick_params(axis="y", length=0)
        axes.minorticks_off()
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.set_xlabel("left of 1: this project is worse; right of it: better, so many times")
        axes.spines[["top", "right", "left"]].set_visible(False)
        picture.legend(loc="outside upper center", ncols=3, frameon=False, labelcolor=INK)
        write(picture, path)


def _cell(one: Ratio) -> str:
    return f"{_short(one.median)} ({_short(one.lowest)} to {_short(one.highest)})"


def _short(value: float) -> str:
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 3 else f"{value:.2f}"


def main(arguments: list[str] | None = None) -> int:
    """Draw, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers.picture", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="what bench.peers --json printed")
    parser.add_argument("--out", type=Path, help="the picture, an SVG file")
    options = parser.parse_args(arguments)
    reports = [json.loads(run.read_text()) for run in options.runs]
    if not ratios_of(reports):
        parser.error("there is no ratio: a run needs this project and another system")
    print(markdown(reports))
    if options.out is not None:
        draw(reports, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
