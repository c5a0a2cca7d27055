"""``fifo user``: users, their tokens and quotas on a running cluster, and hashes for its file.

Owns the password prompt. A password is never an argument, which every user of the machine could
read, and never leaves this process but as a hash; a token is printed once, and its hash is sent.
"""

from __future__ import annotations

import getpass
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from node.cli import output
from node.cli.confirmation import Yes, confirm
from node.cli.errors import CliError, UsageProblem
from node.cli.listing import Watch, print_list
from node.cli.session import Json, Url, run
from node.cli.tables import Column
from node.cli.text import duration
from node.credentials import hash_password, hash_token, new_token

if TYPE_CHECKING:
    from collections.abc import Iterable

    import fifo

app = typer.Typer(
    no_args_is_help=True,
    help="Add, change and remove users.",
    epilog="Example: fifo user add billing --password --publish 'orders.*'",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
TokenName = Annotated[str, typer.Argument(metavar="TOKEN", help="Name of the token.")]
Password = Annotated[
    bool,
    typer.Option("--password", help="Prompt for a password, or read a line of standard input."),
]
Monitor = Annotated[
    bool | None, typer.Option("--monitor/--no-monitor", help="May see the state of nodes.")
]
Operate = Annotated[
    bool | None, typer.Option("--operate/--no-operate", help="May change leaders and users.")
]
Loopback = Annotated[
    bool | None,
    typer.Option("--loopback/--no-loopback", help="Is who connects from a loopback address."),
]
Subjects = Annotated[
    list[str] | None,
    typer.Option("--subject", metavar="SUBJECT", help="Subject of a client certificate."),
]
Quotas = Annotated[
    list[str] | None,
    typer.Option("--quota", metavar="NAME=N", help="Share of a quota; NAME= for the default."),
]
Declare = Annotated[
    list[str] | None,
    typer.Option("--declare", metavar="PATTERN", help="Queues that it may declare."),
]
Publish = Annotated[
    list[str] | None,
    typer.Option("--publish", metavar="PATTERN", help="Queues that it may publish to."),
]
Consume = Annotated[
    list[str] | None,
    typer.Option("--consume", metavar="PATTERN", help="Queues that it may consume from."),
]
Manage = Annotated[
    list[str] | None,
    typer.Option("--manage", metavar="PATTERN", help="Queues that it may manage."),
]
Ends = Annotated[
    str | None,
    typer.Option(
        "--ends", metavar="TIME", help="End of the token: 90d from now, or 2027-01-31; else never."
    ),
]

_LISTS: Final = ("declare", "publish", "consume", "manage", "subjects")


# --- users of the log -----------------------------------------------------------------------------


@app.command("add", epilog="Example: fifo user add billing --password --publish 'orders.*'")
def add(
    name: Name,
    password: Password = False,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="TOKEN", help="Generate a token of this name."),
    ] = None,
    ends: Ends = None,
    declare: Declare = None,
    publish: Publish = None,
    consume: Consume = None,
    manage: Manage = None,
    monitor: Monitor = None,
    operate: Operate = None,
    loopback: Loopback = None,
    subject: Subjects = None,
    quota: Quotas = None,
    url: Url = None,
) -> None:
    """Add a user to a running cluster.

    The first one has to have --operate: from then on every client needs a user. Lists are given by
    repeating an option.
    """
    if not (password or token or subject or loopback):
        raise UsageProblem(
            f"{name} could never connect: give --password, --token NAME, --subject or --loopback"
        )
    if ends is not None and token is None:
        raise UsageProblem("--ends is the end of a token: give --token NAME as well")
    values = _values(
        password, declare=declare, publish=publish, consume=consume, manage=manage,
        subjects=subject, monitor=monitor, operate=operate, loopback=loopback, quota=quota,
    )  # fmt: skip
    ends_ms = 0 if ends is None else end_ms(ends, time.time())
    made = None if token is None else new_token()

    async def work(client: fifo.Client) -> None:
        given = dict(values)
        if made is not None:
            given["token"] = {"token": token, "digest": hash_token(made).digest, "ends_ms": ends_ms}
        await client.manage_user("add", name, given)

    run(url, work)
    output.say(f"user {name} is added")
    if made is not None:
        _print_token(made)


@app.command("set", epilog="Example: fifo user set billing --quota sessions=50")
def set_(
    name: Name,
    password: Password = False,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Let it have no password any more.")
    ] = False,
    declare: Declare = None,
    publish: Publish = None,
    consume: Consume = None,
    manage: Manage = None,
    monitor: Monitor = None,
    operate: Operate = None,
    loopback: Loopback = None,
    subject: Subjects = None,
    quota: Quotas = None,
    url: Url = None,
) -> None:
    """Change a user; what is not given stays.

    A list that is given replaces the one before; '' alone empties it. Permissions take effect at
    once, a new password at the next log-in.
    """
    if password and no_password:
        raise UsageProblem("--password and --no-password exclude each other")
    values = _values(
        password, declare=declare, publish=publish, consume=consume, manage=manage,
        subjects=subject, monitor=monitor, operate=operate, loopback=loopback, quota=quota,
    )  # fmt: skip
    if no_password:
        values["password"] = None
    if not values:
        raise UsageProblem(f"nothing to change: give an option; see: fifo user set {name} --help")

    async def work(client: fifo.Client) -> None:
        await client.manage_user("set", name, values)

    run(url, work)
    output.say(f"user {name} is changed")


@app.command("remove", epilog="Example: fifo user remove billing --yes")
def remove(name: Name, yes: Yes = False, url: Url = None) -> None:
    """Remove a user: its connections end at once."""
    if not yes:
        confirm(f"the connections of user {name} will end", "Remove it?")

    async def work(client: fifo.Client) -> None:
        await client.manage_user("remove", name)

    run(url, work)
    output.say(f"user {name} is removed")


@app.command("add-token", epilog="Example: fifo user add-token billing ci --ends 90d")
def add_token(name: Name, token: TokenName, ends: Ends = None, url: Url = None) -> None:
    """Give a user one token more, and print it this once."""
    ends_ms = 0 if ends is None else end_ms(ends, time.time())
    made = new_token()
    values = {"token": token, "digest": hash_token(made).digest, "ends_ms": ends_ms}

    async def work(client: fifo.Client) -> None:
        await client.manage_user("add_token", name, values)

    run(url, work)
    _print_token(made)


@app.command("revoke-token", epilog="Example: fifo user revoke-token billing ci")
def revoke_token(name: Name, token: TokenName, url: Url = None) -> None:
    """Revoke one token of a user.

    Its connections end at once, those of other tokens stay.
    """

    async def work(client: fifo.Client) -> None:
        await client.manage_user("revoke_token", name, {"token": token})

    run(url, work)
    output.say(f"token {token} of user {name} is revoked")


@app.command("password", epilog="Example: fifo user password --url fifo://ann@127.0.0.1:7101")
def password_(url: Url = None) -> None:
    """Change your own password, on a running cluster.

    Log in by the password that you have: a token or a certificate does not do. Connections that are
    open stay; the new password holds from the next log-in on.
    """
    hashed = _hashed("new password: ")

    async def work(client: fifo.Client) -> str:
        await client.manage_user("password", None, {"password": hashed})
        return client.options.user or ""

    name = run(url, work)
    output.say(f"the password of user {name} is changed")


@app.command("list", epilog="Example: fifo user list --json")
def list_(watch: Watch = False, url: Url = None, as_json: Json = False) -> None:
    """Show the users of the log with their tokens.

    `fifo users` shows what they use.
    """

    async def fetch(client: fifo.Client) -> list[dict[str, Any]]:
        return await client.log_users()

    print_list(url, fetch, _draw, as_json=as_json, watch=watch)


def _draw(found: list[dict[str, Any]]) -> None:
    if not found:
        output.note("no users in the log: import those of cluster.toml by `fifo user import`")
        return
    titles = ("user", "declare", "publish", "consume", "manage", "may", "connects by")
    output.print_table([Column(title) for title in titles], map(_row, found))


@app.command("import", epilog="Example: fifo user import --yes")
def import_(yes: Yes = False, url: Url = None) -> None:
    """Take over the users of a cluster.toml, once.

    Those of the leader's file come into the log.

    From then on they hold on every node, and [[user]] sections of files no more.
    """
    if not yes:
        confirm("from now on users are changed by `fifo user`, and by no file", "Import them?")

    async def work(client: fifo.Client) -> int:
        await client.manage_user("import")
        return len(await client.log_users())

    count = run(url, work)
    output.say(f"{count} users are in the log; remove the [[user]] sections of every cluster.toml")


def _row(user: dict[str, Any]) -> list[object]:
    ways = ["password"] if user["password"] else []
    ways += [_token_text(token) for token in user["tokens"]]
    ways += [f"certificate {subject}" for subject in user["subjects"]]
    ways += ["loopback"] if user["loopback"] else []
    may = [word for word in ("monitor", "operate") if user[word]]
    patterns = (" ".join(user[key]) for key in ("declare", "publish", "consume", "manage"))
    return [user["name"], *patterns, " ".join(may), ", ".join(ways)]


def _token_text(token: dict[str, Any]) -> str:
    ends_ms = token["ends_ms"]
    if ends_ms is None:
        return f"token {token['name']}"
    day = datetime.fromtimestamp(ends_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    word = "ends" if ends_ms > time.time() * 1000 else "ended"
    return f"token {token['name']} ({word} {day} UTC)"


def _values(
    password: bool, *, quota: Iterable[str] | None, **given: list[str] | bool | None
) -> dict[str, Any]:
    """The values of a change: what was given."""
    values: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    for key in _LISTS:
        if values.get(key) == [""]:
            values[key] = []
    if quota:
        values["shares"] = dict(map(_share, quota))
    if password:
        values["password"] = _hashed()
    return values


def _share(text: str) -> tuple[str, int | None]:
    name, equals, number = text.partition("=")
    if not equals or not (number == "" or (number.isascii() and number.isdigit())):
        raise UsageProblem(f"--quota {text!r} is not a share; write it as in sessions=500")
    return name, int(number) if number else None


def end_ms(text: str, now_s: float) -> int:
    """The end of a token in milliseconds since 1970: a duration from now, or a day, at its end."""
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        seconds = duration(text)
        if seconds <= 0:
            raise UsageProblem(f"--ends {text!r} is no time to come") from None
        return int((now_s + seconds) * 1000)
    ends_s = day.timestamp() + 86_400
    if ends_s <= now_s:
        raise UsageProblem(f"--ends {text!r} is over already")
    return int(ends_s * 1000)


# --- hashes for a file ----------------------------------------------------------------------------


@app.command("hash", epilog="Example: fifo user hash < password.txt")
def hash_(as_json: Json = False) -> None:
    """Hash a password for a [[user]] section.

    Prompts for it on a terminal; otherwise reads one line from standard input.
    """
    hashed = _hashed()
    if as_json:
        output.print_json({"password_hash": hashed})
    else:
        output.say(f'password_hash = "{hashed}"')


@app.command(epilog="Example: fifo user token --json")
def token(as_json: Json = False) -> None:
    """Generate a token for a [[user]] section, and its hash.

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


def _print_token(made: str) -> None:
    output.say(f"token {made}")
    output.note("pass it to the program (fifo://HOSTS?token=...): it is not shown again")


def _hashed(prompt: str = "password: ") -> str:
    try:
        return str(hash_password(_password(prompt)))
    except ValueError as error:
        raise CliError(f"the password {error}") from None


def _password(prompt: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass(prompt)
    if getpass.getpass(f"repeat {prompt}") != password:
        raise CliError("the two passwords differ: no hash was made; run the command again")
    return password
