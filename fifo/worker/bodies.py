"""Bodies of messages: JSON or msgpack, from plain data and back.

Owns the two formats, and how values that neither has (dates, dataclasses, enums, models) become
plain. Must not know the parameters of a task: `converters` makes values of plain data again.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

import msgpack

from fifo.client import InvalidArgument
from fifo.worker.errors import Unfit

Format: TypeAlias = Literal["json", "msgpack"]


class Codec(NamedTuple):
    """A format: its content type, and both directions."""

    content_type: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _plain(value: Any) -> Any:
    """Make plain what the format does not have. Raises TypeError."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID | Decimal | PurePath):
        return str(value)
    if isinstance(value, set | frozenset):
        return list(value)
    return _of_a_library(value)


def _of_a_library(value: Any) -> Any:
    msgspec: Any = sys.modules.get("msgspec")
    if msgspec is not None and isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} cannot be sent; send a dataclass, or plain data")


def _plain_text(value: Any) -> Any:
    """The same for JSON, which has no bytes."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    return _plain(value)


_json_encoder: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain_text
)


def _to_json(value: Any) -> bytes:
    return _json_encoder.encode(value).encode()


def _from_json(body: bytes) -> Any:
    return json.loads(body)


def _to_msgpack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, default=_plain)
    return packed


def _from_msgpack(body: bytes) -> Any:
    return msgpack.unpackb(body, strict_map_key=False)


CODECS: Final[dict[Format, Codec]] = {
    "json": Codec("application/json", _to_json, _from_json),
    "msgpack": Codec("application/msgpack", _to_msgpack, _from_msgpack),
}
_BY_CONTENT_TYPE: Final = {codec.content_type: codec for codec in CODECS.values()}


def encode(codec: Codec, value: Any, what: str) -> bytes:
    """Encode a value. Raises InvalidArgument with the reason."""
    try:
        return codec.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"{what}: {error}") from error


def decode(body: bytes, content_type: str | None) -> Any:
    """Decode a body; without a content type it is JSON. Raises Unfit."""
    media = "application/json" if content_type is None else content_type.partition(";")[0].strip()
    codec = _BY_CONTENT_TYPE.get(media)
    if codec is None:
        known = " or ".join(_BY_CONTENT_TYPE)
        raise Unfit(f"the content type is {media[:80]!r}, not {known}")
    try:
        return codec.decode(body)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        kind = media.removeprefix("application/")
        raise Unfit(f"the body is no {kind}: {str(error) or type(error).__name__}") from error
