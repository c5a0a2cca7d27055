"""Plausible bugs of `fifo apply` and `fifo doctor`: a test must notice each.

Owns the bugs, and the tests that hunt them.
"""

from __future__ import annotations

from node.cli import apply, definitions, diagnosis, logged
from tests.mutants.hunting import Hunt, Mutant
from tests.mutants.in_process import each_case, in_process
from tests.mutants.switch import Switch, edited, replaced
from tests.node.cli import test_apply as applying
from tests.node.cli import test_doctor as doctor

_plan = in_process(applying.test_the_plan_declares_updates_and_leaves_alone_what_is_as_wanted)
_order = in_process(applying.test_a_dead_letter_queue_comes_first_and_goes_last)
_fixed = in_process(applying.test_what_cannot_change_stops_the_plan_before_any_change)
_finding = each_case(doctor.test_a_finding_is_made_of_what_provokes_it)
_healthy = in_process(doctor.test_a_healthy_cluster_has_no_finding)

_named = each_case(doctor.test_an_address_of_the_url_is_no_member_for_being_named)
_majority = in_process(doctor.test_a_majority_is_one_of_the_members_alone)
_file = in_process(doctor.test_a_file_that_differs_from_the_log_is_named_member_by_member)
_said = in_process(doctor.test_the_newest_view_of_the_members_is_the_one_that_holds)
_noted = in_process(doctor.test_a_stopped_node_has_noted_who_the_members_are)

BUGS: dict[str, tuple[Switch, Hunt]] = {
    "the doctor overlooks an address that is another one in the log": (
        edited(logged, "compared", "if own != there:", "if False:"),
        _file,
    ),
    "the doctor takes a removed node for a member": (
        replaced(diagnosis.Seen, "strangers", {}),
        _named,
    ),
    "the doctor counts the addresses of the URL": (
        replaced(
            diagnosis.Seen, "members", property(lambda seen: dict.fromkeys(seen.addresses, ""))
        ),
        _majority,
    ),
    "the doctor overlooks a node of the file that is no member": (
        edited(logged, "compared", "if name not in members:", "if False:"),
        _file,
    ),
    "the doctor wants all members in the file of a node that joined": (
        edited(logged, "compared", "if settings.join:", "if False:"),
        _file,
    ),
    "an older view of the members holds": (
        edited(logged, "members_said", "max(views", "min(views"),
        _said,
    ),
    "the view of a cluster whose members never changed holds": (
        edited(logged, "members_said", '.get("number")', ""),
        _said,
    ),
    "an older note of the members holds": (
        edited(logged, "noted_in", "max(known", "min(known"),
        _noted,
    ),
    "apply deletes what the file lacks though it was not asked to": (
        edited(applying, "plan", "if prune:", "if True:"),
        _plan,
    ),
    "apply updates a queue that is as the file says": (
        edited(applying, "plan", "        if changes:", "        if True:"),
        _plan,
    ),
    "apply keeps an option that the file has left out": (
        edited(applying, "plan", "in pairs.items() if", "in pairs.items() if pair[1] and"),
        _plan,
    ),
    "apply begins though an option cannot change": (
        edited(applying, "plan", "if fixed:", "if False:"),
        _fixed,
    ),
    "apply deletes a dead-letter queue that a wanted queue names": (
        edited(apply, "_deletions", " | {one.dead_letter for one in wanted}", ""),
        _order,
    ),
    "apply deletes a dead-letter queue before those that use it": (
        edited(
            apply,
            "_deletions",
            "reversed(definitions.in_order(gone))",
            "definitions.in_order(gone)",
        ),
        _order,
    ),
    "apply makes a queue before its dead-letter queue": (
        edited(definitions, "in_order", "in reversed(chain)", "in chain"),
        _order,
    ),
    "the doctor overlooks a node that lags": (
        replaced(diagnosis, "LAG_ENTRIES", 1 << 60),
        _finding,
    ),
    "the doctor overlooks clocks that are apart": (
        replaced(diagnosis, "CLOCKS_APART_S", 1e9),
        _finding,
    ),
    "the doctor overlooks a slow disk": (replaced(diagnosis, "SLOW_SYNC_MS", 1e9), _finding),
    "the doctor overlooks a disk that is soon full": (
        replaced(diagnosis, "ROOM_FACTOR", 0),
        _finding,
    ),
    "the doctor overlooks connections that are nearly all taken": (
        replaced(diagnosis, "CONNECTIONS_FULL_SHARE", 2.0),
        _finding,
    ),
    "the doctor looks at a part of the checks": (
        replaced(diagnosis, "_CHECKS", diagnosis._CHECKS[:-1]),
        _finding,
    ),
    "the doctor overlooks a certificate that has ended": (
        edited(diagnosis, "of_times", "if found.ends <= now_s:", "if False:"),
        _finding,
    ),
    "the doctor finds a healthy cluster's clocks wrong": (
        replaced(diagnosis, "CLOCKS_APART_S", -1.0),
        _healthy,
    ),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("cli", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
