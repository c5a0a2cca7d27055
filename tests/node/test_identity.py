"""The section [jwt] of a cluster.toml: read, written, and refused with section and key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from node.cli import config_checks
from node.cli.config_checks import check_file, line_of
from node.config import ClusterConfig, cluster_config, examine, load_config, to_toml
from node.identity import JwtSettings
from node.table import ConfigError
from node.users import Quota, User

GROUP = '[[jwt.group]]\nname = "billing"\npublish = ["billing.*"]\n'
KEYS = 'keys = "keys.json"\nissuer = "https://i"\naudience = "fifo"\n'


def written(folder: Path, section: str) -> Path:
    """A file with this section."""
    path = folder / "cluster.toml"
    path.write_text(to_toml(cluster_config(1, 7100, folder)) + "\n" + section)
    return path


def test_a_section_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    groups = (
        User("domain users", consume=("a.*", "b"), shares=((Quota.SESSIONS, 5),)),
        User("ops", operate=True, monitor=True),
    )
    provider = JwtSettings(
        tmp_path, "https://i/keys", "https://i", "fifo", "email", "roles", "ca.pem", groups
    )
    path = tmp_path / "cluster.toml"
    config = replace(cluster_config(1, 7100, tmp_path), jwt=provider)
    path.write_text(to_toml(config))
    assert load_config(path).jwt == provider


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("[jwt]\n" + GROUP, r"\[jwt\] keys: is missing"),
        (f"[jwt]\n{KEYS}", r"\[jwt\] group: is missing: add \[\[jwt.group\]\] sections"),
        (f"[jwt]\n{KEYS}isuer = 1\n{GROUP}", r"isuer: unknown key; did you mean issuer\?"),
        (f'[jwt]\n{KEYS}user = ""\n{GROUP}', r"\[jwt\] user: must not be empty"),
        (f'[jwt]\n{KEYS}ca = "ca.pem"\n{GROUP}', r"\[jwt\] ca: has an effect only where keys is"),
        (f"[jwt]\n{KEYS}{GROUP}{GROUP}", r"group: 'billing' has 2 sections: write one"),
        (f'[jwt]\n{KEYS}[[jwt.group]]\nname = "x"\n', r"\[\[jwt.group\]\] 1 name: x: grants no"),
        (f"[jwt]\n{KEYS}{GROUP}password_hash = 'x'\n", r"\[\[jwt.group\]\] 1 password_hash: unk"),
        (f"[jwt]\n{KEYS}{GROUP}publish = 'a'\n".replace('publish = ["billing.*"]\n', ""),
         r"\[\[jwt.group\]\] 1 publish: must be a list of strings"),
        (f"[jwt]\n{KEYS}".replace("keys.json", "http://i/keys") + GROUP, "is not encrypted"),
        (f"[jwt]\n{KEYS}".replace("keys.json", "ftp://i/keys") + GROUP, "is no address of keys"),
        (f"[jwt]\n{KEYS}".replace("keys.json", "https:///keys") + GROUP, "is no address of keys"),
        (f"[jwt]\n{KEYS}".replace("keys.json", "https://i:x/k") + GROUP, "is no address"),
        (f"[jwt]\n{KEYS}".replace("keys.json", "https://u@i/k") + GROUP, "without a user"),
        (f"[jwt]\n{KEYS}".replace('"fifo"', '"' + "a" * 1_025 + '"') + GROUP, "at most 1024"),
        ("jwt = 7\n", "must be a section"),
    ],
)  # fmt: skip
def test_a_wrong_section_is_refused_with_its_key(section: str, words: str, tmp_path: Path) -> None:
    path = written(tmp_path, section if section.startswith("[") else "")
    if not section.startswith("["):
        path.write_text(section + path.read_text())
    with pytest.raises(ConfigError, match=words):
        load_config(path)


def test_a_problem_of_a_group_has_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, f"[jwt]\n{KEYS}{GROUP}publich = 1\n")
    _, (problem,) = examine(path)
    lines = path.read_text().splitlines()
    line = line_of(path, str(problem).removeprefix(f"{path}: "))
    assert line is not None
    assert lines[line - 1] == "publich = 1"


def with_provider(folder: Path, keys: str = "keys.json") -> ClusterConfig:
    group = User("billing", publish=("*",))
    provider = JwtSettings(folder, keys, "https://i", "fifo", groups=(group,))
    return replace(cluster_config(1, 7100, folder), jwt=provider)


def test_a_provider_is_users_enough_for_addresses_that_others_can_reach(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    text = to_toml(with_provider(tmp_path)).replace("127.0.0.1:7101", "0.0.0.0:7101")
    path.write_text(text)
    assert load_config(path).jwt is not None


def test_a_config_check_finds_keys_that_cannot_be_read_and_that_no_one_operates(
    tmp_path: Path,
) -> None:
    pytest.importorskip("jwt", reason="the extra jwt is not installed")
    config = with_provider(tmp_path)
    (found,) = config_checks.check_keys(config)
    assert (found.check, found.severity) == ("jwt", "error")
    assert "keys.json: cannot be read: No such file" in found.fact
    path = written(tmp_path, "")
    assert "no_operator" in [one.check for one in check_file(path, config, [])]
    assert list(config_checks.check_keys(cluster_config(1, 7100, tmp_path))) == []


def test_a_config_check_takes_keys_that_are_there(tmp_path: Path) -> None:
    pytest.importorskip("jwt", reason="the extra jwt is not installed")
    from tests.support.identity import SigningKey, jwks

    (tmp_path / "keys.json").write_bytes(jwks(SigningKey("k")))
    assert list(config_checks.check_keys(with_provider(tmp_path))) == []
