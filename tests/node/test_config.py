"""The contents that a cluster.toml may have, and the words in which it is refused."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from node.config import (
    Address,
    LimitSettings,
    RaftSettings,
    cluster_config,
    load_config,
    parse_address,
    single_node_config,
    to_toml,
)
from node.credentials import hash_token, new_token, parse_password_hash
from node.table import ConfigError
from node.users import Permission
from tests.support.users import cheap_hash

EXAMPLE = Path(__file__).parents[2] / "cluster.example.toml"

ONE_NODE = """
[cluster]
name = "c"
[[node]]
name = "a"
client = "127.0.0.1:1"
peer = "127.0.0.1:2"
http = "127.0.0.1:3"
data_dir = "a"
"""

USER = """
[[user]]
name = 'x'
loopback = true
"""


def refusal(folder: Path, text: str) -> str:
    """The one line with which the text is refused, without the file's name."""
    path = folder / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{path}: ")
    return line.removeprefix(f"{path}: ")


def test_the_example_is_valid_and_spells_out_every_setting_with_its_default() -> None:
    config = load_config(EXAMPLE)
    assert [node.name for node in config.nodes] == ["n1", "n2", "n3"]
    assert config.raft == RaftSettings()
    assert config.limits == LimitSettings()
    text = EXAMPLE.read_text(encoding="utf-8")
    for settings in (RaftSettings, LimitSettings):
        for field in fields(settings):
            assert f"\n{field.name} = " in text
    assert config.url == "fifo://127.0.0.1:7101,127.0.0.1:7111,127.0.0.1:7121"


def test_the_configuration_of_cluster_start_round_trips(tmp_path: Path) -> None:
    config = cluster_config(3, 7100, tmp_path / 'a "quoted" folder')
    config = replace(config, limits=replace(config.limits, body_bytes=1000))
    assert config.path is not None
    config.path.parent.mkdir()
    config.path.write_text(to_toml(config), encoding="utf-8")
    assert load_config(config.path) == config


def test_the_ports_of_a_local_cluster_follow_the_contract(tmp_path: Path) -> None:
    nodes = cluster_config(3, 7100, tmp_path).nodes
    assert [str(node.client) for node in nodes] == [f"127.0.0.1:71{i}1" for i in range(3)]
    assert [str(node.peer) for node in nodes] == [f"127.0.0.1:71{i}2" for i in range(3)]
    assert [str(node.http) for node in nodes] == [f"127.0.0.1:71{i}3" for i in range(3)]


def test_a_single_node_keeps_its_data_in_the_configured_folder(tmp_path: Path) -> None:
    config = single_node_config(tmp_path / "single")
    assert config.node("n1").data_dir == tmp_path / "single"
    assert config.peers("n1") == ()


def test_the_cluster_id_comes_from_the_name_alone(tmp_path: Path) -> None:
    one, other = cluster_config(1, 7100, tmp_path), cluster_config(3, 9100, tmp_path / "b")
    assert one.cluster_id == other.cluster_id
    assert len(one.cluster_id) == 16
    assert one.cluster_id != single_node_config(tmp_path).cluster_id


def test_an_unknown_node_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'n9'; there are: n1, n2, n3"):
        cluster_config(3, 7100, tmp_path).node("n9")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (ONE_NODE + "[raft]\nelection_min = 1\n", "[raft] election_min: unknown key; did you mean"),
        (ONE_NODE + "[limit]\n", "limit: unknown key; did you mean limits?"),
        (ONE_NODE + "colour = 1\n", "[[node]] 1 colour: unknown key; known: name, client"),
        (ONE_NODE + "[raft]\nheartbeat_ms = '1'\n", "[raft] heartbeat_ms: must be a whole number"),
        (ONE_NODE + "[raft]\nheartbeat_ms = true\n", "[raft] heartbeat_ms: must be a whole number"),
        (
            ONE_NODE + "[raft]\nheartbeat_ms = 1\n",
            "[raft] heartbeat_ms: 1 is out of range: from 10",
        ),
        (
            ONE_NODE + "[raft]\nheartbeat_ms = 200\n",
            "[raft] election_min_ms: 600 must exceed three heartbeats (3 x heartbeat_ms = 600)",
        ),
        (
            ONE_NODE + "[raft]\nelection_max_ms = 600\n",
            "[raft] election_max_ms: 600 must exceed election_min_ms (600)",
        ),
        (
            ONE_NODE + "[raft]\nconnection_timeout_ms = 900\n",
            "[raft] connection_timeout_ms: 900 must be at least election_max_ms (1000)",
        ),
        (
            ONE_NODE + "[limits]\nbody_bytes = 2000000\n",
            "[limits] body_bytes: 2000000 is out of range: from 1 to 1048576",
        ),
        (ONE_NODE + "[tls]\nclient_cert = 'a'\n", "[tls] client_cert: and client_key belong"),
        (
            ONE_NODE + "[tls]\npeer_cert = 'a'\npeer_key = 'b'\n",
            "[tls] peer_cert: peer_key and peer_ca",
        ),
        (ONE_NODE + "[[user]]\nname = 'x'\n", "[[user]] 1 name: x can never connect: give it"),
        (ONE_NODE + USER + "passwort = 'x'\n", "[[user]] 1 passwort: unknown key; did you"),
        (
            ONE_NODE + USER + "password_hash = 's3cret'\n",
            "[[user]] 1 password_hash: must be",
        ),
        (ONE_NODE + USER + "token_hash = 's3cret'\n", "[[user]] 1 token_hash: must be a hash"),
        (ONE_NODE + USER + "consume = 'q'\n", "[[user]] 1 consume: must be a list of strings"),
        (ONE_NODE + USER + "consume = ['']\n", "[[user]] 1 consume: '' must be 1 to 255 bytes"),
        (ONE_NODE + USER + USER, "[[user]] 2 name: x is already used by another user"),
        (
            ONE_NODE + USER + USER.replace("'x'", "'y'"),
            "[[user]] 2 loopback: x already has it: only one user may",
        ),
        (
            ONE_NODE.replace("127.0.0.1:1", "0.0.0.0:1"),
            "[[node]] 1 client: 0.0.0.0:1 is not a loopback address: it needs [[user]] sections",
        ),
        (
            ONE_NODE.replace("127.0.0.1:2", "db.lan:2"),
            "[[node]] 1 peer: db.lan:2 is not a loopback address: it needs secret_file",
        ),
        (ONE_NODE.replace("127.0.0.1:3", "[::]:3"), "[[node]] 1 http: [::]:3 is not a loopback"),
        (ONE_NODE.replace("127.0.0.1:1", "127.0.0.1"), "[[node]] 1 client: '127.0.0.1' is not"),
        (ONE_NODE.replace("127.0.0.1:1", "127.0.0.1:x"), "[[node]] 1 client: '127.0.0.1:x': the"),
        (ONE_NODE.replace("127.0.0.1:1", "127.0.0.1:0"), "[[node]] 1 client: '127.0.0.1:0': the"),
        (ONE_NODE.replace("127.0.0.1:1", "::1:1"), "[[node]] 1 client: '::1:1': write an IPv6"),
        (
            ONE_NODE.replace("127.0.0.1:2", "127.0.0.1:1"),
            "[[node]] 1 peer: 127.0.0.1:1 is already used by [[node]] 1 client",
        ),
        (ONE_NODE.replace('"a"\nclient', '"a b"\nclient'), "[[node]] 1 name: 'a b' is not a name"),
        (ONE_NODE.replace('data_dir = "a"', ""), "[[node]] 1 data_dir: is missing"),
        (
            ONE_NODE.replace('data_dir = "a"', "data_dir = 1"),
            "[[node]] 1 data_dir: must be a quoted string",
        ),
        (ONE_NODE.replace('data_dir = "a"', "data_dir = ' '"), "[[node]] 1 data_dir: must not be"),
        ("[cluster]\nname = 'c'\n", "there is no [[node]]; at least one is needed"),
        (
            ONE_NODE.replace("[[node]]", "[[nodes]]"),
            "there is no [[node]]; at least one is needed; did you mean it by nodes?",
        ),
        ("node = [1]\n[cluster]\nname = 'c'\n", "node: must be written as [[node]] sections"),
        ("cluster = 1\n", "cluster: must be a section [cluster], not a number"),
        ("", "the section [cluster] is missing"),
        ("[cluster\n", "not valid TOML: "),
        (
            ONE_NODE.replace('name = "c"', 'name = "c"\nsecret_file = "gone"'),
            "[cluster] secret_file: ",
        ),
    ],
)
def test_a_bad_file_is_refused_in_one_line_that_names_the_key(
    tmp_path: Path, text: str, line: str
) -> None:
    assert refusal(tmp_path, text).startswith(line)


def test_two_nodes_may_not_share_a_name_or_a_folder(tmp_path: Path) -> None:
    twin = ONE_NODE[ONE_NODE.index("[[node]]") :]
    for port in "123":
        twin = twin.replace(f"127.0.0.1:{port}", f"127.0.0.1:1{port}")
    assert refusal(tmp_path, ONE_NODE + twin) == (
        "[[node]] 2 name: a is already used by [[node]] 1 name"
    )
    assert "data_dir" in refusal(tmp_path, ONE_NODE + twin.replace('name = "a"', 'name = "b"'))


def test_a_file_that_is_missing_huge_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        load_config(tmp_path / "none.toml")
    path = tmp_path / "odd.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load_config(path)
    path.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="larger than"):
        load_config(path)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path)


def test_the_secret_is_read_without_its_line_end_and_must_be_long_enough(tmp_path: Path) -> None:
    text = ONE_NODE.replace('name = "c"', 'name = "c"\nsecret_file = "secret"')
    path = tmp_path / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    (tmp_path / "secret").write_text("0123456789abcdef\n", encoding="utf-8")
    config = load_config(path)
    assert config.secret == b"0123456789abcdef"
    assert 'secret_file = "secret"' in to_toml(config)
    (tmp_path / "secret").write_text("short\n", encoding="utf-8")
    assert "has 5 bytes, needs at least 16" in refusal(tmp_path, text)


def test_relative_folders_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(ONE_NODE, encoding="utf-8")
    assert load_config(path).node("a").data_dir == tmp_path / "a"


@pytest.mark.parametrize("text", ["127.0.0.1:7101", "[::1]:7101", "localhost:65535"])
def test_an_address_round_trips_through_its_text(text: str) -> None:
    address = parse_address(text)
    assert str(address) == text
    assert address.is_loopback


def test_only_loopback_counts_as_loopback() -> None:
    assert Address("127.3.2.1", 1).is_loopback
    assert not Address("10.0.0.1", 1).is_loopback
    assert not Address("localhost.example.org", 1).is_loopback


@pytest.mark.parametrize(("count", "base_port"), [(0, 7100), (10, 7100), (3, 65_520), (1, 0)])
def test_a_cluster_that_cannot_exist_is_refused(tmp_path: Path, count: int, base_port: int) -> None:
    with pytest.raises(ConfigError):
        cluster_config(count, base_port, tmp_path)


def test_users_are_read_with_their_patterns_and_written_back(tmp_path: Path) -> None:
    made = cheap_hash("s3cret"), hash_token("t0ken")
    path = tmp_path / "cluster.toml"
    path.write_text(
        ONE_NODE.replace("127.0.0.1:1", "0.0.0.0:1")
        + f"""
        [tls]
        client_cert = "certs/{{node}}.pem"
        client_key = "certs/{{node}}.key"
        [[user]]
        name = "billing"
        password_hash = "{made[0]}"
        token_hash = "{made[1]}"
        publish = ["orders", "billing.*"]
        monitor = true
        """,
        encoding="utf-8",
    )
    config = load_config(path)
    [user] = config.users
    assert user.password is not None
    assert user.password.matches(b"s3cret")
    assert not user.password.matches(b"s3cre")
    [token] = user.tokens
    assert token.hash.matches(b"t0ken")
    assert user.may(Permission.PUBLISH, "billing.in")
    assert not user.may(Permission.PUBLISH, "orders.dlq")
    assert not user.may(Permission.CONSUME, "orders")
    assert config.tls is not None
    assert config.tls.path("client_key", "a") == tmp_path / "certs/a.key"
    assert config.url == "fifos://0.0.0.0:1"
    path.write_text(to_toml(config), encoding="utf-8")
    assert load_config(path) == config


def test_no_secret_and_no_hash_stands_in_the_text_of_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("0123456789abcdef\n", encoding="utf-8")
    path = tmp_path / "cluster.toml"
    token = new_token()
    path.write_text(
        ONE_NODE.replace('name = "c"', 'name = "c"\nsecret_file = "secret"')
        + f"{USER}token_hash = '{hash_token(token)}'\npassword_hash = '{cheap_hash(token)}'\n",
        encoding="utf-8",
    )
    config = load_config(path)
    [user] = config.users
    assert user.password is not None
    assert user.tokens
    shown = repr(config) + repr(user.password) + repr(user.tokens)
    for secret in (token, "0123456789abcdef", str(hash_token(token))[7:], str(user.password)[-43:]):
        assert secret not in shown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("$scrypt$ln=30,r=8,p=1$c2FsdHNhbHRzYWx0c2FsdA$eA", "ln 14 to 20"),
        ("$scrypt$ln=19,r=8,p=1$c2FsdHNhbHRzYWx0c2FsdA$eA", "need more than 268435456 bytes"),
        ("$scrypt$ln=15,r=8,p=1$c2FsdHNhbHRzYWx0c2FsdA$eA", "is cut"),
        ("$scrypt$ln=15,r=8,p=1$c2FsdHNhbHRzYWx0c2FsdAAAA$eAAAA", "is cut or mistyped"),
        ("plain", "fifo user hash"),
    ],
)
def test_a_hash_that_is_too_costly_or_cut_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_password_hash(text)


def test_peers_on_other_machines_are_proven_by_a_secret_or_by_certificates(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    text = ONE_NODE.replace("127.0.0.1:2", "10.0.0.1:2")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="it needs secret_file"):
        load_config(path)
    path.write_text(
        text
        + """
        [tls]
        peer_cert = "certs/{node}.pem"
        peer_key = "certs/{node}.key"
        peer_ca = "certs/ca.pem"
        """,
        encoding="utf-8",
    )
    config = load_config(path)
    assert config.tls is not None
    assert config.tls.path("peer_ca", "n1") == tmp_path / "certs/ca.pem"
    assert config.url.startswith("fifo://")
    path.write_text(to_toml(config), encoding="utf-8")
    assert load_config(path) == config
