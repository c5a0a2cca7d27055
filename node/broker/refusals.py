"""The machine's refusals in the form of the protocol: code, text and detail.

Owns the conversion; the code of each refusal is a row of `fifo.words.codes`. Must not know
requests.
"""

from __future__ import annotations

from typing import Any

from fifo.machine.contract import Refused
from fifo.wire.errors import RETRYABLE
from fifo.words.codes import CODE_OF_REFUSAL


def wire_code(refused: Refused) -> str:
    """The protocol's code for a refusal."""
    return CODE_OF_REFUSAL[refused.code]


def error_item(refused: Refused) -> tuple[str, str, bool, object]:
    """A refusal in the form of a confirm: code, text, retryable, detail."""
    code = wire_code(refused)
    return (code, refused.text, code in RETRYABLE, detail_of(refused))


def detail_of(refused: Refused) -> object:
    """A refusal's detail for programs, as plain lists and maps."""
    return None if refused.detail is None else plain(refused.detail)


def plain(value: Any) -> Any:
    """Convert a value of the machine to its form on the wire: tuples as lists, keys as text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
