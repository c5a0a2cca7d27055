"""The scripted node: the Python client keeps every rule, and a changed one is found out."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from tests.conformance import scripted
from tests.conformance.__main__ import FAILED, main
from tests.conformance.clients import rule as rules

pytestmark = pytest.mark.process

SUBJECT = f"{shlex.quote(sys.executable)} -m tests.conformance.subject {{url}}"


def test_the_python_client_keeps_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--client", SUBJECT, "--json"])
    outcomes = json.loads(capsys.readouterr().out)
    assert [one for one in outcomes if not one["holds"]] == []
    assert (code, len(outcomes)) == (0, len(rules.listed))


MUTANTS = {
    "renewal": "from fifo.client.consuming.lock_ledger import LockLedger as L;"
    " L.to_renew = lambda self, now: ()",
    "unanswered_settlement": "from fifo.client.consuming.settler import Settler as S;"
    " S.resumed = S.detached = lambda self: None",
    "unanswered_publish": "from fifo.client.publishing.publisher import Publisher as P;"
    " P.resumed = lambda self: None",
    "moved": "from fifo.client.connection import session as s; import os; h = s.hello;"
    " s.hello = lambda i, *a, **m: h(i._replace(incarnation=os.urandom(16)), *a, **m)",
    "close": "import os, fifo; fifo.Client.close = lambda *a, **m: os._exit(0)",
}
"""By the rule that has to fail, what changes the client."""


@pytest.mark.parametrize("rule", MUTANTS)
def test_a_changed_client_breaks_the_rule(
    rule: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripted, "WITHIN_S", 3.0)
    code = f"{MUTANTS[rule]}\nimport asyncio, sys\nfrom tests.conformance.subject import main\n"
    code += "asyncio.run(main(sys.argv[1]))"
    command = shlex.join([sys.executable, "-c", code, "{url}"])
    assert main(["--client", command, "--json", "--only", rule]) == FAILED
    broken = [one["rule"] for one in json.loads(capsys.readouterr().out) if not one["holds"]]
    assert rule in broken


def test_a_command_that_does_not_start_keeps_no_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--client", "/no/such/program {url}", "--only", "pong"]) == FAILED
    assert "No such file" in capsys.readouterr().out
