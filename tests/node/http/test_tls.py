"""The http port that others can reach speaks TLS with the certificate of the client port."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from node.config import Address
from node.http import limits
from tests.support.cluster import LocalCluster, loopback_config
from tests.support.users import EVERYTHING, certificate, user


class Reachable(Address):
    """An address on loopback that counts as one that others can reach."""

    is_loopback = False


@pytest.mark.cluster
async def test_a_public_port_is_encrypted_and_authenticates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_ANSWER_SECONDS", 0.5)  # for the authority that is unknown
    made, other = certificate(tmp_path / "certs"), certificate(tmp_path / "other")
    config = loopback_config(tmp_path, 1)
    [only] = config.nodes
    reachable = Reachable(only.http.host, only.http.port)
    config = replace(
        config,
        nodes=(replace(only, http=reachable),),
        users=(user("ann", **EVERYTHING, monitor=True),),
        tls=made.settings,
    )
    cluster = LocalCluster(config)
    try:
        await cluster.start()
        node = await cluster.leader()
        trusting = ssl.create_default_context(cafile=str(made.ca))
        elsewhere = ssl.create_default_context(cafile=str(other.ca))
        who = {"Authorization": "Bearer ann-token"}
        url = f"https://{reachable}"
        async with aiohttp.ClientSession() as browser:
            async with browser.get(f"{url}/health/live", ssl=trusting) as answer:
                assert (answer.status, await answer.json()) == (200, {"status": "live"})
            async with browser.get(f"{url}/metrics", ssl=trusting) as answer:
                assert answer.status == 401
            async with browser.get(f"{url}/metrics", ssl=trusting, headers=who) as answer:
                assert "fifo_raft_is_leader" in await answer.text()
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await browser.get(f"{url}/health/live", ssl=elsewhere)
            with pytest.raises(aiohttp.ClientError):  # plain HTTP: no answer
                await browser.get(f"http://{reachable}/health/live")

            # The certificate that a reload brings is shown here too.
            queues = f"{url}/api/v1/queues"
            async with browser.get(queues, ssl=trusting, headers=who) as answer:
                problem = await answer.json(content_type=None)
                assert (answer.status, "certificate" in problem["detail"]) == (503, True), problem
            node.reload(replace(config, tls=replace(made.settings, http_ca="cert.pem")))
            async with browser.get(queues, ssl=trusting, headers=who) as answer:
                assert (answer.status, (await answer.json())["items"]) == (200, [])
            for name in ("cert.pem", "key.pem"):
                (made.folder / name).write_bytes((other.folder / name).read_bytes())
            node.reload(config)
        async with (
            aiohttp.ClientSession() as browser,
            browser.get(f"{url}/health/live", ssl=elsewhere) as answer,
        ):
            assert answer.status == 200
    finally:
        await cluster.stop()
