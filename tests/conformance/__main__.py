"""`python -m tests.conformance URL` or `--client 'CMD {url}'`: each rule, and whether it holds.

Owns the command line. A URL names a node that leads, where queues named `conformance.*` are made;
a command starts a client's program, which a scripted node drives.
The exit code is 0 where every rule holds, 1 where one does not, 2 where no node could be asked.
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.conformance import clients, consuming, opening, publishing, queues
from tests.conformance.peer import REDIRECT, WELCOME, Broken, Peer, Target
from tests.conformance.rules import Outcome
from tests.conformance.suite import run

FAILED, NOT_ASKED = 1, 2
PARTS = (opening, publishing, consuming, queues)
"""The modules that hold the rules."""


def target_of(url: str) -> Target:
    """Read a URL. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("fifo", "fifos") or not parts.hostname or not parts.port:
        raise ValueError(f"{parts.scheme}://{parts.hostname} is no fifo://host:port; give one node")
    secret = None if parts.password is None else unquote(parts.password)
    user = None if parts.username is None else unquote(parts.username)
    tls = None
    if parts.scheme == "fifos":
        tls = ssl.create_default_context(cafile=dict(parse_qsl(parts.query)).get("ca"))
    return Target(parts.hostname, parts.port, user, secret, tls)


def leader_of(target: Target) -> Target:
    """Follow a redirect to the node that leads. Raises Broken or OSError."""
    peer = Peer(target)
    answer = peer.hello()
    peer.close()
    if answer.kind == WELCOME:
        return target
    if answer.kind == REDIRECT and answer.fields[1]:
        host, port = answer.fields[1].rsplit(":", 1)
        return replace(target, host=host, port=int(port))
    raise Broken(f"the node answers Hello with {answer.kind} {answer.fields}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "url", nargs="?", help="fifo://[user:password@]host:port, or fifos://...?ca=FILE with TLS"
    )
    asked.add_argument(
        "--client",
        metavar="COMMAND",
        help="a client's program, as `subject.py` has it: 'CMD {url}'",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--only", default="", metavar="TEXT", help="rules with this in their name")
    options = parser.parse_args(arguments)
    if options.client is not None:
        return _show(clients.run(options.client, options.only), as_json=options.json)
    try:
        target = leader_of(target_of(options.url))
    except (Broken, OSError, ValueError) as problem:
        print(f"cannot ask a node: {problem}", file=sys.stderr)
        return NOT_ASKED
    return _show(run(target, options.only), as_json=options.json)


def _show(running: Iterable[Outcome], *, as_json: bool) -> int:
    """Print each outcome as it comes; return the exit code."""
    outcomes = []
    for outcome in running:
        outcomes.append(outcome)
        if not as_json:
            print(_line(outcome), flush=True)
    failed = [one for one in outcomes if one.problem is not None]
    if as_json:
        print(json.dumps([_row(one) for one in outcomes], indent=1))
    else:
        print(f"{len(outcomes) - len(failed)} of {len(outcomes)} rules hold")
    return FAILED if failed or not outcomes else 0


def _line(outcome: Outcome) -> str:
    mark = "pass" if outcome.problem is None else "FAIL"
    why = "" if outcome.problem is None else f"\n      {outcome.problem}"
    return f"{mark}  {outcome.rule.section}  {outcome.rule.name}: {outcome.rule.text}{why}"


def _row(outcome: Outcome) -> dict[str, object]:
    rule = outcome.rule
    return {
        "section": rule.section,
        "rule": rule.name,
        "text": rule.text,
        "holds": outcome.problem is None,
        "problem": outcome.problem,
    }


if __name__ == "__main__":
    sys.exit(main())
