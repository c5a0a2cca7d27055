"""Errors of a failed Spark job: the task's own error, not a page of Java."""

from __future__ import annotations

from bench.spark import last_python_error

FAILED = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
fifo.client.errors.ConnectionLost: no leader within 10 s

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker.py", line 2, in main
    raise Other
bench.Other: gave up: no leader

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
Driver stacktrace:
java.lang.Thread: not this
"""


def test_a_failed_job_reports_the_last_error_of_its_task() -> None:
    """The error that left the task, in one line."""
    assert last_python_error(FAILED) == "bench.Other: gave up: no leader"


def test_an_error_of_sparks_own_is_its_first_line() -> None:
    """There was no Python in it."""
    assert last_python_error("No more slots\n\tat x") == "No more slots"
    assert last_python_error("") == "no reason given"
