"""Options that apps of other frameworks give in groups: what is wrong is named, with its place."""

from __future__ import annotations

from typing import Any

import pytest

import fifo
from fifo.client.adapting import GroupNames, option_groups

NAMES = GroupNames(queue="conf: queue")


def test_options_of_one_queue_win_over_those_of_all() -> None:
    groups = option_groups({"lock": 5, "ttl": 60}, {"slow": {"lock": 60}}, {"priority": 1})
    assert groups.of_queue("any") == {"lock": 5, "ttl": 60}
    assert groups.of_queue("slow") == {"lock": 60, "ttl": 60}
    assert groups.of_consumers == {"max_lock": 7 * 86_400, "pull": False, "priority": 1}
    assert option_groups(None, None, {"max_lock": 9}).of_consumers["max_lock"] == 9


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        (("soon", None, None), "conf: queue: must be a mapping of names, not 'soon'"),
        (({5: 1}, None, None), "conf: queue: names are text, not 5"),
        (({"lock": "soon"}, None, None), "conf: queue: lock: must be seconds or a timedelta, not"),
        (({"locks": 5}, None, None), "conf: queue: locks: a queue has no such option; did you me"),
        (({"name": "q"}, None, None), "conf: queue: name: a queue has no such option"),
        ((None, ["orders"], None), r"queues: must be a mapping of names, not \['orders'\]"),
        ((None, {"orders": 5}, None), "queues: orders: must be a mapping of names, not 5"),
        ((None, {"a\n": {}}, None), "queues: queue name: contains the control character"),
        ((None, {"orders": {"ttl": -1}}, None), "queues: orders: ttl: must be zero or more second"),
        ((None, None, {"lock": "5"}), "consumer: lock: must be seconds or a timedelta, not '5'"),
        ((None, None, {"locks": 5}), "consumer: locks: a consumer has no such option; did you mea"),
        ((None, None, {"pull": True}), "consumer: pull: a worker has messages sent to it"),
        ((None, None, {"prefetch": 5}), "consumer: prefetch: the framework says; remove it"),
    ],
)
def test_what_cannot_be_is_named_with_its_group(groups: tuple[Any, ...], text: str) -> None:
    with pytest.raises(fifo.InvalidArgument, match=f"^{text}"):
        option_groups(*groups, names=NAMES, chosen={"prefetch": "the framework says"})
