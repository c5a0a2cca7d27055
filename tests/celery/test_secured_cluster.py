"""The transport of Celery where nodes want TLS and users: several hosts, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection

import fifo
from fifo.celery import registration
from tests.support.cluster import running
from tests.support.users import EVERYTHING, certificate, user

pytestmark = [pytest.mark.cluster, pytest.mark.process]  # of openssl

SECONDS = 20.0
ANN = user("ann", **EVERYTHING)
BOB = user("bob", publish=("*",))


async def test_a_user_publishes_and_consumes_over_tls_at_the_host_that_is_there(
    tmp_path: Path,
) -> None:
    assert registration.JSON, "the schemes are known"
    made = certificate(tmp_path / "certs")
    async with running(tmp_path / "nodes", 1, users=(ANN, BOB), tls=made.settings) as cluster:
        leader = await cluster.leader()
        hosts = f"127.0.0.1:1,{leader.me.client}"
        await asyncio.to_thread(_use, hosts, str(made.ca))


def _use(hosts: str, ca: str) -> None:
    url = f"fifos://ann:ann-password@{hosts}?ca={ca}"
    with Connection(url) as connection:
        assert "ann-password" not in connection.as_uri()
        queue = connection.SimpleQueue("orders")
        queue.put({"number": 1})
        message = queue.get(timeout=SECONDS)
        assert message.payload == {"number": 1}
        message.ack()
        queue.close()
    by_option = f"fifos://ann:ann-password@{hosts}"
    with Connection(by_option, ssl={"ca_certs": ca}) as connection:
        assert connection.connect().connected
    refused: tuple[tuple[str, Any, str], ...] = (
        (f"fifos://ann:wrong@{hosts}?ca={ca}", fifo.AuthenticationFailed, "wrong user or secret"),
        (f"fifos://bob:bob-password@{hosts}?ca={ca}", fifo.PermissionDenied, "bob has no permis"),
        (f"fifo://ann:ann-password@{hosts}?ca={ca}", fifo.InvalidArgument, "ca: has an effect onl"),
    )
    for bad, error, text in refused:
        with Connection(bad) as connection, pytest.raises(error, match=text):
            connection.SimpleQueue("orders").put(1)
