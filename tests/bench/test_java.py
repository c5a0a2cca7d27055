"""Which Java Spark gets: found where it usually is, refused when it is too old."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench import java
from bench.java import Java, find_java
from bench.spark import JavaMissing, settings, start_spark

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process


NOTHING = {"PATH": ""}


@pytest.fixture(autouse=True)
def _no_installed_javas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test makes itself is there."""
    monkeypatch.setattr(java, "JAVA_FOLDERS", ())


def make_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A folder like an installed Java's, whose program answers as Java does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"""#!/bin/sh
echo '    java.home = {home}' >&2
echo 'openjdk version "{version}" 2025-04-15' >&2
""")
    program.chmod(0o755)
    if release:
        text = f'IMPLEMENTOR_VERSION="Ada-9"\nJAVA_RUNTIME_VERSION="{version}+6"\n'
        (home / "release").write_text(text)
    return home


def test_java_home_is_taken_first(tmp_path: Path) -> None:
    """An explicit setting wins over the path."""
    named = make_java(tmp_path / "named", "25.0.3")
    on_path = make_java(tmp_path / "other", "21.0.1")
    env = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert find_java(env) == Java(named, 25)


def test_a_java_on_the_path_is_followed_through_its_link(tmp_path: Path) -> None:
    """Debian's /usr/bin/java is a link to a link."""
    home = make_java(tmp_path / "home", "17.0.15")
    folder = tmp_path / "usr-bin"
    folder.mkdir()
    (folder / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(folder)}) == Java(home, 17)


def test_a_version_managers_shim_is_asked_where_its_java_is(tmp_path: Path) -> None:
    """The shim lies in no Java's folder."""
    home = make_java(tmp_path / "home", "21.0.8")
    shim = tmp_path / "shims" / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    shim.chmod(0o755)
    found = find_java({"PATH": str(shim.parent)})
    assert found is not None
    assert found.version == 21


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
@pytest.mark.parametrize("release", [True, False])
def test_an_old_java_is_not_taken(tmp_path: Path, version: str, *, release: bool) -> None:
    """Spark would die in it with a word about class file versions."""
    home = make_java(tmp_path / "old", version, release=release)
    assert find_java({"JAVA_HOME": str(home), "PATH": str(home / "bin")}) is None


def test_of_several_installed_ones_a_proven_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest may be one that Spark has never seen."""
    monkeypatch.setattr(java, "JAVA_FOLDERS", (str(tmp_path),))
    for version in ("11.0.1", "17.0.15", "21.0.8", "31.0.1"):
        make_java(tmp_path / f"java-{version}", version)
    assert find_java(NOTHING) == Java(tmp_path / "java-21.0.8", 21)


def test_no_java_is_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a JVM is tried."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JavaMissing, match="install Java 17"):
        start_spark("x", "local[1]", tmp_path)


def test_everything_that_spark_writes_lies_in_the_runs_folder(tmp_path: Path) -> None:
    """A killed JVM cleans nothing up; the folder goes as a whole."""
    made = settings(tmp_path, tmp_path / "java")
    for name in ("spark.local.dir", "spark.sql.warehouse.dir", "spark.jars.ivy"):
        assert made[name].startswith(str(tmp_path))
    assert f"-Djava.io.tmpdir={tmp_path}" in made["spark.driver.extraJavaOptions"]


def test_a_task_runs_once_or_fails(tmp_path: Path) -> None:
    """A second run of it would publish its rows a second time."""
    made = settings(tmp_path, tmp_path / "java")
    assert made["spark.task.maxFailures"] == "1"
    assert made["spark.speculation"] == "false"
    assert made["spark.ui.enabled"] == "false"
