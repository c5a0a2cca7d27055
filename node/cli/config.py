"""``fifo config check``: whether a node would start from a cluster.toml, and what it would regret.

Owns the command and its output. Changes nothing: no folder is made, no port stays bound. Must not
know the checks: `config_checks` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from node.cli import findings, output
from node.cli.config_checks import check_file, check_node
from node.cli.session import Json
from node.config import examine

app = typer.Typer(
    no_args_is_help=True,
    help="Check a cluster.toml before nodes start from it.",
    epilog="Example: fifo config check cluster.toml --node n1",
)

DEFAULT = Path("cluster.toml")


@app.command("check", epilog="Example: fifo config check /etc/fifo/cluster.toml --node n1")
def check(
    config: Annotated[Path, typer.Argument(help="Path of the file.", metavar="FILE")] = DEFAULT,
    node: Annotated[
        str | None,
        typer.Option(
            "--node",
            help="Check as well what this node needs here: certificates, addresses, data folder.",
            metavar="NAME",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings, too.")] = False,
    as_json: Json = False,
) -> None:
    """Check a file as a node would read it.

    Exit code 0 if a node can start from it. With --node, or with a single node in the file, checks
    this machine as well.
    """
    settings, problems = examine(config)
    found = check_file(config, settings, problems)
    name = node
    if settings is not None:
        name = node or (settings.nodes[0].name if len(settings.nodes) == 1 else None)
        if name is not None:
            found += check_node(config, settings, name)
    found = findings.ordered(found)
    code = findings.exit_code(found, strict=strict)
    if as_json:
        listed = [one.as_dict() for one in found]
        output.print_json({"file": str(config), "node": name, "ok": not code, "findings": listed})
    else:
        findings.say(found)
        verdict = "is usable" if not code else "cannot be used"
        if settings is not None and code and findings.exit_code(found, strict=False) == 0:
            verdict = "is usable, with warnings"
        output.say(f"{config}: {verdict}: {findings.counted(found)}")
        if settings is not None and name is None:
            output.note("certificates, addresses and folders were not checked: give --node NAME")
    raise typer.Exit(code)
