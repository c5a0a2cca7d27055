"""The handshake: both sides against each other, order, sizes and versions."""

import pytest

from fifo.wire import (
    VERSION_MAX,
    VERSION_MIN,
    BadMessage,
    Code,
    Frame,
    LocalProtocolError,
    Opening,
    RemoteProtocolError,
    State,
    agree,
    limits,
)
from fifo.wire.frames import PREFIX
from fifo.wire.handshake import FROM_CLIENT, FROM_NODE, OPENING_BYTES_MAX
from fifo.wire.messages import (
    Authenticate,
    Challenge,
    Error,
    Hello,
    Message,
    Ok,
    Ping,
    Redirect,
    Welcome,
)
from tests.wire.examples import BY_NAME, INCARNATION, SESSION, joined

HELLO = Hello(VERSION_MIN, VERSION_MAX, 0, SESSION, INCARNATION)
WELCOME = Welcome(1, "n1", b"cluster", 7)


def node() -> Opening:
    return Opening(awaits=FROM_CLIENT)


def client() -> Opening:
    return Opening(limits.FRAME_BYTES_MAX, awaits=FROM_NODE)


def received(side: Opening, *messages: Message) -> list[Message]:
    frames = side.receive_data(b"".join(joined(message) for message in messages))
    return [frame.message for frame in frames if isinstance(frame, Frame)]


def refused(side: Opening, data: bytes) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        side.receive_data(data)
    assert side.state is State.CLOSED
    return caught.value


def test_hello_and_welcome_open_both_sides() -> None:
    asking, answering = client(), node()
    assert received(answering, HELLO) == [HELLO]
    assert answering.state is State.OPENING, "a node opens when it welcomes"
    answering.opened()
    assert received(asking, WELCOME) == [WELCOME]
    assert (asking.state, answering.state) == (State.OPEN, State.OPEN)
    assert received(asking, Ping()) == received(answering, Ping()) == [Ping()]


def test_both_sides_open_through_challenges() -> None:
    asking, answering = client(), node()
    challenge, proof = Challenge("scram", b"1"), Authenticate("scram", b"2")
    assert received(answering, HELLO) == [HELLO]
    assert received(asking, challenge) == [challenge]
    assert received(answering, proof) == [proof]
    assert received(asking, challenge) == [challenge]
    assert received(answering, proof) == [proof]
    answering.opened()
    assert received(asking, WELCOME) == [WELCOME]
    assert (asking.state, answering.state) == (State.OPEN, State.OPEN)


def test_frames_in_one_read_with_the_welcome_are_returned() -> None:
    assert received(client(), WELCOME, Ping(), Ok(1)) == [WELCOME, Ping(), Ok(1)]


@pytest.mark.parametrize("message", [Redirect(None, None, 100), Error("overloaded", "later")])
def test_a_client_may_be_redirected_or_refused(message: Message) -> None:
    asking = client()
    assert received(asking, message) == [message]
    assert asking.state is State.OPENING
    assert refused(asking, joined(WELCOME)).code is Code.PROTOCOL


@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "Hello"])
def test_a_node_awaits_hello_before_anything_else(name: str) -> None:
    error = refused(node(), joined(BY_NAME[name]))
    assert error.code is Code.PROTOCOL
    assert error.text == f"unexpected {name} during the handshake"


@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "Authenticate"])
def test_only_a_proof_may_follow_hello_before_the_welcome(name: str) -> None:
    answering = node()
    received(answering, HELLO)
    assert refused(answering, joined(BY_NAME[name])).code is Code.PROTOCOL


def test_a_request_in_one_read_with_hello_is_refused_as_if_it_came_alone() -> None:
    assert refused(node(), joined(HELLO) + joined(Ping())).code is Code.PROTOCOL


@pytest.mark.parametrize(
    "name", [name for name in BY_NAME if name not in {"Welcome", "Challenge", "Redirect", "Error"}]
)
def test_a_client_accepts_only_a_first_frame_of_a_node(name: str) -> None:
    assert refused(client(), joined(BY_NAME[name])).code is Code.PROTOCOL


def test_a_bad_hello_ends_the_connection_with_its_own_code() -> None:
    bad = Hello(VERSION_MIN, VERSION_MAX, 9, SESSION, INCARNATION)
    error = refused(node(), joined(bad))
    assert error.code is Code.INVALID_ARGUMENT
    assert error.text == "Hello.role: must be an integer from 0 to 2"


def test_an_unknown_first_frame_ends_the_connection() -> None:
    header = b"\x92\xcd\x27\x0f\x01"
    assert refused(node(), PREFIX.pack(len(header), 0) + header).code is Code.UNSUPPORTED


def test_the_greeting_of_another_protocol_is_refused_at_once() -> None:
    for greeting, said in (
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"HTTP/1.1 400 Bad Request\r\n", "an HTTP answer"),
        (b"AMQP\x00\x00\x09\x01", "an AMQP greeting"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "a TLS greeting"),
        (b"\x15\x03\x03\x00\x02\x02\x28\x00", "a TLS alert"),
        (b"SSH-2.0-", "a frame of"),
    ):
        error = refused(node(), greeting)
        assert error.code is Code.TOO_LARGE
        assert error.text.startswith(said)


def test_a_large_frame_before_the_welcome_is_refused() -> None:
    assert refused(node(), PREFIX.pack(OPENING_BYTES_MAX - 7, 0)).code is Code.TOO_LARGE
    assert refused(node(), PREFIX.pack(8, OPENING_BYTES_MAX)).code is Code.TOO_LARGE


def test_a_large_frame_after_the_welcome_is_accepted() -> None:
    answering = node()
    received(answering, HELLO)
    answering.opened()
    large = Ok("x" * OPENING_BYTES_MAX)
    assert received(answering, large) == [large]


def test_a_bad_message_after_the_welcome_is_returned() -> None:
    answering = node()
    received(answering, HELLO)
    answering.opened()
    header = b"\x92\xcd\x27\x0f\x05"
    (bad,) = answering.receive_data(PREFIX.pack(len(header), 0) + header)
    assert isinstance(bad, BadMessage)
    assert bad.correlation == 5


def test_a_closed_connection_returns_no_frames() -> None:
    asking = client()
    received(asking, WELCOME)
    asking.closed()
    assert received(asking, Ping()) == []
    assert asking.receive_data(b"not a frame at all") == []


def test_a_connection_returns_no_frames_after_an_error() -> None:
    answering = node()
    refused(answering, b"\xff" * 8)
    assert answering.receive_data(joined(HELLO)) == []


def test_a_connection_is_opened_once() -> None:
    asking = client()
    received(asking, WELCOME)
    with pytest.raises(LocalProtocolError):
        asking.opened()


def test_correlations_ascend_and_are_never_zero() -> None:
    side = client()
    assert [side.next_correlation() for _ in range(3)] == [1, 2, 3]


def hello(lowest: int, highest: int) -> Hello:
    return Hello(lowest, highest, 0, SESSION, INCARNATION)


def test_both_sides_agree_on_the_highest_common_version() -> None:
    assert agree(hello(VERSION_MIN, VERSION_MAX)) == VERSION_MAX
    assert agree(hello(1, 65_535)) == VERSION_MAX
    assert agree(hello(VERSION_MAX, VERSION_MAX + 1)) == VERSION_MAX


@pytest.mark.parametrize(
    ("lowest", "highest"),
    [(VERSION_MAX + 1, VERSION_MAX + 9), (65_535, 65_535), (VERSION_MAX + 1, 1)],
)
def test_no_common_version_is_refused_with_the_supported_range(lowest: int, highest: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        agree(hello(lowest, highest))
    assert caught.value.code is Code.UNSUPPORTED_VERSION
    assert f"versions {VERSION_MIN} to {VERSION_MAX}" in caught.value.text
