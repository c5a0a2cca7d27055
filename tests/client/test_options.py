"""Proves that options of consumers and connections mean the same wherever they are given.

Arguments, keywords of `connect`, the query of a URL and the configuration file derive from the
tables in `fifo.words`; both clients use them, and each error names its source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

import fifo
from fifo.client import Given, Options, from_environment, from_keywords, from_url
from fifo.client.connection.sources import from_file
from fifo.wire import Frame
from fifo.wire.messages import Cancel, Close, Settle, Subscribe
from fifo.words.connection_options import CONNECTION_OPTIONS
from fifo.words.consumer_options import CONSUMER_OPTIONS, OF_ALL
from fifo.words.options import Kind, Option
from tests.client.test_control import PeerThread
from tests.support.one_consumer import bodies, consuming, take
from tests.support.wire_peer import Line, Peer, receive_all, subscribe_as

PAGE: Final = Path(__file__).parents[2] / "docs" / "client.md"
NODE: Final = "fifo://127.0.0.1:7101"


def three_seconds(failures: int) -> float:
    """A backoff that a file names as `callable:tests.client.test_options:three_seconds`."""
    return 3.0


class Config:
    """The configuration file that $FIFO_CONFIG names; there is none before `write`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, text: str) -> None:
        """Write the file."""
        self.path.write_text(text, encoding="utf-8")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    found = Config(tmp_path / "client.toml")
    monkeypatch.setenv("FIFO_CONFIG", str(found.path))
    return found


# The tables.


def names(options: tuple[Option, ...]) -> set[str]:
    return {option.name for option in options}


def test_the_keywords_for_static_typing_are_the_rows_of_the_tables() -> None:
    assert set(fifo.ConsumerKeywords.__annotations__) == names(CONSUMER_OPTIONS)
    assert set(fifo.ConsumerDefaults.__annotations__) == set(OF_ALL)
    assert set(fifo.ConnectionKeywords.__annotations__) == names(CONNECTION_OPTIONS)
    both = names(CONNECTION_OPTIONS) | set(OF_ALL)
    assert set(fifo.ConnectKeywords.__annotations__) == both
    assert not names(CONNECTION_OPTIONS) & names(CONSUMER_OPTIONS)


def test_the_options_of_a_connection_are_the_rows_with_their_defaults() -> None:
    not_options = {"addresses", "tls", "consumer"}
    assert {item.name for item in fields(Options)} - not_options == names(CONNECTION_OPTIONS)
    given = {option.name: default_of(option) for option in CONNECTION_OPTIONS}
    assert from_url(NODE, from_keywords(given)) == from_url(NODE)


def default_of(option: Option) -> Any:
    """The default of a row as a program would write it."""
    return (
        timedelta(milliseconds=option.default) if option.kind is Kind.DURATION else option.default
    )


def test_a_subscribe_frame_carries_the_rows_that_do_not_stay_in_the_client() -> None:
    sent = {item.name.removesuffix("_ms") for item in fields(Subscribe)}
    assert names(CONSUMER_OPTIONS) - sent == {"auto_renew"}
    assert sent - names(CONSUMER_OPTIONS) == {"queue"}


def row_of(option: Option) -> str:
    """The row of the page for an option."""
    default = option.default_text
    value = {
        Kind.DURATION: "duration",
        Kind.COUNT: " or ".join(
            [*(f"`{word}`" for word in option.choices), f"{option.low} to {option.high}"]
        ),
        Kind.SIZE: "bytes",
        Kind.FLAG: "yes or no",
        Kind.TEXT: "text",
        Kind.SECRET: "text",
        Kind.BACKOFF: "backoff",
    }[option.kind]
    if option.kind is Kind.BACKOFF and option.default:
        default = f"`{default}`"
    return f"| `{option.name}` | {value} | {default} | {option.help} |"


@pytest.mark.parametrize("options", [CONNECTION_OPTIONS, CONSUMER_OPTIONS])
def test_the_page_lists_the_options(options: tuple[Option, ...]) -> None:
    wanted = "\n".join(row_of(option) for option in options)
    assert wanted in PAGE.read_text(encoding="utf-8"), wanted


# A consumer's options arrive from every source, and the nearest one wins.

EVERYTHING: Final[dict[str, tuple[Any, str, Any]]] = {
    "prefetch": (7, "7", 7),
    "lock": (5, "5s", 5_000),
    "max_lock": (timedelta(minutes=1), "1m", 60_000),
    "priority": (-3, "-3", -3),
    "renewable": (False, "no", False),
    "nack_backoff": (fifo.Exponential(1, 60, 5), "exponential:1s..60s*5", "exponential:1s..1m*5"),
    "timeout_backoff": ("table:1s,5s", "table:1s,5s", "table:1s,5s"),
    "pull": (True, "true", True),
    "auto_renew": (False, "off", None),
    "renewals": (4, "4", 4),
    "handler_timeout": (1.5, "1500ms", 1_500),
    "label": ("row 7", "row 7", "row 7"),
}
"""Per option: as an argument, as text, and in the frame that subscribes."""


def answer_everything(peer: Peer) -> list[Subscribe]:
    """Answer a consumer's frames, as a node would; the subscriptions that come are kept."""
    came: list[Subscribe] = []

    def subscribe(line: Line, frame: Frame) -> None:
        assert isinstance(frame.message, Subscribe)
        came.append(frame.message)
        subscribe_as(11)(line, frame)

    peer.answers[Subscribe] = subscribe
    peer.answers[Cancel] = peer.answers[Close]
    peer.answers[Settle] = receive_all
    return came


def assert_everything(message: Subscribe, *left_out: str) -> None:
    for name, (_, _, wanted) in EVERYTHING.items():
        if wanted is not None and name not in left_out:
            found = getattr(message, name, None) or getattr(message, f"{name}_ms", None)
            assert (found or False) == wanted, name


def test_everything_names_every_option() -> None:
    assert set(EVERYTHING) == set(OF_ALL)


def as_query() -> str:
    return "?" + "&".join(f"{name}={text}" for name, (_, text, _) in EVERYTHING.items())


def as_file(config: Config) -> None:
    lines = [f'{name} = "{text}"' for name, (_, text, _) in EVERYTHING.items()]
    config.write("\n".join(["[consumer]", *lines]))


@pytest.mark.parametrize("source", ["argument", "keyword", "url", "file"])
async def test_an_asyncio_consumer_has_its_options_from_every_source(
    source: str, config: Config
) -> None:
    values: Any = {name: value for name, (value, _, _) in EVERYTHING.items()}
    config.write("")
    if source == "file":
        as_file(config)
    async with Peer() as peer:
        came = answer_everything(peer)
        url = peer.url + (as_query() if source == "url" else "")
        async with (
            fifo.connect(url, **(values if source == "keyword" else {})) as client,
            client.consume("orders", **(values if source == "argument" else {})),
        ):
            assert_everything(came[-1])


@pytest.mark.parametrize("source", ["argument", "keyword", "url", "file"])
def test_a_blocking_consumer_has_its_options_from_every_source(source: str, config: Config) -> None:
    values: Any = {name: value for name, (value, _, _) in EVERYTHING.items()}
    config.write("")
    if source == "file":
        as_file(config)
    with PeerThread() as thread:
        peer = thread.peer
        assert peer is not None
        came = answer_everything(peer)
        url = peer.url + (as_query() if source == "url" else "")
        with (
            fifo.blocking.connect(url, **(values if source == "keyword" else {})) as client,
            client.consume("orders", **(values if source == "argument" else {})),
        ):
            assert_everything(came[-1])


async def test_the_nearest_source_wins(config: Config) -> None:
    config.write('[connection]\nname = "file"\ntimeout = 1\n[consumer]\nprefetch = 1\nlock = 1\n')
    async with Peer() as peer:
        came = answer_everything(peer)
        query = "?prefetch=2&lock=2s&priority=2&timeout=2s"
        async with fifo.connect(peer.url + query, prefetch=3, priority=3) as client:
            assert (client.options.name, client.options.timeout) == ("file", 2)
            async with client.consume("orders", prefetch=4):
                found = came[-1]
                assert (found.prefetch, found.priority, found.lock_ms) == (4, 3, 2_000)
            async with client.consume("orders", lock=None):
                found = came[-1]
                assert (found.prefetch, found.lock_ms) == (3, None)


async def test_a_callable_from_a_file_delays_a_nack(config: Config) -> None:
    name = "callable:tests.client.test_options:three_seconds"
    config.write(f'[consumer]\nnack_backoff = "{name}"\n')
    async with Peer() as peer, consuming(peer) as (_, messages):
        peer.answers[Settle] = receive_all
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        await message.nack()
        _, _, settled = await peer.hear(Settle)
        assert settled.delay_ms == 3_000


def test_options_of_the_connection_come_from_the_file(config: Config) -> None:
    config.write('[connection]\nack_retry_backoff = "fixed:10ms"\nmax_ack_retries = 2\n')
    options = from_url(NODE, defaults=from_environment())
    assert (options.ack_retry_backoff, options.max_ack_retries) == (fifo.Fixed(0.01), 2)


# Credentials of a source go together.


@pytest.mark.parametrize(
    ("lower", "higher", "wanted"),
    [
        ({"user": "ann", "password": "a"}, {"token": "t"}, {"token": "t"}),
        ({"token": "t"}, {"user": "bob", "password": "b"}, {"user": "bob", "password": "b"}),
        ({"user": "ann", "password": "a"}, {"user": "bob"}, {"user": "bob"}),
        ({"user": "ann"}, {"password": "a"}, {"user": "ann", "password": "a"}),
        ({"user": "ann", "token": "t"}, {"name": "x"}, {"user": "ann", "token": "t", "name": "x"}),
    ],
)
def test_a_user_never_gets_the_secret_of_another(
    lower: Mapping[str, str], higher: Mapping[str, str], wanted: Mapping[str, str]
) -> None:
    assert Given(higher).over(Given(lower)).connection == wanted


def test_the_user_of_a_url_and_the_password_of_a_file_belong_together(config: Config) -> None:
    config.write('[connection]\npassword = "none"\n')
    options = from_url("fifo://ann@127.0.0.1:7101", defaults=from_environment())
    assert (options.user, options.password) == ("ann", "none")
    assert "none" not in repr(options) + repr(from_environment())


def test_a_secret_may_have_any_character() -> None:
    options = from_url("fifo://ann:p%09%1b%E2%80%A8@h:1")
    assert options.password == "p\t\x1b\u2028"
    with pytest.raises(fifo.InvalidArgument, match=r"user: contains the control character U\+001B"):
        from_url("fifo://a%1b:p@h:1")


# Errors name the source, the option and the value.


def test_without_a_variable_there_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIFO_CONFIG", raising=False)
    assert from_environment() == Given()
    monkeypatch.setenv("FIFO_CONFIG", "")
    assert from_environment() == Given()


def test_a_file_that_cannot_be_read_is_named_with_the_variable(config: Config) -> None:
    for connect in (fifo.connect, fifo.blocking.connect):
        with pytest.raises(fifo.InvalidArgument) as caught:
            connect(NODE)
        text = (
            f"FIFO_CONFIG: {config.path} cannot be read: No such file or directory; name a readable"
        )
        assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("prefetch = 5", "prefetch: belongs in the section [consumer]"),
        ("[consumers]", "consumers: is no section; there are [connection] and [consumer]"),
        ("consumer = 5", "consumer: must be a section; write [consumer]"),
        ("[[consumer]]", "consumer: must be a section; write [consumer]"),
        ("[consumer]\ntimeout = 5", "[consumer] timeout: belongs in the section [connection]"),
        (
            "[consumer]\nprefech = 5",
            "prefech: the section [consumer] has no such option; did you mean prefetch?",
        ),
        ("[consumer]\ntag = 'a'", "tag: the section [consumer] has no such option; there are"),
        (
            "[consumer]\nprefetch = 'many'",
            "[consumer] prefetch: must be auto or a whole number, not 'many'",
        ),
        ("[consumer]\nprefetch = 0", "[consumer] prefetch: must be from 1 to 65535, not 0"),
        (
            "[consumer]\nprefetch = 1.5",
            "[consumer] prefetch: must be auto or a whole number, not 1.5",
        ),
        ("[consumer]\nlock = true", "[consumer] lock: must be seconds or a timedelta, not True"),
        ("[consumer]\nlock = '1 year'", "[consumer] lock: '1 year' is not a duration such as"),
        ("[consumer]\nlock = 1e308", "[consumer] lock: must be from 1s to 5m, not"),
        ("[consumer]\nlock = inf", "[consumer] lock: must be zero or more seconds, not inf"),
        ("[consumer]\npull = 1", "[consumer] pull: must be true or false, not 1"),
        ("[consumer]\npull = {}", "[consumer] pull: must be true or false, not {}"),
        (
            "[consumer]\nnack_backoff = 'sometimes'",
            "[consumer] nack_backoff: 'sometimes' is not a backoff: a backoff is fixed:1s,",
        ),
        ("[consumer]\nnack_backoff = 5", "[consumer] nack_backoff: must be Fixed, Exponential"),
        (
            "[consumer]\nnack_backoff = 'callable:no.such:thing'",
            "[consumer] nack_backoff: cannot import callable:no.such:thing",
        ),
        (
            "[consumer]\ntimeout_backoff = 'callable:os:getpid'",
            "[consumer] timeout_backoff: 'callable:os:getpid' is not a backoff",
        ),
        ("[connection]\nreconnect = 'fixed:'", "[connection] reconnect: 'fixed:' is not a backoff"),
        ("[connection]\nwindow_bytes = 1", "[connection] window_bytes: must be from 1048576 to"),
        ("[connection]\nname = 5", "[connection] name: must be text, not int"),
        ("[consumer", "not a TOML file: "),
        ("a = " + "[" * 100_000, "not a TOML file: "),
        ("a = " + "1" * 5_000, "not a TOML file: "),
    ],
)
def test_an_error_in_a_file_names_file_key_and_value(
    config: Config, content: str, words: str
) -> None:
    config.write(content)
    with pytest.raises(fifo.InvalidArgument) as caught:
        fifo.connect(NODE)
    assert str(caught.value).startswith(f"{config.path}: {words}"), caught.value


def test_a_file_that_is_no_text_is_refused(config: Config) -> None:
    config.path.write_bytes(b"\xff\x00")
    with pytest.raises(fifo.InvalidArgument, match="not a TOML file"):
        from_file(config.path)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("prefech=5", "url: prefech: a connection has no such option; did you mean prefetch?"),
        ("timeot=5", "url: timeot: a connection has no such option; did you mean timeout?"),
        ("tag=worker", "url: tag: a connection has no such option"),
        ("prefetch=many", "url: prefetch: must be auto or a whole number, not 'many'"),
        ("nack_backoff=1s", "url: nack_backoff: '1s' is not a backoff: a backoff is fixed:1s"),
        ("nack_backoff=callable:os:abort", "url: nack_backoff: a URL cannot name code to run"),
        ("lock=0.5", "url: lock: must be from 1s to 5m, not 500ms"),
    ],
)
def test_an_error_in_a_query_names_the_url_the_option_and_the_value(query: str, words: str) -> None:
    with pytest.raises(fifo.InvalidArgument) as caught:
        fifo.connect(f"{NODE}?{query}")
    assert str(caught.value).startswith(words)


async def test_a_wrong_keyword_is_refused_with_the_nearest_one() -> None:
    wrong: Any = {"prefech": 5}
    for connect in (fifo.connect, fifo.blocking.connect):
        with pytest.raises(fifo.InvalidArgument, match=re.escape("did you mean prefetch?")):
            connect(NODE, **wrong)
    async with Peer() as peer, fifo.connect(peer.url) as client:
        with pytest.raises(fifo.InvalidArgument, match=r"prefech: a consumer has no such option"):
            client.consume("orders", **wrong)
        assert not peer.heard


@pytest.mark.parametrize("value", ["none", "None"])
def test_none_in_a_text_restores_a_default(value: str) -> None:
    options = from_url(f"{NODE}?max_ack_retries={value}&lock={value}")
    assert options.max_ack_retries is None
    assert options.consumer == {"lock": None}
    with pytest.raises(fifo.InvalidArgument, match="prefetch: must be"):
        from_url(f"{NODE}?prefetch={value}")
