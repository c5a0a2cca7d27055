"""``fifo user hash`` and ``fifo user token``: secrets for the [[user]] sections of a cluster.toml.

Owns the password prompt. A password is never an argument, which every user of the machine could
read, and is never printed.
"""

from __future__ import annotations

import getpass
import sys

import typer

from node.cli import output
from node.cli.errors import CliError
from node.cli.session import Json
from node.credentials import hash_password, hash_token, new_token

app = typer.Typer(
    no_args_is_help=True,
    help="Hash passwords and tokens for cluster.toml.",
    epilog="Example: fifo user hash",
)


@app.command("hash", epilog="Example: fifo user hash < password.txt")
def hash_(as_json: Json = False) -> None:
    """Hash a password.

    Prompts for it on a terminal; otherwise reads one line from standard input.
    """
    try:
        hashed = hash_password(_password())
    except ValueError as error:
        raise CliError(f"the password {error}") from None
    if as_json:
        output.print_json({"password_hash": str(hashed)})
    else:
        output.say(f'password_hash = "{hashed}"')


@app.command(epilog="Example: fifo user token --json")
def token(as_json: Json = False) -> None:
    """Generate a token for a program, and its hash.

    The token is printed only this once.
    """
    made = new_token()
    hashed = hash_token(made)
    if as_json:
        output.print_json({"token": made, "token_hash": str(hashed)})
        return
    output.say(f"token {made}")
    output.say(f'token_hash = "{hashed}"')
    output.note(
        "pass the token to the program (fifo://HOSTS?token=...); put the hash into cluster.toml"
    )


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass("password: ")
    if getpass.getpass("repeat password: ") != password:
        raise CliError("the two passwords differ: no hash was made; run the command again")
    return password
