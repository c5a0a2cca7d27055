"""Which options there are, and what is said of others: one line that names the remedy."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

import fifo
from fifo.client import from_url
from fifo.spark import options, requirements
from fifo.spark.options import BATCH_READ, BATCH_WRITE, STREAM_READ, STREAM_WRITE
from tests.test_house import ROOT

GIVEN = {"url": "fifo://h:1", "queue": "q"}


@pytest.mark.parametrize(
    ("use", "more", "words"),
    [
        (BATCH_READ, {"maxMessage": "1"}, "no option 'maxMessage' .* did you mean maxMessages?"),
        (BATCH_READ, {"maxRowsPerTrigger": "1"}, "for a streaming read.* did you mean maxMessages"),
        (STREAM_READ, {"maxMessages": "1"}, "for a batch read.* did you mean maxRowsPerTrigger"),
        (STREAM_READ, {"ackMode": "none"}, "ackMode is for a batch read, not for a streaming read"),
        (BATCH_WRITE, {"queu": "1"}, "did you mean queue?"),
        (BATCH_WRITE, {"zzz": "1"}, "there are url, queue, user, .* job, idColumn"),
        (BATCH_WRITE, {"user": "me"}, "user and password: each needs the other"),
        (BATCH_WRITE, {"user": "me", "password": "x", "token": "y"}, "token: takes the place"),
        (BATCH_WRITE, {"passwordFile": "/no/file"}, "/no/file cannot be read: No such file"),
        (BATCH_WRITE, {"job": "j", "idColumn": "id"}, "leave one of them out"),
        (STREAM_WRITE, {"job": "x"}, "job is for a batch write, not for a streaming write"),
        (BATCH_READ, {"maxMessages": "0"}, "maxMessages: must be a whole number from 1"),
        (BATCH_READ, {"partitions": "x"}, "partitions: must be a whole number .* not 'x'"),
        (BATCH_READ, {"ackMode": "auto"}, "ackMode: must be one of none, manual"),
        (BATCH_READ, {"ackMode": "read"}, "ackMode: must be one of none, manual, not 'read'"),
        (BATCH_READ, {"table": "lock"}, "table: must be one of queues, consumers, locks, delayed"),
        (BATCH_READ, {"ackMode": "manual"}, r'reservation is missing.*\.option\("reservation"'),
        (BATCH_READ, {"reservation": "r"}, "use ackMode=manual"),
        (
            BATCH_READ,
            {"table": "locks", "state": "dead"},
            "state has no effect with",
        ),
        (BATCH_READ, {"lock": "1s"}, "lock has no effect on a read that takes nothing"),
        (
            BATCH_READ,
            {"ackMode": "manual", "reservation": "r", "maxMessages": "1048561"},
            "at most 1048560 with ackMode=manual",
        ),
        (STREAM_READ, {}, "reservation is missing: a stream needs it"),
        (STREAM_READ, {"maxRowsPerTrigger": "1048561"}, "from 1 to 1048560"),
        (STREAM_READ, {"maxBytesPerTrigger": "64 apples"}, "maxBytesPerTrigger: must be bytes"),
        (STREAM_READ, {"maxBytesPerTrigger": "0"}, "such as 1048576, 64m or 1g, not '0'"),
        (STREAM_READ, {"failOnDataLoss": "maybe"}, "failOnDataLoss: must be true or false"),
        (BATCH_READ, {"columns": "id,bdy"}, "no column 'bdy'; did you mean body?"),
        (STREAM_READ, {"columns": "id, ID"}, "columns: 'id, ID' names a column twice"),
        (BATCH_READ, {"columns": "id", "table": "locks"}, "columns has no effect with the option"),
        (BATCH_READ, {"lock": "soon"}, "option lock: 'soon' is not a duration"),
        (BATCH_READ, {"url": "http://h"}, "option url: .*must begin with fifo://"),
        (BATCH_READ, {"queue": ""}, "option queue: must be 1 to 255 bytes"),
    ],
)
def test_a_wrong_option_is_named_with_its_remedy(
    use: str, more: dict[str, str], words: str
) -> None:
    with pytest.raises(fifo.InvalidArgument) as refused:
        options.parse({**GIVEN, **more}, use)
    assert re.search(words, str(refused.value)), str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["url", "queue"])
def test_a_missing_required_option_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIFO_URL", raising=False)
    given = {other: text for other, text in GIVEN.items() if other != name}
    with pytest.raises(fifo.InvalidArgument, match=rf"option {name} is missing: \.option"):
        options.parse(given, BATCH_WRITE)


def test_names_and_words_may_be_written_in_any_case() -> None:
    more = {"ACKMODE": "Manual", "Reservation": "R", "lock": "2m", "maxlock": "3600"}
    found = options.parse({**GIVEN, **more, "binarykeys": "TRUE"}, BATCH_READ)
    assert (found.ack_mode, found.reservation, found.binary_keys) == ("manual", "R", True)
    assert (found.lock_s, found.max_lock_s) == (120.0, 3600.0)


@pytest.mark.parametrize(("text", "size"), [("100", 100), ("64m", 64 << 20), ("1 GiB", 1 << 30)])
def test_bytes_may_have_a_unit(text: str, size: int) -> None:
    more = {"reservation": "r", "maxBytesPerTrigger": text}
    assert options.parse({**GIVEN, **more}, STREAM_READ).max_bytes == size


def test_sparks_own_option_for_a_sink_is_no_error() -> None:
    assert options.parse({**GIVEN, "checkpointLocation": "/x"}, STREAM_WRITE).queue == "q"


def test_secrets_may_be_options_or_in_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("p@ss/word\n")
    for more in ({"password": "p@ss/word"}, {"passwordFile": str(secret)}):
        found = from_url(options.parse({**GIVEN, "user": "me", **more}, BATCH_WRITE).url)
        assert (found.user, found.password, found.addresses) == ("me", "p@ss/word", ("h:1",))
    for more in ({"token": "p@ss/word"}, {"tokenFile": str(secret)}):
        assert from_url(options.parse({**GIVEN, **more}, BATCH_WRITE).url).token == "p@ss/word"
    given = {**GIVEN, "url": "fifo://a:b@h:1", "user": "me", "password": "x"}
    with pytest.raises(fifo.InvalidArgument, match="give it once"):
        options.parse(given, BATCH_WRITE)


def test_files_of_tls_may_be_options() -> None:
    given = {**GIVEN, "url": "fifos://h:1?timeout=60"}
    files = {"ca": "/etc/c&a.pem", "cert": "me.pem", "key": "my key.pem"}
    found = from_url(options.parse({**given, **files}, BATCH_WRITE).url)
    assert (found.ca, found.cert, found.key) == tuple(files.values())
    assert (found.tls, found.timeout) == (True, 60.0)
    login = {"user": "me", "password": "secret", "ca": "ca.pem"}
    both = from_url(options.parse({**given, **login}, BATCH_READ).url)
    assert (both.user, both.password, both.ca) == ("me", "secret", "ca.pem")


@pytest.mark.parametrize(
    ("url", "more", "words"),
    [
        ("fifo://h:1", {"ca": "ca.pem"}, "option ca: ca: has an effect only with fifos://"),
        ("fifos://h:1?ca=a.pem", {"ca": "b.pem"}, "option ca: the url names it as well"),
        ("fifos://h:1", {"key": "k.pem"}, "option key: key: is the key of a cert"),
    ],
)
def test_wrong_files_of_tls_are_named(url: str, more: dict[str, str], words: str) -> None:
    with pytest.raises(fifo.InvalidArgument, match=words):
        options.parse({**GIVEN, "url": url, **more}, BATCH_WRITE)


def test_the_url_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its secrets, for the driver alone; an option wins."""
    monkeypatch.setenv("FIFO_URL", "fifo://me:secret@env:1")
    found = from_url(options.parse({"queue": "q"}, BATCH_WRITE).url)
    assert (found.user, found.password, found.addresses) == ("me", "secret", ("env:1",))
    assert from_url(options.parse(GIVEN, BATCH_WRITE).url).addresses == ("h:1",)
    monkeypatch.setenv("FIFO_URL", "http://env")
    with pytest.raises(fifo.InvalidArgument, match="FIFO_URL: url: must begin with fifo://"):
        options.parse({"queue": "q"}, BATCH_WRITE)


def test_functions_take_the_options_of_a_connection(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("t0ken\n")
    whole = options.with_login("fifos://h:1", {"tokenFile": str(secret), "ca": "ca.pem"})
    assert (from_url(whole).token, from_url(whole).ca) == ("t0ken", "ca.pem")
    assert options.with_login("fifo://h:1", {"user": None, "ca": None}) == "fifo://h:1"
    with pytest.raises(fifo.InvalidArgument, match="there is no option 'passwordfile' here"):
        options.with_login("fifo://h:1", {"passwordfile": str(secret)})


def test_a_password_is_not_shown() -> None:
    found = options.parse({**GIVEN, "url": "fifo://me:secret@h:1"}, BATCH_WRITE)
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ({"pyspark": "4.3.0", "pyarrow": "18.0"}, None),
        ({"pyspark": "4.1.4", "pyarrow": "18.0"}, r"needs pyspark 4\.2 or newer, this is 4\.1\.4"),
        ({"pyspark": "4.2.0.dev1"}, r"needs pyarrow 18\.0 or newer: pip install 'fifo-quorum"),
        ({}, r"needs pyspark 4\.2 or newer: pip install"),
    ],
)
def test_an_error_says_what_to_install(versions: dict[str, str], words: str | None) -> None:
    def load(name: str) -> ModuleType:
        if name not in versions:
            raise ImportError(name)
        return cast("ModuleType", SimpleNamespace(__version__=versions[name]))

    if words is None:
        requirements.check(load)
        return
    with pytest.raises(ImportError, match=words):
        requirements.check(load)


def test_the_page_lists_every_option() -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    for option in options.OPTIONS:
        assert f"`{option.name}`" in page, option.name
