"""`python -m tests.suites [kombu celery dramatiq taskiq] [--write]`: theirs against ours.

The exit code is 1 where a test failed that nothing explains, and 2 where something is missing that
a suite needs.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.suites import environment, flower, page, redis_server
from tests.suites.plans import CELERY, PLANS
from tests.suites.running import run
from tests.support.cluster import loopback_config
from tests.support.shared import SharedCluster


def main() -> int:
    """Run the suites that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="suite", help=", ".join(PLANS))
    parser.add_argument("--write", action="store_true", help="write what came of it into the docs")
    options = parser.parse_args()
    strange = set(options.suites) - set(PLANS)
    if strange:
        parser.error(f"no suite is called {min(strange)}; use {', '.join(PLANS)}")
    plans = [PLANS[name] for name in options.suites or PLANS]
    environment.FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fifo-suites-") as name, contextlib.ExitStack() as ends:
        folder = Path(name)
        port = None
        if any(plan.needs_redis for plan in plans):
            try:
                port = ends.enter_context(redis_server.redis(folder))
            except redis_server.NoRedis as error:
                print(f"results of Celery's tests need redis: {error}", file=sys.stderr)
                return 2
        print(f"an environment for the suites: {environment.ENVIRONMENT}", flush=True)
        environment.make([plan.package for plan in plans])
        cluster = SharedCluster(loopback_config(folder, 3))
        ends.callback(cluster.close)
        cluster.make_ready()
        wrong = 0
        if CELERY in plans:
            try:
                print(flower.look(cluster.url, folder), flush=True)
            except (AssertionError, subprocess.SubprocessError) as error:
                wrong += 1
                print(error, file=sys.stderr, flush=True)
        for plan in plans:
            outcome = run(plan, cluster.url, port if plan.needs_redis else None)
            wrong += len(outcome.faults)
            print(page.block(outcome, "this checkout", "now"), flush=True)
            if options.write:
                page.write(outcome)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
