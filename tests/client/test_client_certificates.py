"""Clients that prove by a certificate which user they are, against a real node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import fifo
from node.config import TlsSettings, load_config, to_toml
from node.server import Node
from node.table import ConfigError
from node.users import User
from tests.support.certificates import Authority
from tests.support.cluster import eventually, loopback_config
from tests.support.users import EVERYTHING, certificate, user

pytestmark = pytest.mark.process


class Signed:
    """A node that takes certificates of one authority, and clients of it."""

    def __init__(self, folder: Path, *users: User) -> None:
        self.server = certificate(folder / "server")
        self.authority = Authority(folder / "clients")
        tls = TlsSettings(
            folder,
            client_cert="server/cert.pem",
            client_key="server/key.pem",
            client_ca="clients/ca.pem",
        )
        self.config = replace(loopback_config(folder, 1), users=users, tls=tls)
        self.node = Node(self.config, "n1")

    def url(self, name: str, authority: Authority | None = None, who: str = "") -> str:
        """An address with the certificate of this name, whose subject is `CN=member`."""
        member = (authority or self.authority).member(name)
        files = f"cert={member.cert}&key={member.key}&ca={self.server.ca}"
        return f"fifos://{who}{self.config.nodes[0].client}?{files}"

    async def __aenter__(self) -> Signed:
        await self.node.start()
        await eventually(lambda: self.node.leads)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.node.stop()


ROOT = user("root", **EVERYTHING, operate=True)
BILLING = User("billing", subjects=("CN=member",), declare=("*",), publish=("*",))


async def test_a_certificate_is_the_user_that_has_its_subject(tmp_path: Path) -> None:
    async with Signed(tmp_path, ROOT, BILLING) as signed:
        async with fifo.connect(signed.url("one")) as client:
            await client.declare(fifo.QueueSpec("q"))
            assert [one.user for one in await client.sessions()] == ["billing"]
            with pytest.raises(fifo.PermissionDenied):
                await client.get("q")
        # Who names a user proves that one, whatever certificate is shown.
        async with fifo.connect(signed.url("one", who="root:root-password@")) as root:
            await root.manage_user("import")
            async with fifo.connect(signed.url("one")) as client:
                assert await client.queue("q")
                await root.manage_user("set", "billing", {"subjects": ["CN=other"]})
                with pytest.raises(fifo.FifoError):
                    await client.queue("q", timeout=5)
        with pytest.raises(
            fifo.AuthenticationFailed, match="no user has the certificate CN=member"
        ):
            async with fifo.connect(signed.url("one"), connect_timeout=10):
                pass


async def test_a_certificate_of_another_authority_ends_the_handshake(tmp_path: Path) -> None:
    async with Signed(tmp_path, ROOT, BILLING) as signed:
        forged = Authority(tmp_path / "forged")
        with pytest.raises(fifo.FifoError):
            async with fifo.connect(signed.url("one", forged), connect_timeout=2):
                pass
        # Without a certificate a password or a token does, as before.
        address = f"{signed.config.nodes[0].client}?ca={signed.server.ca}"
        async with fifo.connect(f"fifos://root:root-password@{address}") as root:
            assert await root.queues() == []
        with pytest.raises(fifo.AuthenticationFailed, match="needs a user"):
            async with fifo.connect(f"fifos://{address}", connect_timeout=10):
                pass


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("fifo://h:1?cert=c.pem", "cert: has an effect only with fifos://"),
        ("fifos://h:1?key=k.pem", "key: is the key of a cert"),
    ],
)
def test_a_certificate_that_has_no_effect_is_refused(url: str, words: str) -> None:
    with pytest.raises(fifo.InvalidArgument, match=words):
        fifo.client.from_url(url)


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    options = fifo.client.from_url(f"fifos://h:1?cert={broken}")
    with pytest.raises(fifo.InvalidArgument, match=r"cert: .*broken.pem cannot be used with key"):
        options.ssl_context()


async def test_authorities_of_clients_are_a_file_that_is_checked(tmp_path: Path) -> None:
    signed = Signed(tmp_path, ROOT)
    assert signed.config.path is not None
    signed.config.path.parent.mkdir(parents=True, exist_ok=True)
    signed.config.path.write_text(to_toml(signed.config))
    read = load_config(signed.config.path).tls
    assert read is not None
    assert read.client_ca == "clients/ca.pem"
    signed.authority.ca.write_text("nothing")
    with pytest.raises(ConfigError, match=r"client_ca: .*ca.pem"):
        await signed.node.start()
    await signed.node.stop()
