"""The backoff of semantics.md section 7, computed the slow way from its text form."""

from fractions import Fraction

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(text: str) -> int:
    """A duration like 1s or 250ms."""
    digits = text.rstrip("smhd")
    return int(Fraction(digits) * UNITS[text[len(digits) :]])


def delay_ms(text: str, failures: int) -> int:
    """Milliseconds to wait after `failures` failures before this one."""
    kind, _, rest = text.partition(":")
    if kind == "fixed":
        return milliseconds(rest)
    if kind == "table":
        steps = [milliseconds(part) for part in rest.split(",")]
        return steps[min(failures, len(steps) - 1)]
    span, _, factor = rest.partition("*")
    low, high = (milliseconds(part) for part in span.split(".."))
    value = Fraction(low) * Fraction(factor or "2") ** failures
    return min(high, int(value))
