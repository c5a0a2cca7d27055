"""Credentials and TLS travel in the url; who may not, or is not known, hears it in one line."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fifo
import fifo.spark
from bench.interrupts import Interrupts
from bench.load.command import Command, parse
from fifo.spark import SourceError, options
from fifo.spark.options import Login
from fifo.spark.writing import see_the_queue
from tests.client.test_users import Guarded, guarded_cluster
from tests.spark.reads import batch_reader, bodies, planned, send, settings, stream_reader

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def _guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_cluster(tmp_path_factory) as found:
        yield found


@pytest.fixture
def guarded(_guarded: Guarded) -> Guarded:
    """Three nodes with users and TLS, whole and empty."""
    _guarded.cluster.make_ready()
    return _guarded


def test_users_read_and_write_within_their_permissions_over_tls(guarded: Guarded) -> None:
    _story(guarded.url)


@pytest.fixture
def login(guarded: Guarded, tmp_path: Path) -> Login:
    """The user ann and the authority, as options: her password is in a file."""
    secret = tmp_path / "password"
    secret.write_text("ann-password\n")
    return {"user": "ann", "passwordFile": str(secret), "ca": str(guarded.certificate.ca)}


def _bare(guarded: Guarded) -> str:
    """The url without user, secret and files."""
    hosts = guarded.url.rpartition("@")[2].partition("?")[0]
    return f"fifos://{hosts}"


def test_spark_reads_writes_and_settles_over_tls_with_options_alone(
    guarded: Guarded, login: Login, spark: SparkSession
) -> None:
    url = _bare(guarded)
    with fifo.blocking.connect(guarded.url) as client:
        client.declare(fifo.QueueSpec("orders"))
    named = {name: str(text) for name, text in login.items()}
    given = {"url": url, "queue": "orders", **named}
    rows = spark.range(0, 5, 1, 2).selectExpr("cast(id as string) as body")
    rows.write.format("fifo").options(**given).mode("append").save()
    assert spark.read.format("fifo").options(**given).load().count() == 5
    with pytest.raises(Exception, match="fifo") as refused:
        spark.read.format("fifo").options(url=url, queue="orders", ca=login["ca"]).load().count()
    assert "password" in str(refused.value)
    taken = {**given, "ackMode": "manual", "reservation": "r"}
    batch = spark.read.format("fifo").options(**taken).load().where("body = cast('3' as binary)")
    judged = batch.selectExpr("token", "'release' as verdict")
    assert fifo.spark.settle(judged, url, "orders", "r", **login).released == 1
    fifo.spark.renew(url, "orders", "r", **login)
    assert fifo.spark.ack(url, "orders", "r", **login) == (4, 0)
    fifo.spark.release(url, "orders", "r", **login)
    with fifo.spark.taken(spark, url, "orders", "block", **login) as block:
        tokens = [row.token for row in block.collect()]
        done = fifo.spark.transaction(url, "orders", "block", tokens, **login)
        assert done.application.startswith("fifo/orders/block/")
    assert spark.read.format("fifo").options(**given).load().count() == 0


def test_login_and_authority_may_be_in_the_file_of_the_environment(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which driver and tasks read alike."""
    url, config = _bare(guarded), tmp_path / "fifo.toml"
    lines = ('user = "ann"', 'password = "ann-password"', f'ca = "{guarded.certificate.ca}"')
    config.write_text("\n".join(("[connection]", *lines)))
    monkeypatch.setenv("FIFO_CONFIG", str(config))
    with fifo.blocking.connect(url) as client:
        client.declare(fifo.QueueSpec("orders"))
    assert send(url, "orders", "job/0", 0, ["one"]).rows == 1
    assert bodies(planned(batch_reader(url, "orders"))) == [b"one"]


def test_a_load_job_logs_in_over_tls_with_options_alone(
    guarded: Guarded, login: Login, spark: SparkSession, tmp_path: Path
) -> None:
    options = parse(
        [
            *("--url", _bare(guarded), "--queue", "load", "--messages", "200", "--idle", "0.3"),
            *("--producers", "1", "--consumers", "1", "--json", "--user", login["user"]),
            *("--password-file", login["passwordFile"], "--ca", login["ca"]),
        ]
    )
    printed = io.StringIO()
    session = contextlib.nullcontext(spark.sparkContext)
    with contextlib.redirect_stdout(printed):
        assert Command(options, tmp_path, Interrupts(), lambda *_: session).run() == 0
    report = json.loads(printed.getvalue())
    assert (report["published"], report["acked"]) == (200, 200), report
    assert "ann-password" not in printed.getvalue()


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
