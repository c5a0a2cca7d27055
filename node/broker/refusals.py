"""The machine's refusals as error codes of the protocol.

Owns the table from `fifo.machine.types.Code` to `fifo.wire.errors.Code`: the machine has words for
what a client cannot act on by itself, and the protocol has fewer. Change it with either of them.
"""

from __future__ import annotations

from typing import Any

from fifo.machine.replies import Refused
from fifo.wire.errors import RETRYABLE
from fifo.words.codes import CODE_OF_REFUSAL


def wire_code(refused: Refused) -> str:
    """The protocol's code for a refusal."""
    return CODE_OF_REFUSAL[refused.code]


def error_item(refused: Refused) -> tuple[str, str, bool, object]:
    """A refusal as it stands in a confirm: code, text, retryable, detail."""
    code = wire_code(refused)
    return (code, refused.text, code in RETRYABLE, detail_of(refused))


def detail_of(refused: Refused) -> object:
    """A refusal's detail for programs, as plain lists and maps."""
    return None if refused.detail is None else plain(refused.detail)


def plain(value: Any) -> Any:
    """A value of the machine as the wire carries it: tuples as lists, keys as text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
