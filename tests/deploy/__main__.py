"""`python -m tests.deploy`: the deploy kit, held against the tools of each format, and run.

Owns the list of checks and the page `docs/deploy-checks.md`, which `--write` keeps. Exit code 1
where one fails; a check whose tool is not here says so. `--only TEXT` runs some of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from tests.deploy import tools
from tests.deploy.tools import ROOT, Failed, Missing, run
from tests.deploy.values import REFUSED, SETS, Values

PAGE: Final = ROOT / "docs" / "deploy-checks.md"
DEPLOY: Final = ROOT / "deploy"
HERE: Final = Path(__file__).parent
KUBERNETES: Final = ("1.28", "1.30", "1.33")
LINTIAN_KNOWN: Final = ",".join(
    (
        "unstripped-binary-or-object",  # libraries of wheels
        "no-manual-page",  # the command line has its help
        "initial-upload-closes-no-bugs",  # none was filed
        "unusual-interpreter",  # a script in PySyncObj's wheel, which no one runs
        "maintainer-script-calls-systemctl",  # nodes have names, which debhelper does not know
    )
)

COLUMNS: Final = 118
"""Of a line of the page."""

HEAD: Final = """\
# The deploy kit, checked

`make deploy-check` runs each file of `deploy/` through the tools of its format, builds the image
and the package twice, and starts what can be started. This page is its last run;
[deploy.md](deploy.md) says what each is for.
"""


class Verdict(NamedTuple):
    """The finding of a check; `well` is None where its tool is not here."""

    what: str
    by: str
    found: str
    well: bool | None
    seconds: float


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for one check."""
    with tempfile.TemporaryDirectory(prefix="fifo-deploy-", ignore_cleanup_errors=True) as name:
        yield Path(name)


# --- the chart ------------------------------------------------------------------------------------


def rendered(values: Values, version: str) -> str:
    """The resources of the chart. Raises Failed where it refuses the values."""
    with folder() as where:
        file = where / "values.json"
        file.write_text(json.dumps(values))
        options = ("--namespace", "prod", "--kube-version", f"{version}.0", "--values", file)
        return run(tools.helm(), "template", "orders", DEPLOY / "helm" / "fifo", *options)


def chart() -> str:
    """Every set of values, in three versions of Kubernetes."""
    helm, python = tools.helm(), tools.of_pypi() / "python"
    count = 0
    for values in SETS.values():
        with folder() as where:
            (where / "values.json").write_text(json.dumps(values))
            run(helm, "lint", "--strict", DEPLOY / "helm" / "fifo", "-f", where / "values.json")
        for version in KUBERNETES:
            text = rendered(values, version)
            seen = json.loads(run(python, HERE / "chart_schemas.py", version, given=text))
            others = json.dumps(seen["others"])
            run("node", HERE / "custom_schemas.mjs", tools.of_npm(), given=others)
            count += seen["documents"]
    _mounts_no_key_of_another()
    for name, values in REFUSED.items():
        try:
            rendered(values, KUBERNETES[-1])
        except Failed:
            continue
        raise Failed(f"it takes {name}")
    versions = ", ".join(KUBERNETES)
    return (
        f"{len(SETS)} sets of values give {count} resources that fit the schemas of Kubernetes"
        f" {versions}, cert-manager and the Prometheus operator; {len(REFUSED)} sets are refused"
    )


def _mounts_no_key_of_another() -> None:
    """With the driver, each pod has a certificate for its own name, and no secret of peers."""
    text = rendered(SETS["certificates that pods have alone"], KUBERNETES[-1])
    if "peer-tls" in text or 'csi.cert-manager.io/dns-names: "${POD_NAME}"' not in text:
        raise Failed("with csiDriver a pod mounts certificates of other pods")


# --- machines -------------------------------------------------------------------------------------


def unit() -> str:
    """The unit for systemd, with a command that is there."""
    with folder() as where:
        path = where / "fifo@n1.service"
        text = (DEPLOY / "systemd" / "fifo@.service").read_text()
        path.write_text(text.replace("/usr/bin/fifo", "/bin/true"))
        said = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path)
        if said:
            raise Failed(said)
        judged_by = run("systemd-analyze", "security", "--offline=yes", path).splitlines()[-1]
    exposure = re.search(r"([0-9.]+) ([A-Z]+)", judged_by)
    if exposure is None or exposure[2] != "OK":
        raise Failed(judged_by)
    return f"nothing wrong; its exposure is {exposure[1]} of 10"


def package() -> str:
    """The Debian package: the same bytes twice, by Debian's own judge, installed in a chroot."""
    with folder() as where:
        built = []
        for name in ("one", "two"):
            run(DEPLOY / "debian" / "build.sh", where / name, PYTHON="python3.11")
            built.append(next((where / name).glob("*.deb")))
        digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in built}
        if len(digests) != 1:
            raise Failed("two builds differ")
        run(
            *("lintian", "--fail-on=error,warning", "--suppress-tags", LINTIAN_KNOWN),
            *("--allow-root", built[0]),
        )
        size = built[0].stat().st_size / 1e6
        installed = _installed(built[0])
    return (
        f"two builds have equal bytes ({size:.0f} MB); lintian has no error and no warning;"
        f" {installed}"
    )


def _installed(package: Path) -> str:
    """The package in a Debian of its own: installed, used by its user, and purged."""
    if os.geteuid():
        return "not installed: needs root"
    script = shlex.quote(str(HERE / "package_run.sh"))
    run(
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=apt", "--format=null"),
        "--include=python3,adduser,ca-certificates",
        f'--customize-hook={script} "$1" {shlex.quote(str(package))}',
        *("bookworm", "-"),
    )
    return "installed in a bookworm, where a node of it keeps a message, and purged"


def ansible() -> str:
    """The role and its play."""
    inventory = DEPLOY / "ansible" / "inventory.example.yml"
    site = DEPLOY / "ansible" / "site.yml"
    run("ansible-playbook", "--syntax-check", "-i", inventory, site)
    bin_folder = tools.of_pypi()
    path = f"{bin_folder}:{os.environ['PATH']}"
    run(
        *(bin_folder / "ansible-lint", "--offline", "--strict", "--profile", "production"),
        site,
        cwd=DEPLOY / "ansible",
        PATH=path,
    )
    return "the syntax is right; ansible-lint's profile production has no complaint"


def terraform() -> str:
    """The configuration, and a cluster that gets its queues by it, twice."""
    with folder() as where:
        shutil.copytree(DEPLOY / "terraform", where / "tf")
        quiet = {"TF_CLI_CONFIG_FILE": os.devnull, "CHECKPOINT_DISABLE": "1"}
        run("terraform", "fmt", "-check", "-diff", cwd=where / "tf", **quiet)
        run("terraform", "init", "-input=false", cwd=where / "tf", **quiet)
        run("terraform", "validate", cwd=where / "tf", **quiet)
        fifo = str(Path(sys.executable).parent / "fifo")
        cluster = where / "cluster"
        run(fifo, "cluster", "start", "--detach", "--base-port", "27100", "--dir", cluster)
        try:
            return _applied(where / "tf", fifo, quiet)
        finally:
            run(fifo, "cluster", "stop", "--dir", cluster)


def _applied(where: Path, fifo: str, quiet: dict[str, str]) -> str:
    url = "fifo://127.0.0.1:27101,127.0.0.1:27111,127.0.0.1:27121"
    given = {**quiet, "PATH": f"{Path(fifo).parent}:{os.environ['PATH']}", "TF_VAR_url": url}
    said = []
    for lock in ("30s", "45s", "45s"):
        text = f'[[queue]]\nname = "orders"\nlock = "{lock}"\n'
        (where / "queues.toml").write_text(text)
        said.append(run("terraform", "apply", "-input=false", "-auto-approve", cwd=where, **given))
        shown = json.loads(run(fifo, "queue", "show", "orders", "--json", FIFO_URL=url))
        if shown["spec"]["lock_ms"] != 1000 * int(lock[:-1]):
            raise Failed(f"terraform applied a lock of {lock}; it is {shown['spec']['lock_ms']} ms")
    if "No changes" not in said[-1]:
        raise Failed(said[-1])
    return "formatted, valid; applied to a cluster: a queue made, changed, and left as it was"


def files() -> str:
    """The tests of the files that nodes read which need tools: more pods and hosts join."""
    bins = (tools.helm().parent, tools.of_pypi(), os.environ["PATH"])
    tests = ("-m", "pytest", "-q", "-n", "0", "--timeout", "600", str(HERE))
    run(sys.executable, *tests, cwd=ROOT, PATH=os.pathsep.join(map(str, bins)))
    return (
        "files of charts and playbooks are those that nodes take; by those of a release that has"
        " grown, two nodes join three"
    )


# --- containers -----------------------------------------------------------------------------------


def image() -> str:
    """The image: the same digest twice; then three nodes of it, by the compose file."""
    with folder() as where:
        digests = []
        for name in ("one", "two"):
            said = run(DEPLOY / "image" / "build.sh", where / name, PYTHON="python3.11")
            digests.append(next(one for one in said.split() if one.startswith("sha256:")))
        if len(set(digests)) != 1:
            raise Failed(f"two builds differ: {' '.join(digests)}")
        archive = where / "image.tar"
        run("skopeo", "copy", f"oci:{where / 'one'}:fifo", f"oci-archive:{archive}:fifo:checked")
        size = archive.stat().st_size / 1e6
        return f"two builds have one digest ({size:.0f} MB packed); {_composed(archive, where)}"


def _composed(archive: Path, where: Path) -> str:
    if os.geteuid() or shutil.which("podman") is None or shutil.which("podman-compose") is None:
        return "not started: needs root, podman, crun and podman-compose"
    script = HERE / "compose_run.sh"
    said = run(
        *("unshare", "--mount", "--propagation", "private", script),
        *(archive, DEPLOY / "compose", where / f"fifo-check-{os.getpid()}"),
    )
    steps = [line for line in said.splitlines() if ": " in line or line == "published"]
    return f"three containers by podman-compose: {', '.join(steps)}"


def compose() -> str:
    """The compose file, by docker-compose's own schema."""
    run("docker-compose", "--file", DEPLOY / "compose" / "compose.yaml", "config", "--quiet")
    return "docker-compose takes it"


def monitoring() -> str:
    """The rules for Prometheus, and the cases that they have to fire in."""
    run("promtool", "check", "rules", ROOT / "node" / "monitoring" / "alerts.yml")
    run("promtool", "test", "rules", ROOT / "tests" / "monitoring" / "alerts_test.yml")
    return "the rules are sound, and fire in their cases and in no other"


CHECKS: Final[tuple[tuple[str, str, Callable[[], str]], ...]] = (
    ("chart", "helm 3.6, kubernetes-validate, @kubernetes-models", chart),
    ("files of nodes", "helm, ansible-playbook, pytest", files),
    ("compose file", "docker-compose 1.29", compose),
    ("image", "mmdebstrap, skopeo, podman, crun, podman-compose", image),
    ("Debian package", "dpkg-deb, lintian, mmdebstrap", package),
    ("unit", "systemd-analyze", unit),
    ("Ansible role", "ansible-playbook, ansible-lint", ansible),
    ("Terraform", "terraform, a cluster of three nodes", terraform),
    ("alerts", "promtool", monitoring),
)


def judged(what: str, by: str, check: Callable[[], str]) -> Verdict:
    """Run a check."""
    began = time.monotonic()
    well: bool | None
    try:
        found, well = check(), True
    except Missing as missing:
        found, well = f"not run: {missing}", None
    except (Failed, subprocess.TimeoutExpired) as failed:
        found, well = str(failed), False
    return Verdict(what, by, found, well, time.monotonic() - began)


def page(verdicts: list[Verdict]) -> str:
    """The page of a run."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    lines = [HEAD, f"Run on {datetime.now(UTC):%Y-%m-%d} with version {version}.", ""]
    for one in verdicts:
        text = f"- **{one.what}** ({one.by}): {one.found}."
        lines += textwrap.wrap(text, COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def main() -> int:
    """The process's exit code: 1 where a check failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.deploy", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="those whose name has it")
    parser.add_argument("--write", action="store_true", help="keep the page of this run")
    given = parser.parse_args()
    verdicts = []
    for check in CHECKS:
        if given.only.lower() not in check[0].lower():
            continue
        verdict = judged(*check)
        word = {True: "ok", False: "FAILED", None: "-"}[verdict.well]
        print(f"{word:<7} {verdict.what} ({verdict.seconds:.0f} s): {verdict.found}", flush=True)
        verdicts.append(verdict)
    failed = [one for one in verdicts if one.well is False]
    if given.write and not failed:
        PAGE.write_text(page(verdicts), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
