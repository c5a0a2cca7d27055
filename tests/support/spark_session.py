"""The one JVM with Spark for all tests of a process: slow to start, and a process can have one.

Owns its start and its end, and puts the environment back that a start changes. Every test that uses
Spark in its own process asks here, and gets a session of its own: settings, views and data sources
of one are not seen by another. Its Python workers are like those of a cluster where only the client
is installed: `import node` fails in every task.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.processes import environment
from bench.spark import start_spark

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

MASTER = "local[2,2]"
"""Two slots, and a failed task is tried once more."""

WITHOUT_NODE = """\
import sys

# PySpark starts its workers as `python -m pyspark...`; the driver keeps the checkout.
if any(argument.startswith("pyspark") for argument in sys.orig_argv):
    sys.modules["node"] = None
"""


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """A session; the first caller starts the JVM, and ends it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkContext._active_spark_context
    if active is not None:
        yield _new(SparkSession(active))
        return
    before, temporary = dict(os.environ), tempfile.tempdir
    folder = Path(tempfile.mkdtemp(prefix="fifo-spark-"))
    (folder / "sitecustomize.py").write_text(WITHOUT_NODE)
    os.environ.update(environment({"PYTHONPATH": str(folder)}))
    context = start_spark("tests", MASTER, folder)
    # The JVM has what it needs; this process goes on as it was.
    os.environ.clear()
    os.environ.update(before)
    tempfile.tempdir = temporary
    try:
        context.setLogLevel("OFF")
        yield _new(SparkSession(context))
    finally:
        _end(context)
        shutil.rmtree(folder, ignore_errors=True)


def _new(session: SparkSession) -> SparkSession:
    """A further session, and the one that Spark's JVM looks up data sources in from now on: it asks
    the thread's active session, not the one that the DataFrame came from."""
    found = session.newSession()
    jvm: Any = found._jvm
    jvm.SparkSession.setActiveSession(found._jsparkSession)
    return found


def _end(context: SparkContext) -> None:
    """Stop it, and wait until its JVM is gone."""
    gateway: Any = context._gateway
    context.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    type(context)._gateway = type(context)._jvm = None
