"""Credentials and TLS travel in the url; who may not, or is not known, hears it in one line."""

from __future__ import annotations

import pytest

import fifo
from fifo.spark import SourceError, options
from fifo.spark.writing import see_the_queue
from tests.client.test_users import guarded_cluster
from tests.spark.reads import batch_reader, bodies, planned, send, settings, stream_reader

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def test_users_read_and_write_within_their_permissions_over_tls(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with guarded_cluster(tmp_path_factory) as guarded:
        guarded.cluster.make_ready()
        _story(guarded.url)


def _story(ann: str) -> None:
    bob = ann.replace("ann:ann-password", "bob:bob-password")
    stranger = ann.replace("ann-password", "guessed")
    with fifo.blocking.connect(ann) as client:
        for name in ("orders", "others"):
            client.declare(fifo.QueueSpec(name))
    assert send(ann, "orders", "job/0", 0, ["one", "two"]).rows == 2
    with pytest.raises(SourceError, match="ask for the permission, or use another user") as denied:
        send(bob, "orders", "job/1", 0, ["three"])
    with pytest.raises(SourceError, match="check user and password in the option url") as unknown:
        see_the_queue(settings(options.BATCH_WRITE, stranger, "orders", {}))
    for read in (
        batch_reader(bob, "others").partitions,
        batch_reader(bob, "others", ackMode="manual", reservation="r").partitions,
        stream_reader(bob, "others", reservation="r").initialOffset,
    ):
        with pytest.raises(SourceError, match=r"queue 'others'.*ask for the permission"):
            read()
    for error in (denied, unknown):
        assert "\n" not in str(error.value)
        assert "password@" not in str(error.value)
    assert bodies(planned(batch_reader(bob, "orders"))) == [b"one", b"two"]
