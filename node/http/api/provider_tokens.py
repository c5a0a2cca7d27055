"""Tokens of an identity provider: the one in hand for each user with its groups.

Owns which token opens the session of such a caller: a provider gives another one every few minutes,
and the session goes on. What a token proves is looked at with each request, before it comes here: a
token without a group that another one has leads to another session, and one that is believed no
longer to none. Must not know requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from node.broker.permissions import Rights
from node.http import limits
from node.http.api.callers import Credentials


class _InHand(NamedTuple):
    token: str
    rights: Rights
    ends_ms: int


class ProviderTokens:
    """The tokens in hand. `believes`: whether the token behind these rights still is believed; it
    is asked on threads too."""

    def __init__(self, believes: Callable[[Rights], bool]) -> None:
        self._believes = believes
        self._tokens: dict[Credentials, _InHand] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def note(self, token: str, rights: Rights) -> Credentials:
        """Take in a token that was verified now; the credentials of all that prove the same. The
        one that lasts longest stays in hand."""
        assert rights.signed is not None, "it is a provider's"
        who = Credentials(rights.user.name, groups=rights.signed.groups)
        known = self._tokens.pop(who, None)
        given = _InHand(token, rights, rights.signed.ends_ms)
        if known is None or known.ends_ms < given.ends_ms or not self._believes(known.rights):
            known = given
        self._tokens[who] = known
        if len(self._tokens) > limits.API_TOKENS_MAX:
            del self._tokens[next(iter(self._tokens))]
        return who

    def token(self, who: Credentials) -> str:
        """The token for a log-in. Raises LookupError where none is believed: the caller brings one
        with its next request."""
        known = self._tokens.get(who._replace(remote=None))
        if known is None or not self._believes(known.rights):
            raise LookupError("the caller's token has ended, and it has brought no other one yet")
        return known.token

    def forget(self, who: Credentials) -> None:
        """Drop a token that the leader refuses; harmless for others."""
        self._tokens.pop(who._replace(remote=None), None)
