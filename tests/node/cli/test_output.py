"""Tables keep what matters whole, whatever the width of the terminal."""

from __future__ import annotations

import pytest

from node.cli import output

ROWS = [("n1", "127.0.0.1:7101", 5, "x" * 300), ("n2", None, 12345, "short")]


def test_only_the_last_column_is_truncated(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("node", "address", "lag#", "body"), ROWS)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["node", "address", "lag", "body"]
    assert first.startswith("n1    127.0.0.1:7101      5  xxx")
    assert first.rstrip().endswith("x…")
    assert second.split() == ["n2", "-", "12345", "short"]


def test_an_empty_table_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("node", "body"), [])
    assert capsys.readouterr().out.split() == ["node", "body"]


def test_markup_in_a_cell_is_printed_literally(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("body",), [("[bold]not bold[/bold]",)])
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
