"""The line of a stack by which dead letters are grouped.

Owns the choice of that line, the same on every node. Must not know where stacks come from.
"""

LINE_BYTES_MAX = 512
"""Bytes of the line; a longer one is cut, so that a group has a short name."""


def stack_line(stack: str | None) -> str:
    """The line of the place that failed: the last `File "..."` of a Python traceback, the first
    `at ...` of a Java or JavaScript stack, else the first line; empty without a stack."""
    lines = [line.strip() for line in (stack or "").splitlines()]
    places = [line for line in lines if line.startswith('File "')][-1:]
    places += [line for line in lines if line.startswith("at ")][:1]
    places += [line for line in lines if line][:1]
    line = places[0] if places else ""
    return line.encode()[:LINE_BYTES_MAX].decode(errors="ignore")
