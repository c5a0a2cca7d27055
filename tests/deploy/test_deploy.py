"""The files under deploy: images that are equal twice, files from which nodes start, a sound unit.

A chart is rendered and a package installed by hand (docs/deploy.md says with what); here is what
needs nothing but the checkout, and systemd and helm where they are there.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from node.cli.config_checks import check_file
from node.cli.findings import Severity
from node.config import ClusterConfig, examine, load_config
from tests.deploy.values import ADMIN, REFUSED, SETS, known, leaves
from tests.members import stories

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "fifo"


HELM = shutil.which("helm")
ANSIBLE = shutil.which("ansible-playbook")


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def layer(path: Path, text: str) -> Path:
    with tarfile.open(path, "w") as file:
        info = tarfile.TarInfo("etc/motd")
        info.size = len(text)
        file.addfile(info, io.BytesIO(text.encode()))
    return path


def blob(layout: Path, digest: str) -> bytes:
    data = (layout / "blobs" / "sha256" / digest.removeprefix("sha256:")).read_bytes()
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == digest
    return data


def image(folder: Path, *layers: Path, epoch: str = "1700000000") -> str:
    made = run(
        sys.executable, DEPLOY / "image" / "oci.py", folder, *layers, SOURCE_DATE_EPOCH=epoch
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_an_image_of_equal_layers_has_an_equal_digest_and_no_rights(tmp_path: Path) -> None:
    layers = [layer(tmp_path / "a.tar", "a"), layer(tmp_path / "b.tar", "b")]
    first, second = (image(tmp_path / name, *layers) for name in ("one", "two"))
    assert first == second
    assert image(tmp_path / "three", *layers, epoch="1700000001") != first
    assert image(tmp_path / "four", layers[0]) != first

    index = json.loads((tmp_path / "one" / "index.json").read_text())
    assert index["manifests"][0]["digest"] == first
    manifest = json.loads(blob(tmp_path / "one", first))
    for one in manifest["layers"]:
        assert len(blob(tmp_path / "one", one["digest"])) == one["size"]
    config = json.loads(blob(tmp_path / "one", manifest["config"]["digest"]))
    assert config["config"]["User"] == "10001:10001"
    assert config["created"] == "2023-11-14T22:13:20Z"
    assert config["rootfs"]["diff_ids"] == [
        f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}" for path in layers
    ]


def test_what_wheels_need_is_taken_from_the_lock_with_its_hashes(tmp_path: Path) -> None:
    text = "import sys; sys.path.insert(0, sys.argv[1]); import locked, pathlib, json;"
    text += " found = locked.blocks_of(pathlib.Path(sys.argv[2]).read_text());"
    text += " print(json.dumps(found))"
    done = run(sys.executable, "-c", text, DEPLOY, ROOT / "requirements.lock")
    assert done.returncode == 0, done.stderr
    blocks: dict[str, str] = json.loads(done.stdout)
    for name in ("msgpack", "aiohttp", "pysyncobj", "typer"):
        assert re.match(rf"{name}==\S+ \\\n +--hash=sha256:", blocks[name]), blocks[name]
        assert blocks[name].count("==") == 1


def test_compose_starts_from_files_that_a_node_takes(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "compose", tmp_path / "compose")
    script = tmp_path / "compose" / "init.sh"
    made = run("sh", script, FIFO=f"{sys.executable} -m node", PYTHONPATH=str(ROOT))
    assert made.returncode == 0, made.stderr
    assert re.fullmatch(r"token fifo_\S+\n", made.stdout)
    etc = tmp_path / "compose" / "etc"
    settings, problems = examine(etc / "cluster.toml")
    assert problems == []
    assert settings is not None
    errors = [
        one
        for one in check_file(etc / "cluster.toml", settings, [])
        if one.severity is Severity.ERROR
    ]
    assert errors == []
    token = made.stdout.split()[1]
    assert settings.users[0].tokens[0].hash.matches(token.encode())
    assert token not in (etc / "cluster.toml").read_text()
    again = run("sh", script, FIFO=f"{sys.executable} -m node", PYTHONPATH=str(ROOT))
    assert (again.returncode, "etc is there already" in again.stderr) == (1, True)
    compose = (DEPLOY / "compose" / "compose.yaml").read_text()
    assert [f"--node, {node.name}]" in compose for node in settings.nodes] == [True] * 3
    for name in ("n4", "n5"):
        joins = joining(etc / f"{name}.toml")
        assert f"[serve, --config, /etc/fifo/{name}.toml, --node, {joins.nodes[0].name}]" in compose
        assert [str(one) for one in joins.join] == [str(one.peer) for one in settings.nodes]
        assert joins.users == settings.users


def joining(path: Path) -> ClusterConfig:
    """A file by which a node joins: it names that node alone, and nothing else is wrong with it."""
    settings = load_config(path)
    assert len(settings.nodes) == 1
    assert settings.join
    found = check_file(path, settings, [])
    assert [one for one in found if one.severity is Severity.ERROR] == []
    return settings


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_fourth_service_of_compose_joins_the_three(tmp_path: Path) -> None:
    """The files as init.sh writes them, with addresses of this machine: no container is needed."""
    shutil.copytree(DEPLOY / "compose", tmp_path / "compose")
    fifo = {"FIFO": f"{sys.executable} -m node", "PYTHONPATH": str(ROOT)}
    made = run("sh", tmp_path / "compose" / "init.sh", **fifo)
    assert made.returncode == 0, made.stderr
    etc = tmp_path / "compose" / "etc"
    began = (etc / "cluster.toml").read_text()
    files = {**dict.fromkeys(("n1", "n2", "n3"), began), "n4": (etc / "n4.toml").read_text()}
    secret, token = (etc / "cluster.secret").read_text(), made.stdout.split()[1]
    await stories.grow_by_files(tmp_path / "machines", files, secret, token)


def test_the_unit_and_the_package_agree_with_the_command_line() -> None:
    unit = (DEPLOY / "systemd" / "fifo@.service").read_text()
    assert "ExecStart=/usr/bin/fifo serve --config /etc/fifo/cluster.toml --node %i" in unit
    assert "\n--recover" not in unit
    for script in ("postinst", "prerm", "postrm", "build.sh"):
        assert run("sh", "-n", DEPLOY / "debian" / script).returncode == 0
    for script in ("app.sh", "image/build.sh"):
        assert run("sh", "-n", DEPLOY / script).returncode == 0


def test_a_machine_that_joins_starts_from_the_example(tmp_path: Path) -> None:
    """By the unit as it is: the file says where the members are, and that they are not in it."""
    example = DEPLOY / "systemd" / "cluster.join.toml"
    path = Path(shutil.copy(example, tmp_path / "cluster.toml"))
    (tmp_path / "cluster.secret").write_text("only members know this\n")
    for one in (path, tmp_path / "cluster.secret"):
        one.chmod(0o640)
    settings = load_config(path)
    assert [str(address) for address in settings.join] == [f"10.0.0.{n}:7102" for n in (1, 2, 3)]
    (node,) = settings.nodes
    assert f"fifo@{node.name}" in example.read_text()
    unit = (DEPLOY / "systemd" / "fifo@.service").read_text()
    assert str(node.data_dir).startswith(
        next(one for one in unit.splitlines() if one.startswith("WorkingDirectory=")).split("=")[1]
    )
    found = check_file(path, settings, [])
    assert {one.severity for one in found} <= {Severity.WARNING}, "TLS is left to the operator"
    assert not any("a single node" in one.fact for one in found), "it is about itself alone"
    other = (
        path.read_text().partition("[[node]]")[2].replace('"n4"', '"n5"').replace("0.4:", "0.5:")
    )
    path.write_text(f"{path.read_text()}\n[[node]]{other.replace('fifo/data', 'fifo/data5')}")
    _, problems = examine(path)
    assert "a node that joins lists itself alone" in str(problems[0])


def test_what_the_launcher_starts_finds_the_package_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the image and the Debian package: `fifo cluster start` and `fifo worker` start others."""
    monkeypatch.chdir(tmp_path)  # `python -m` would find this checkout first.
    found = re.search(
        r"<<'LAUNCHER'\n(.*?)^LAUNCHER$", (DEPLOY / "app.sh").read_text(), re.S | re.M
    )
    assert found is not None
    library = tmp_path / "lib"
    (library / "fifo").mkdir(parents=True)
    (library / "fifo" / "__init__.py").touch()
    (library / "fifo" / "__main__.py").write_text(
        "import subprocess, sys\n\n\ndef main() -> int:\n"
        '    return subprocess.call([sys.executable, "-m", "node", "of", "it"])\n'
    )
    (library / "node.py").write_text("import sys\n\nprint(sys.argv[1:])\n")
    launcher = tmp_path / "fifo"
    launcher.write_text(found[1].replace("/usr/lib/fifo", str(library)))
    for variables in ({}, {"PYTHONPATH": str(tmp_path)}):
        done = run(sys.executable, "-IB", launcher, **variables)
        assert (done.returncode, done.stdout) == (0, "['of', 'it']\n"), done.stderr
    assert not [*library.rglob("__pycache__")]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    """The command is a real one here, for systemd looks for it."""
    unit = (DEPLOY / "systemd" / "fifo@.service").read_text().replace("/usr/bin/fifo", "/bin/true")
    path = tmp_path / "fifo@n1.service"
    path.write_text(unit)
    done = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(ANSIBLE is None, reason="no ansible-playbook here: `make deploy-check` has one")
def test_a_host_that_joins_is_in_no_file_of_the_others(tmp_path: Path) -> None:
    """The template as Ansible fills it in: adding a host restarts none of the others."""
    before = filled_in(tmp_path / "before", {f"n{n}": {} for n in (1, 2, 3)})
    after = filled_in(tmp_path / "after", {f"n{n}": {"fifo_joins": n > 3} for n in (1, 2, 3, 4)})
    assert {name: after[name].read_text() for name in before} == {
        name: path.read_text() for name, path in before.items()
    }
    assert [node.name for node in load_config(after["n1"]).nodes] == ["n1", "n2", "n3"]
    joins = joining(after["n4"])
    assert [node.name for node in joins.nodes] == ["n4"]
    assert [str(one) for one in joins.join] == [f"n{n}.example.org:7102" for n in (1, 2, 3)]


def filled_in(folder: Path, hosts: dict[str, dict[str, Any]]) -> dict[str, Path]:
    """The role's template for each host of an inventory, on this machine."""
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "fifo_cluster": "shop",
        "fifo_users": '[[user]]\nname = "admin"\noperate = true\n'
        f'password_hash = "{ADMIN["password_hash"]}"\n',
    }
    inventory = {
        "fifo": {
            "hosts": {
                name: {"fifo_host": f"{name}.example.org", **one} for name, one in hosts.items()
            },
            "vars": variables,
        }
    }
    dest = str(folder / "{{ inventory_hostname }}.toml")
    task = {"ansible.builtin.template": {"src": "cluster.toml.j2", "dest": dest}}
    play = {"hosts": "fifo", "gather_facts": False, "roles": [{"role": str(folder / "role")}]}
    for part in ("defaults", "templates"):
        source = DEPLOY / "ansible" / "roles" / "fifo" / part
        shutil.copytree(source, folder / "role" / part)
    (folder / "role" / "tasks").mkdir()
    (folder / "role" / "tasks" / "main.yml").write_text(json.dumps([task]))
    (folder / "cluster.secret").write_text("0123456789abcdef")
    (folder / "hosts.json").write_text(json.dumps(inventory))
    (folder / "play.json").write_text(json.dumps([play]))
    assert ANSIBLE is not None
    done = run(ANSIBLE, "-i", folder / "hosts.json", folder / "play.json", HOME=str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: folder / f"{name}.toml" for name in hosts}


def values_of(path: Path) -> set[str]:
    """The values that templates name, up to two levels."""
    text = "\n".join(one.read_text() for one in sorted(path.glob("templates/*")))
    return set(re.findall(r"\.Values\.(\w+)", text))


def test_each_value_of_the_chart_has_a_form_and_a_use() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = set(schema["properties"]) - {"global"}
    given = set(re.findall(r"^(\w+):", (CHART / "values.yaml").read_text(), re.M))
    assert given == known
    assert values_of(CHART) == known
    assert schema["additionalProperties"] is False


def test_the_sets_that_are_rendered_leave_no_value_out() -> None:
    """`make deploy-check` renders them, and holds what comes out against the schemas."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    given = set().union(*(leaves(values) for values in SETS.values()))
    assert known(schema) - {"global"} - given == set()
    assert len(REFUSED) > 3


def test_terraform_applies_the_file_of_queues_when_it_has_changed() -> None:
    text = (DEPLOY / "terraform" / "main.tf").read_text()
    assert re.findall(r'^variable "(\w+)"', text, re.M) == ["url", "queues", "prune"]
    assert "triggers_replace = [filesha256(var.queues), var.url, var.prune]" in text
    command = re.search(r'command += "(fifo .*)"\n', text)
    assert command is not None
    words = command[1].replace('\\"', '"').replace("$${", "${")
    shown = run(
        "sh", "-euc", f"fifo() {{ printf '%s|' \"$@\"; }}; {words}", QUEUES="q.toml", PRUNE=""
    )
    assert shown.stdout == "apply|q.toml|--yes|"
    shown = run(
        "sh", "-euc", f"fifo() {{ printf '%s|' \"$@\"; }}; {words}", QUEUES="q", PRUNE="a b*"
    )
    assert shown.stdout == "apply|q|--yes|--prune|--only|a b*|"


needs_helm = pytest.mark.skipif(HELM is None, reason="no helm here: `make deploy-check` has one")


@needs_helm
@pytest.mark.parametrize(
    ("values", "began", "join"),
    [
        ({}, 3, 0),
        ({"replicas": 5, "founders": 5, "limits": {"disk_low_bytes": 1 << 30}}, 5, 0),
        ({"users": [], "usersInLog": True, "balancers": ["10.0.0.0/24"]}, 3, 0),
        ({"peerTls": {"enabled": True, "issuerRef": {"name": "peers"}}}, 3, 0),
        ({"peerTls": {"enabled": True, "csiDriver": True, "issuerRef": {"name": "peers"}}}, 3, 0),
        ({"replicas": 5, "raft": {"heartbeat_ms": 50}}, 3, 2),
        ({"replicas": 3, "founders": 1}, 1, 2),
        ({"replicas": 3, "founders": 0}, 0, 3),
        ({"replicas": 3, "founders": 5}, 3, 0),
    ],
)
def test_the_files_of_a_chart_are_those_that_nodes_take(
    tmp_path: Path, values: dict[str, Any], began: int, join: int
) -> None:
    """A file for each pod: those of the beginning name each other, and each of the others itself,
    and where the members are."""
    files, _ = of_chart(tmp_path, values)
    names = [f"q-{place}" for place in range(began + join)]
    assert [*files] == names
    for name in names[:began]:
        config = load_config(files[name])
        count = values.get("founders", 3)
        assert [node.name for node in config.nodes] == [f"q-{place}" for place in range(count)]
        assert not config.join
    for name in names[began:]:
        config = joining(files[name])
        assert config.node(name).peer.host == f"{name}.q-nodes.prod.svc.cluster.local"
        assert [one.host.partition(".")[0] for one in config.join] == [
            other for other in names if other != name
        ]


@needs_helm
def test_more_replicas_restart_no_pod(tmp_path: Path) -> None:
    """The template of the pods stays as it is, and so do the files of those that are there."""
    three, pods_of_three = of_chart(tmp_path / "three", {})
    five, pods_of_five = of_chart(tmp_path / "five", {"replicas": 5})
    assert pods_of_three == pods_of_five
    assert [five[name].read_text() for name in three] == [one.read_text() for one in three.values()]
    _, pods = of_chart(tmp_path / "other", {"limits": {"disk_low_bytes": 1 << 30}})
    assert pods != pods_of_three, "a change of what nodes read at their start restarts them"


@needs_helm
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_pods_that_a_chart_adds_join_the_others(tmp_path: Path) -> None:
    """The files of a release that has grown from three to five, with addresses of this machine."""
    said = run(sys.executable, "-m", "node", "user", "token", PYTHONPATH=str(ROOT)).stdout
    values = dict(re.findall(r'^(token|token_hash)(?: =)? "?([^"\n]+)"?$', said, re.M))
    operator = {"name": "op", "operate": True, "token_hash": values["token_hash"]}
    files, _ = of_chart(tmp_path / "chart", {"replicas": 5, "users": [operator]})
    texts = {name: path.read_text() for name, path in files.items()}
    folder = tmp_path / "machines"
    await stories.grow_by_files(folder, texts, "only members know this\n", values["token"])


def of_chart(folder: Path, values: dict[str, Any]) -> tuple[dict[str, Path], str]:
    """The files of the nodes that a release has, by their names, and the template of its pods."""
    folder.mkdir(exist_ok=True)
    file = folder / "values.json"
    file.write_text(json.dumps({"users": [ADMIN], **values}))
    assert HELM is not None
    options = ("--namespace", "prod", "--kube-version", "1.30.0", "--values", file)
    done = run(HELM, "template", "q", CHART, *options)
    assert done.returncode == 0, done.stderr
    (folder / "secret").mkdir()
    (folder / "secret" / "cluster.secret").write_text("0123456789abcdef")
    files = {}
    for name, text in re.findall(r"^  (q-\d)\.toml: \|\n((?:    .*\n)+)", done.stdout, re.M):
        files[name] = folder / f"{name}.toml"
        files[name].write_text(re.sub(r"^    ", "", text, flags=re.M))
    pods = re.search(r"^  template:\n(.*?)^  volumeClaimTemplates:", done.stdout, re.M | re.S)
    assert pods is not None
    assert "--config, /etc/fifo/$(FIFO_NODE).toml, --node, $(FIFO_NODE)]" in pods[1]
    return files, pods[1]
