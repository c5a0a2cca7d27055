"""`fifo config check`: each error and each warning provoked by a file or a machine that has it."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from node import certificates
from node.certificates import Certificate, CertificateUnreadable
from node.cli.config_checks import line_of, of_times
from node.config import ClusterConfig, TlsSettings, cluster_config, to_toml
from tests.node.cli.local import free_base_port
from tests.support.certificates import Authority
from tests.support.users import EVERYTHING, certificate, user

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.node.cli.local import Done

    Cli = Callable[..., Done]

ANN = user("ann", **EVERYTHING, operate=True)


def written(folder: Path, config: ClusterConfig | None = None, *, more: str = "") -> Path:
    path = folder / "cluster.toml"
    path.write_text(to_toml(config or made(folder)) + more)
    path.chmod(0o600)
    return path


def made(folder: Path, **changes: Any) -> ClusterConfig:
    return replace(cluster_config(3, free_base_port(), folder), **changes)


def checks(done: Done) -> set[str]:
    return {one["check"] for one in done.json["findings"]}


def test_a_good_file_is_usable_and_nothing_is_made(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path)
    done = cli("config", "check", str(path), "--node", "n1")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{path}: is usable: no findings\n"
    assert not (tmp_path / "n1").exists()


def test_every_section_has_its_error_with_file_line_value_and_fix(cli: Cli, tmp_path: Path) -> None:
    config = made(tmp_path)
    text = to_toml(config).replace("body_bytes = 1048576", "body_bytes = 9999999")
    text = text.replace("heartbeat_ms = 100", 'heartbeat_ms = "fast"')
    path = tmp_path / "cluster.toml"
    path.write_text(text + "\n[[user]]\nname = 'a'\npasswort = 'x'\n")
    done = cli("config", "check", str(path), "--json")
    assert done.code == 1
    lines = text.splitlines()
    body, beat = (
        next(at for at, line in enumerate(lines, 1) if line.startswith(key))
        for key in ("body_bytes", "heartbeat_ms")
    )
    facts = {(one["place"], one["fact"]) for one in done.json["findings"]}
    assert facts == {
        (
            f"{path}:{body}",
            "[limits] body_bytes: 9999999 is out of range: from 1 to 1048576",
        ),
        (f"{path}:{beat}", "[raft] heartbeat_ms: must be a whole number, not a string"),
        (
            f"{path}:{len(lines) + 4}",
            "[[user]] 1 passwort: unknown key; did you mean password_hash?",
        ),
    }


def test_text_that_is_no_toml_is_named_with_its_line(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('[cluster]\nname = "a\n')
    done = cli("config", "check", str(path))
    assert done.code == 1
    assert done.out.startswith(f"error: {path}:2: not valid TOML: ")
    assert done.out.endswith("cannot be used: 1 error\n")


def test_a_file_that_is_missing_is_one_line(cli: Cli) -> None:
    done = cli("config", "check", "gone.toml")
    assert (done.code, done.err) == (1, "")
    assert "there is no such file" in done.out


def test_the_line_of_a_second_section_is_found(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text("[[node]]\nname = 'a'\n[[node]]\nname = 'b'\n[raft]\n")
    assert line_of(path, "[[node]] 2 name: x") == 4
    assert line_of(path, "[[node]] 2 client: is missing") == 3
    assert line_of(path, "the section [cluster] is missing") is None


@pytest.mark.slow
def test_secrets_that_others_can_read_are_warned_of(cli: Cli, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    secret.chmod(0o644)
    path = written(tmp_path, made(tmp_path, users=(ANN,), secret_file=secret))
    path.chmod(0o640)
    done = cli("config", "check", str(path), "--json")
    assert (done.code, checks(done)) == (0, {"readable_secret"})
    [found] = done.json["findings"]
    assert found["fix"] == f"chmod 640 {secret}"
    assert "0123456789" not in done.out
    assert cli("config", "check", str(path), "--strict").code == 1


def test_users_that_can_do_nothing_and_nodes_without_proof_are_warned_of(
    cli: Cli, tmp_path: Path
) -> None:
    path = written(tmp_path, made(tmp_path, users=(user("idle"),)))
    done = cli("config", "check", str(path), "--json")
    assert checks(done) == {"user_without_permission", "no_operator", "peers_unproven"}


@pytest.mark.parametrize(("count", "words"), [(1, "a single node"), (4, "no more losses than 3")])
def test_numbers_of_nodes_that_help_little_are_advised_against(
    cli: Cli, tmp_path: Path, count: int, words: str
) -> None:
    path = written(tmp_path, cluster_config(count, 7100, tmp_path))
    done = cli("config", "check", str(path))
    assert done.code == 0
    assert words in done.out


def test_an_address_of_another_machine_and_a_wildcard_are_errors(cli: Cli, tmp_path: Path) -> None:
    config = made(tmp_path, users=(ANN,))
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    first, *others = config.nodes
    foreign = replace(
        first,
        peer=replace(first.peer, host="192.0.2.1"),  # an address for documentation
        client=replace(first.client, host="0.0.0.0"),
    )
    config = replace(config, nodes=(foreign, *others), secret_file=secret)
    path = written(tmp_path, config)
    done = cli("config", "check", str(path), "--node", "n1", "--json")
    assert done.code == 1
    assert {"address", "wildcard", "plain_client_port"} <= checks(done)


def test_a_port_in_use_is_no_error_for_a_node_may_run(cli: Cli, tmp_path: Path) -> None:
    config = made(tmp_path)
    path = written(tmp_path, config)
    with socket.socket() as taken:
        taken.bind((config.nodes[0].http.host, config.nodes[0].http.port))
        taken.listen(1)
        done = cli("config", "check", str(path), "--node", "n1", "--json")
    assert (done.code, checks(done)) == (0, {"port"})


@pytest.mark.slow
def test_a_data_dir_that_is_a_file_and_an_unknown_node_are_errors(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path)
    (tmp_path / "n1").write_text("in the way")
    done = cli("config", "check", str(path), "--node", "n1")
    assert done.code == 1
    assert f"{tmp_path / 'n1'} is a file, not a folder; choose another data_dir" in done.out
    done = cli("config", "check", str(path), "--node", "n9")
    assert done.code == 1
    assert "no [[node]] is named 'n9'; there are: n1, n2, n3" in done.out


def test_a_disk_with_little_room_is_warned_of(cli: Cli, tmp_path: Path) -> None:
    config = made(tmp_path)
    config = replace(config, limits=replace(config.limits, disk_low_bytes=1 << 50))
    done = cli("config", "check", str(written(tmp_path, config)), "--node", "n1", "--json")
    assert checks(done) == {"disk_room"}


@pytest.mark.process
def test_certificates_are_checked_for_time_names_and_key(cli: Cli, tmp_path: Path) -> None:
    pair = certificate(tmp_path / "certs", "DNS:elsewhere.example")
    (pair.folder / "key.pem").chmod(0o644)
    tls = TlsSettings(tmp_path, client_cert="certs/cert.pem", client_key="certs/key.pem")
    path = written(tmp_path, made(tmp_path, tls=tls))
    done = cli("config", "check", str(path), "--node", "n1", "--json")
    assert done.code == 1
    assert checks(done) == {"certificate_names", "certificate_ends", "readable_secret"}
    assert "DNS:elsewhere.example" in done.out

    (pair.folder / "key.pem").write_text("no key")
    done = cli("config", "check", str(path), "--node", "n1", "--json")
    assert (done.code, checks(done)) == (1, {"certificate"})


@pytest.mark.process
def test_the_peer_certificate_names_its_node(cli: Cli, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "peers")
    for name in ("n1", "n2"):
        authority.member(name)
    tls = TlsSettings(
        tmp_path,
        peer_cert="peers/{node}.pem",
        peer_key="peers/{node}.key",
        peer_ca="peers/ca.pem",
    )
    os.replace(tmp_path / "peers" / "n2.pem", tmp_path / "peers" / "n1.pem")
    os.replace(tmp_path / "peers" / "n2.key", tmp_path / "peers" / "n1.key")
    path = written(tmp_path, made(tmp_path, tls=tls))
    done = cli("config", "check", str(path), "--node", "n1")
    assert done.code == 1
    assert "is for n2, not for 'n1'" in done.out


@pytest.mark.process
def test_a_certificate_covers_the_hosts_that_it_names(tmp_path: Path) -> None:
    pair = certificate(tmp_path, "IP:127.0.0.1,DNS:*.example.org")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    assert certificates.read(cert, key).subject == "CN=fifo-test"
    hosts = ("127.0.0.1", "n1.example.org", "127.0.0.2", "example.org")
    assert [certificates.covers(cert, key, host) for host in hosts] == [True, True, False, False]
    with pytest.raises(CertificateUnreadable):
        certificates.read(pair.ca, tmp_path / "gone.pem")


@pytest.mark.parametrize(
    ("now_s", "wanted"),
    [
        (50.0, "certificate_not_begun"),
        (100.0 + 86_400 * 50, None),
        (100.0 + 86_400 * 80, "certificate_ends"),
        (100.0 + 86_400 * 101, "certificate_ended"),
    ],
)
def test_a_certificate_that_ends_is_a_warning_before_it_is_an_error(
    now_s: float, wanted: str | None
) -> None:
    found = list(of_times("c", Certificate(100.0, 100.0 + 86_400 * 100, (), ""), now_s))
    assert [one.check for one in found] == ([] if wanted is None else [wanted])


def test_the_settings_of_tls_without_files_are_errors(cli: Cli, tmp_path: Path) -> None:
    tls = TlsSettings(tmp_path, client_cert="gone.pem", client_key="gone.key")
    done = cli("config", "check", str(written(tmp_path, made(tmp_path, tls=tls))), "--node", "n2")
    assert done.code == 1
    assert "[tls] client_cert: " in done.out
    assert "cannot be read: No such file" in done.out
