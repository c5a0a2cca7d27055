"""The plans: the files of each suite, fixtures beside them, and tests that do not apply.

Owns the plans. A reason belongs to the beginning of a test's name, `file::class::name` without
`.py`; what is not named here and does not pass is a fault. Must not know how a plan is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Plan:
    """A suite: its package, its files, what is laid among them, and what does not apply."""

    package: str
    page: str
    """The page of `docs` that shows what came of it."""
    folder: str
    """Of the tests, in the source package."""
    files: tuple[str, ...]
    laid: Mapping[str, str] = field(default_factory=dict)
    """Fixtures of ours: the name among the tests, and the file here."""
    options: tuple[str, ...] = ()
    needs_redis: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    """Reasons by words of the failure: for tests of what another broker is made of."""


_DELAY_IS_KEPT: Final = "waits 1 s for a retry after 5 s; the broker in memory forgets delays"
_SENDERS_CONTEXT: Final = "a context variable of the sender, which no broker but that in memory has"
_SAME_WITH_REDIS: Final = "fails with redis as broker too, on this machine"

KOMBU: Final = Plan(
    package="kombu",
    page="celery",
    folder="t/integration",
    files=("test_fifo.py",),
    laid={"test_fifo.py": "kombu_fifo.py"},
    reasons={
        "test_fifo::test_failover::test_failover_switches_to_alternate_url": (
            "looks at the port that kombu reads from a URL; ours is read whole, for its hosts"
        ),
    },
)

CELERY: Final = Plan(
    package="celery",
    page="celery",
    folder="t/integration",
    files=(
        "test_backend.py",
        "test_backend_leak_in_fixture_teardown.py",
        "test_beat.py",
        "test_cache_backend.py",
        "test_canvas.py",
        "test_connection_recovery.py",
        "test_database_backend.py",
        "test_events_state_memory_leak.py",
        "test_group_chains.py",
        "test_inspect.py",
        "test_loader.py",
        "test_logfile_format.py",
        "test_mem_leak_in_exception_handling.py",
        "test_redis_backend.py",
        "test_request_backend_down.py",
        "test_security.py",
        "test_serialization.py",
        "test_tasks.py",
        "test_upgrade.py",
        "test_worker.py",
        "test_nesting.py",
    ),
    laid={"test_nesting.py": "celery_nesting.py"},
    options=("-p", "celery.contrib.pytest"),
    needs_redis=True,
    reasons={
        "::t.integration.test_backend": "Azure's result backend, which is not installed",
        "test_canvas::test_chord::test_disabling_flag_allow_error_cb": _SAME_WITH_REDIS,
        "test_inspect::test_Inspect::test_scheduled": (
            "looks in the worker for a task with an ETA: here it waits in the broker"
        ),
        "test_mem_leak_in_exception_handling::test_mem_leak_unhandled": _SAME_WITH_REDIS,
        "test_tasks::test_tasks::test_revoked_by_headers_complex_canvas": _SAME_WITH_REDIS,
        "test_tasks::test_task_replacement::test_replaced_task_nesting_level_0": (
            "clears its flag after the task is sent, and so after the worker has set it, if that is"
            " quick: test_nesting is the same test with the flag cleared first"
        ),
        "test_tasks::test_trace_log_arguments": _SAME_WITH_REDIS,
    },
)

DRAMATIQ: Final = Plan(
    package="dramatiq",
    page="frameworks",
    folder="tests",
    files=(
        "test_actors.py",
        "test_barrier.py",
        "test_broker.py",
        "test_callbacks.py",
        "test_composition.py",
        "test_encoders.py",
        "test_generic_actors.py",
        "test_rabbitmq.py",
        "test_redis.py",
        "test_results.py",
        "test_stub_broker.py",
        "test_worker.py",
    ),
    laid={
        "__init__.py": "__init__.py",
        "common.py": "dramatiq_common.py",
        "conftest.py": "dramatiq_conftest.py",
    },
    options=("-o", "addopts="),  # its own ask for coverage
    reasons={
        "test_redis::test_redis_broker_can_connect_via_": "connects to Redis",
        "test_results::test_actors_results_are_backwards": (
            "puts a result into a store by its key; ours sends each to the process that asked"
        ),
        "test_stub_broker::test_stub_broker_raises_queue_error": "queues are declared by use",
        "test_worker::test_exception_from_actor_doesnt_leak": "its stand-in here keeps exceptions",
        "test_redis::test_redis_consumer_": "replaces private names of that broker",
        "test_redis::test_redis_join_race_condition": "its actors use private names of it",
        "test_rabbitmq::test_rabbitmq_broker_stops_retrying": "replaces private names of it",
    },
    words={
        f"'{name}' object has no attribute": "uses the connection, or private names, of that broker"
        for name in ("RabbitTwin", "FifoBroker", "StubTwin", "BlockingClient", "FifoConsumer")
    }
    | {
        "does not have the attribute": "replaces private names of that broker",
        "'set' object is not subscriptable": "looks into the queues in the memory of that broker",
    },
)

TASKIQ: Final = Plan(
    package="taskiq",
    page="frameworks",
    folder="tests",
    files=(
        "abc",
        "brokers",
        "depends",
        "formatters",
        "middlewares/test_simple_retry.py",
        "middlewares/test_task_retry.py",
        "receiver",
        "scheduler",
        "serializers",
        "test_exceptions_flow.py",
        "test_kicker.py",
        "test_requeue.py",
        "test_retry_task.py",
        "test_task.py",
    ),
    laid={"brokers/__init__.py": "__init__.py", "conftest_fifo.py": "taskiq_conftest.py"},
    options=("-p", "no:asyncio", "-o", "anyio_mode=auto", "-p", "tests.conftest_fifo"),
    reasons={
        "middlewares::test_task_retry::test_per_task_exc_types_matching": _DELAY_IS_KEPT,
        "middlewares::test_task_retry::test_per_task_exc_types_override_global": _DELAY_IS_KEPT,
        "middlewares::test_task_retry::test_retry_of_custom_exc_types_of_smart": _DELAY_IS_KEPT,
        "receiver::test_receiver::test_run_task_successful_sync_preserve": _SENDERS_CONTEXT,
        "receiver::test_receiver::test_run_task_successful_async_preserve": _SENDERS_CONTEXT,
    },
)

PLANS: Final = {plan.package: plan for plan in (KOMBU, CELERY, DRAMATIQ, TASKIQ)}
