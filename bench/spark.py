"""A Spark session for a load job on one machine.

Owns how Spark is set up here: which Java, which Python the workers get, what is switched off, where
it writes. Knows no queue. PySpark is imported late, because its import and the JVM behind it take
seconds that a user who only asks for `--help` should not wait for.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
import tempfile
from typing import TYPE_CHECKING

from bench.java import INSTALL_HINT, find_java
from bench.processes import environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark import SparkContext

LOOPBACK = "127.0.0.1"


class JavaMissing(Exception):
    """There is no Java to run Spark on; the text says how to get one."""


def settings(folder: Path, java_home: Path) -> dict[str, str]:
    """Settings of a session, by name; everything that it writes lies below `folder`."""
    jvm = (
        f"-Djava.io.tmpdir={folder} -Dderby.system.home={folder}"
        # Else each JVM leaves a file in the machine's temporary folder when it is killed.
        " -XX:-UsePerfData"
        # Spark makes one method of a query; Java only interprets those above 8000 bytes.
        " -XX:-DontCompileHugeMethods"
    )
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": jvm,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.jars.ivy": str(folder / "ivy"),
        # A task that ran twice would publish twice: it fails instead, and the job with it.
        "spark.task.maxFailures": "1",
        "spark.speculation": "false",
        "spark.executorEnv.JAVA_HOME": str(java_home),
    }


def start_spark(
    name: str, master: str, folder: Path, changes: Mapping[str, str] | None = None
) -> SparkContext:
    """Start a JVM with a context; the caller stops it. Raises JavaMissing.

    `changes` are settings that differ from those of `settings`.
    """
    java = find_java()
    if java is None:
        raise JavaMissing(INSTALL_HINT)
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(environment())
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    # PySpark and its workers make temporary folders of their own, which stay where one is killed.
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    # Without it workers run whichever python3 comes first on the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setAppName(name).setMaster(master)
    conf.setAll(list({**settings(folder, java.home), **(changes or {})}.items()))
    return SparkContext(conf=conf)


class JobFailed(Exception):
    """A task of a Spark job raised; the text is what it raised, in one line."""


@contextlib.contextmanager
def task_errors() -> Iterator[None]:
    """Inside, a job's failure is a JobFailed: Spark's own exception is a page of Java's frames, and
    cannot even be read once its JVM is gone.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise JobFailed(last_python_error(str(error))) from None


def last_python_error(text: str) -> str:
    """The last line of the first Python traceback in Spark's message; else its first line."""
    lines = text.splitlines()
    raised = ""
    for line in itertools.dropwhile(lambda line: "Traceback (most recent" not in line, lines):
        if line.startswith("\tat "):
            break
        if re.match(r"[A-Za-z_][\w.]*(?::|$)", line):
            raised = line
    return raised or next(iter(lines), "no reason given")
