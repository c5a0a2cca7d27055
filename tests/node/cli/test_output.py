"""Tables keep what matters whole, whatever the width of the terminal."""

from __future__ import annotations

import json

import pytest

from node.cli import output
from node.cli.tables import Column, fitted, number

ROWS = [("n1", "127.0.0.1:7101", 5, "x" * 300), ("n2", None, 12345, "short")]


def test_a_pipe_gets_every_column_whole(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table((Column("node"), Column("address"), number("lag"), Column("body")), ROWS)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["node", "address", "lag", "body"]
    assert first.startswith("n1    127.0.0.1:7101      5  xxx")
    assert first.endswith("x" * 300)  # in a pipe nothing is cut
    assert second.split() == ["n2", "-", "12345", "short"]


def test_an_empty_table_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table((Column("node"), Column("body")), [])
    assert capsys.readouterr().out.split() == ["node", "body"]


def test_markup_in_a_cell_is_printed_literally(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table((Column("body"),), [("[bold]not bold[/bold]",)])
    output.print_pairs([("name", "[red]" + "x" * 300), ("n", None)])
    output.say("[link]" + "y" * 300)
    out = capsys.readouterr().out
    assert "[bold]not bold[/bold]" in out
    assert "name  [red]" + "x" * 300 + "\n" in out
    assert "n     -\n" in out
    assert "[link]" + "y" * 300 + "\n" in out


def test_json_keeps_unicode_and_one_line_json_has_no_line_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_json({"a": "ü"})
    assert capsys.readouterr().out == '{\n  "a": "ü"\n}\n'
    assert output.json_line({"a": "x\ny"}) == '{"a":"x\\ny"}'


COLUMNS = (
    Column("client"),
    Column("status"),
    number("prefetch", 3),
    Column("tag", 2),
    number("held", 1),
    number("lock", 3),
)
CONSUMER = ("shop-worker-7", "active", 100, "billing", 12, "30.0 s")


def test_the_least_important_columns_are_hidden_first_and_of_equals_the_last() -> None:
    hidden = [fitted(COLUMNS, [CONSUMER], width).hidden for width in range(79, 9, -1)]
    assert list(dict.fromkeys(hidden)) == [
        (),
        ("lock",),
        ("prefetch", "lock"),
        ("prefetch", "tag", "lock"),
        ("prefetch", "tag", "held", "lock"),
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 132, 205])
def test_a_table_is_no_wider_than_its_terminal(width: int) -> None:
    assert fitted(COLUMNS, [CONSUMER], width).width <= width


def test_the_last_column_is_truncated_before_one_is_hidden() -> None:
    columns = (Column("id"), number("priority", 1), Column("body"))
    found = fitted(columns, [("2.1.1", 4, "x" * 300)], 60)
    assert (found.hidden, found.width) == ((), 60)


EVIL = "a\x1b[2J\nb\x9b31m\u202ec\x7f"
VISIBLE = r"a\x1b[2J\nb\x9b31m\u202ec\x7f"


def test_no_control_character_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table((Column("queue"),), [(EVIL,)])
    output.print_pairs([("key", EVIL.replace("\n", "")), (EVIL, 1)])
    output.say(EVIL)
    output.note(EVIL)
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert text.count(VISIBLE) == 4
    assert set(text) & set("\x1b\x9b\u202e\x7f") == set()


def test_json_is_the_same_value_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    value = {EVIL: [EVIL, "\U000e0041", "\udcff", "ü"]}
    output.print_json(value)
    text = capsys.readouterr().out
    assert json.loads(text) == json.loads(output.json_line(value)) == value
    assert set(text) & set("\x1b\x9b\u202e\x7f\U000e0041\udcff") == set()
    assert "ü" in text


def test_a_text_of_several_lines_keeps_them_below_one_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_pairs([("id", "1.1.1"), ("stack", "line 1\n  line \x1b2")])
    assert capsys.readouterr().out == "id     1.1.1\nstack  line 1\n         line \\x1b2\n"
