"""Attacks of the two surveys that this suite was asked for, and what covers each here.

Owns the index from an attack to kinds and tests, gaps among them. Must not know how one is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.neighbours.kinds import MIX

_BROKER: Final = "tests/node/broker"
_DISKS: Final = "tests/node/cli/test_disk_trouble.py"


@dataclass(frozen=True, slots=True)
class Surveyed:
    """An attack of a survey: the kinds and the tests that cover it, and what of it none covers."""

    attack: str
    kinds: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    gap: str = ""


SURVEYED: Final = (
    # --- what a client sends, and how much of it ---
    Surveyed("random bytes over 400 connections", ("random bytes",)),
    Surveyed("900 frames with flipped bits", ("flipped bits",)),
    Surveyed("2,500 sound frames with evil values in all fields", ("evil values",)),
    Surveyed("300 truncated frames", ("truncated",)),
    Surveyed("20 impossible lengths, before and after the welcome", ("impossible lengths",)),
    Surveyed("containers 500,000 deep, a million of them, claims of 4 GB", ("nested",)),
    Surveyed("28 lying raw parts", ("lying columns",)),
    Surveyed("600 half-open connections", ("half open",)),
    Surveyed("400 hellos byte by byte", ("slow hellos",)),
    Surveyed("100 begun frames of 1 MB", ("begun frames",)),
    Surveyed("20 connections that ask for megabytes and never read", ("never reads",)),
    Surveyed("credit of 2^32-1, 200 subscriptions of 65,535", ("huge credit",)),
    Surveyed("20,000 subscriptions in one session", ("subscriptions",)),
    Surveyed("subscriptions whose socket is cut", ("subscriptions cut",)),
    Surveyed("renewals of 0.5 to 1 MB, pipelined", ("large renewals", "lone renewals")),
    Surveyed("settlements of 1,000 lone tokens, pipelined", ("lone settlements",)),
    Surveyed("400,000 pings in one go", ("pings",)),
    Surveyed("200,000 frames of an unknown type", ("unknown types",)),
    Surveyed("100,000 refused publishes", ("refused publishes",)),
    Surveyed("100,000 publishes that are taken", ("publishes", "large publishes")),
    Surveyed("8 connections with 50 lists in flight", ("lists",)),
    Surveyed("20,000 lists in one go", ("one list burst",)),
    Surveyed("names that an operator's terminal executes", ("poisoned names",)),
    Surveyed(
        "extreme values, NULs, 1 KiB keys, 60 KB headers, delays of ten years",
        ("evil values", "extreme messages"),
    ),
    # --- what one client takes from all ---
    Surveyed(
        "5,000 idle connections with sessions",
        ("idle sessions",),
        gap="as many as 1,024 descriptors let in, about 200",
    ),
    Surveyed(
        "10,000 sessions of a user without rights",
        ("sessions without rights", "sessions"),
        (f"{_BROKER}/test_quotas.py::test_an_operator_gets_in_where_all_sessions_are_taken",),
    ),
    Surveyed(
        "100,000 named producers of a user without rights",
        ("producers without rights", "producers"),
    ),
    Surveyed("all queues and consumers taken by one user", ("queues", "subscriptions cut")),
    Surveyed("33 programs a second that end without a word", ("programs that die", "crash loop")),
    # --- what is another's ---
    Surveyed(
        "tokens and consumers of other users: settle, renew, cancel, credit, alive, durable",
        ("other tokens", "few rights"),
    ),
    Surveyed(
        "tokens of another session of the same user",
        ("foreign handles",),
        ("tests/machine/test_settle.py::test_a_bare_token_settles_nothing_of_another_session",),
    ),
    Surveyed(
        "a stolen session id",
        ("stolen sessions",),
        (f"{_BROKER}/test_users.py::test_a_session_is_resumed_by_its_own_user_only",),
    ),
    Surveyed(
        "all requests with no right, only publish, only consume", ("without rights", "few rights")
    ),
    Surveyed("another's producer forgotten", ("forgotten producers",)),
    # --- log-ins ---
    Surveyed("100 guessers at 50 addresses", ("guessers",)),
    Surveyed("a stale token behind one NAT, 40 connections", ("stale tokens",)),
    Surveyed("users reloaded while a password is hashed", ("reloads",)),
    # --- the other ports ---
    Surveyed(
        "300 junk connections, frames without a handshake, strangers' hellos at the peer port",
        ("peer junk", "peer frames"),
    ),
    Surveyed(
        "a forged peer with the empty secret asks for votes of term 10^6",
        ("forged peer", "forged leader", "proven again"),
        gap="a program that leads where there is no secret: it is a member, and can stop the nodes"
        " (security.md)",
    ),
    Surveyed(
        "peer ports flooded, 800 half-open a second, a follower killed and restarted",
        ("flooded restart", "flooded leader restart", "peer half open"),
        gap="a follower or the leader is killed; two nodes at once are not",
    ),
    Surveyed(
        "27 malformed requests, traversal, 2,000 metrics pipelined, 2,000 slow ones",
        ("http oddities", "http pipelined", "http slow", "http bodies"),
    ),
    Surveyed("metrics by 8 threads", ("metrics",)),
    Surveyed(
        "exposed by default: all interfaces, a public address, no users, no secret",
        tests=(
            "tests/node/raft/test_transport.py::"
            "test_b19_all_interfaces_are_never_bound_by_accident_nor_a_secret_forgotten",
            "tests/node/test_config.py::"
            "test_peers_on_other_machines_are_proven_by_a_secret_or_by_certificates",
        ),
    ),
    Surveyed(
        "TLS 1.0 and 1.1; TLS to a plain port and back",
        ("tls hellos",),
        (
            "tests/client/test_users.py::test_tls_before_1_2_is_refused",
            "tests/client/test_users.py::test_a_plain_port_is_named_to_a_tls_client",
            "tests/client/test_users.py::test_a_client_sends_nothing_to_an_untrusted_node",
        ),
    ),
    Surveyed(
        "1,074 idle connections to each port, 1,024 descriptors",
        ("idle everywhere",),
        ("tests/node/http/test_doors.py::test_a_lack_of_descriptors_is_an_alarm_and_passes",),
    ),
    # --- room ---
    Surveyed(
        "a follower's small disk filled under a larger leader",
        tests=(
            f"{_DISKS}::"
            "test_a_small_follower_stops_publishers_in_time_and_has_room_again_once_drained",
        ),
    ),
    Surveyed(
        "disks of 480 and 900 MB filled and drained",
        tests=(
            "tests/node/raft/test_shortage.py::"
            "test_an_emptied_group_has_room_again_within_30_s_and_idle",
        ),
        gap="real disks by `make disks`, not in `make test`",
    ),
    Surveyed(
        "a leader's disk that hangs for 25 s under load",
        tests=(f"{_DISKS}::test_a_leader_with_a_slow_disk_keeps_leading_and_the_others_confirm",),
        gap="a hang by `make disks`, not in `make test`",
    ),
    Surveyed("several of these at once", (MIX,)),
)
"""In the order of the surveys' subjects. What a survey found in damaged files, in members that
forget or come twice, and in clients, is no attack of a neighbour and stands elsewhere."""
