"""The fault suite from the command line: `make jepsen`, `make soak HOURS=n`, or one run again.

Owns the options, which plans a suite is made of, and the exit code: 0 only where nothing is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from tests.jepsen import mutant_plans, namespaces, report
from tests.jepsen.run import Plan, Result, all_faults, run, skipped
from tests.jepsen.suite import Suite
from tests.jepsen.workloads import KNOWN


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.jepsen",
        description="Real nodes and clients, real faults, and the checks of docs/faults.md.",
    )
    parser.add_argument("--workload", choices=sorted(KNOWN), help="one run of this")
    parser.add_argument("--faults", default="", help="by name, with commas between")
    parser.add_argument("--lasting", help="a fault that stays while the others come and go")
    parser.add_argument("--mutant", help="a bug to put back: tests/jepsen/mutants.py")
    parser.add_argument("--namespaces", action="store_true", help="nodes in networks of their own")
    parser.add_argument("--nodes", type=int, default=3, choices=(3, 5), help="of the cluster")
    parser.add_argument("--secured", action="store_true", help="TLS, and a user with a password")
    parser.add_argument("--release", default="", help="an older one that nodes begin with")
    parser.add_argument("--after", default="", help="faults behind its upgrade, as --faults")
    parser.add_argument("--calm", type=float, default=0.0, help="seconds of load after healing")
    parser.add_argument("--mutants", action="store_true", help="hunt all bugs put back")
    parser.add_argument("--seed", type=int, default=None, help="decides the schedule of faults")
    parser.add_argument("--seconds", type=float, default=12.0, help="of faults in one run")
    parser.add_argument("--minutes", type=float, default=10.0, help="of a whole suite")
    parser.add_argument("--hours", type=float, help="a soak: one cluster, this long")
    parser.add_argument("--folder", type=Path, default=Path("jepsen-runs"), help="where runs lie")
    parser.add_argument("--report", type=Path, default=Path("jepsen-report.html"))
    options = parser.parse_args(arguments)
    options.faults, options.after = (
        tuple(filter(None, given.split(","))) for given in (options.faults, options.after)
    )
    known = all_faults()
    for name in (*options.faults, *options.after, *filter(None, [options.lasting])):
        if name not in known:
            parser.error(f"no fault is called {name}; known here: {', '.join(sorted(known))}")
    return options


def main() -> int:
    """Run one workload where it is named, else a suite of them for a number of minutes."""
    options = parse()
    # The end by a signal cleans up, as with Ctrl-C: disks and networks are the machine's.
    # asyncio makes a SIGINT cancel what runs.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    if namespaces.why_not() is None:
        if namespaces.INSIDE not in os.environ:
            namespaces.enter(sys.argv[1:])
        namespaces.loopback_up()
    else:
        print(f"skipped: real networks: {namespaces.why_not()}", flush=True)
    seed = int(time.time()) if options.seed is None else options.seed
    for what in skipped():
        print(f"skipped: {what}", flush=True)
    if options.mutants:
        return 0 if mutant_plans.score(options.folder.absolute()) else 1
    if options.workload is not None:
        plan = Plan(
            options.workload, options.faults, seed, options.seconds, options.lasting,
            options.mutant, options.namespaces and namespaces.why_not() is None, options.nodes,
            options.secured, options.release, options.after, options.calm,
        )  # fmt: skip
        return _one(plan, options.folder)
    soak = options.hours is not None
    limit_s = options.hours * 3600 if soak else options.minutes * 60
    suite = Suite(options.folder, seed, limit_s, options.seconds, soak=soak)
    if suite.secured:
        print(f"soak: seed {seed}: TLS on every port, and a user", flush=True)
    good = suite.run()
    options.report.write_text(report.html(suite))
    print(report.markdown(suite))
    for name in suite.unseen:
        print(f"never seen (V5): {name}")
    if soak:
        print(f"memory of the nodes: {suite.growth_text()}")
    print(f"report: {options.report}")
    return 0 if good else 1


def _one(plan: Plan, folder: Path) -> int:
    result: Result = asyncio.run(run(plan, (folder / f"{plan.workload}-{plan.seed}").absolute()))
    print(result.text())
    return 0 if result.good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
