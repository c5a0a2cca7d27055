"""The delay of a backoff, in exact integers: PIP-106 and PIP-130.

Owns the computation. The kinds and their text forms are those of `fifo.words.backoff`. Must not
know queues or messages.
"""

from typing import assert_never

from fifo.words.backoff import Backoff, DelayTable, ExponentialDelay, FixedDelay


def delay_ms(policy: Backoff, failures: int) -> int:
    """Milliseconds to wait after `failures` failures before this one, 0 for the first."""
    match policy:
        case FixedDelay():
            return policy.delay_ms
        case ExponentialDelay():
            return _exponential(policy, failures)
        case DelayTable():
            return policy.delays_ms[min(max(failures, 0), len(policy.delays_ms) - 1)]
        case _:
            assert_never(policy)


def _exponential(policy: ExponentialDelay, failures: int) -> int:
    if failures <= 0 or policy.min_ms == 0:
        return policy.min_ms
    numerator, denominator = policy.min_ms, 1
    # A product of exact fractions: a float would differ between two machines some day. It stops at
    # the maximum, which a multiplier of 1.1 or more reaches in some 300 rounds: bounded.
    for _ in range(failures):
        numerator *= policy.multiplier_thousandths
        denominator *= 1_000
        if numerator >= policy.max_ms * denominator:
            return policy.max_ms
    return numerator // denominator
