"""Documents and tokens in the forms that known identity providers give them.

The forms are those of the providers' public documentation (Keycloak, Auth0, Microsoft Entra ID);
the keys are made here, for no provider signs for a test. None of them was asked.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from node.broker.connections.jwt_keys import read_keys
from node.config import cluster_config, load_config, to_toml
from tests.node.broker.test_jwt import Bench
from tests.support.identity import SigningKey

pytestmark = pytest.mark.slow  # RSA keys are made


@cache
def rsa(kid: str) -> SigningKey:
    """A key of a provider; made once."""
    return SigningKey(kid, "RS256")


def x5c(key: SigningKey) -> list[str]:
    """The chain of a key: one certificate that it has signed itself."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "provider")])
    begins = datetime(2026, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.private.public_key())
        .serial_number(1)
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=3_650))
        .sign(key.private, hashes.SHA256())
    )
    return [base64.b64encode(made.public_bytes(Encoding.DER)).decode()]


@dataclass(frozen=True)
class Provider:
    """A provider: its document, its section of a file, and the claims of a token of ann's."""

    issuer: str
    section: str
    group: str
    claims: dict[str, Any]
    user: str
    document: Callable[[SigningKey], dict[str, Any]]
    algorithm: str = "RS256"


def keycloak(key: SigningKey) -> dict[str, Any]:
    """A key for encryption stands before the one for signatures; both have chains and thumbs."""
    encrypting = rsa("encrypting")
    shown = {"x5t": "Vd1v", "x5t#S256": "mG2b"}
    return {
        "keys": [
            {**encrypting.jwk(alg="RSA-OAEP"), **shown, "use": "enc", "x5c": x5c(encrypting)},
            {**key.jwk(alg=key.algorithm), **shown, "x5c": x5c(key)},
        ]
    }


def auth0(key: SigningKey) -> dict[str, Any]:
    """The key of now, and the next one."""
    following = rsa("following")
    return {
        "keys": [
            {**one.jwk(alg="RS256"), "x5t": one.kid, "x5c": x5c(one)} for one in (key, following)
        ]
    }


def entra(key: SigningKey) -> dict[str, Any]:
    """Keys say no algorithm, but which issuer they are of."""
    made = {**key.jwk(), "x5t": key.kid, "x5c": x5c(key)}
    made.pop("alg", None)
    issuer = "https://login.microsoftonline.com/{tenantid}/v2.0"
    return {"keys": [{**made, "issuer": issuer, "cloud_instance_name": "microsoftonline.com"}]}


TENANT = "9122040d-6c67-4c5b-b112-36a304b66dad"
GROUP_ID = "0d6b3a9c-2f8e-4c49-9a51-7c1a4c2f7b11"

PROVIDERS = {
    "keycloak": Provider(
        "https://sso.example.com/realms/shop",
        'claim = "realm_access.roles"\nuser = "preferred_username"\n',
        "billing",
        {
            "aud": ["account", "fifo"],
            "sub": "f:1f5c:ann",
            "azp": "shop-web",
            "preferred_username": "ann",
            "realm_access": {"roles": ["offline_access", "billing", "uma_authorization"]},
            "resource_access": {"account": {"roles": ["view-profile"]}},
            "scope": "openid email profile",
        },
        "ann",
        keycloak,
    ),
    "keycloak, roles of a client and ES256": Provider(
        "https://sso.example.com/realms/shop",
        'claim = "resource_access.fifo.roles"\nuser = "email"\n',
        "billing",
        {
            "aud": "fifo",
            "email": "ann@example.com",
            "resource_access": {"fifo": {"roles": ["billing"]}, "account": {"roles": ["x"]}},
        },
        "ann@example.com",
        keycloak,
        "ES256",
    ),
    "keycloak, groups as paths": Provider(
        "https://sso.example.com/realms/shop",
        "",
        "/shop/billing",
        {"aud": ["fifo"], "groups": ["/shop", "/shop/billing"]},
        "ann",
        keycloak,
    ),
    "auth0": Provider(
        "https://shop.eu.auth0.com/",
        'claim = "https://fifo.example.com/groups"\n',
        "billing",
        {
            "aud": ["fifo", "https://shop.eu.auth0.com/userinfo"],
            "sub": "auth0|5f7c8ec7c33c6c004bbafe82",
            "azp": "my_client_id",
            "scope": "openid profile",
            "https://fifo.example.com/groups": ["billing"],
        },
        "auth0|5f7c8ec7c33c6c004bbafe82",
        auth0,
    ),
    "auth0, a program's permissions as words": Provider(
        "https://shop.eu.auth0.com/",
        'claim = "scope"\n',
        "billing",
        {"aud": "fifo", "sub": "client_id@clients", "scope": "read:all billing", "gty": "x"},
        "client_id@clients",
        auth0,
    ),
    "entra": Provider(
        f"https://login.microsoftonline.com/{TENANT}/v2.0",
        'user = "preferred_username"\n',
        GROUP_ID,
        {
            "aud": "fifo",
            "ver": "2.0",
            "tid": TENANT,
            "oid": "690222be-ff1a-4d56-abd1-7e4f7d38e474",
            "sub": "AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ",
            "preferred_username": "ann@shop.example.com",
            "groups": ["b1a3f0b4-3a55-4d2c-8a0f-2f9d0f5f6c11", GROUP_ID],
            "uti": "fqiBqXLPj0eQa82S-IYFAA",
        },
        "ann@shop.example.com",
        entra,
    ),
    "entra, roles of an application": Provider(
        f"https://login.microsoftonline.com/{TENANT}/v2.0",
        'user = "oid"\nclaim = "roles"\n',
        "Queue.Billing",
        {
            "aud": "fifo",
            "oid": "690222be-ff1a-4d56-abd1-7e4f7d38e474",
            "idtyp": "app",
            "roles": ["Queue.Billing"],
            "groups": None,
        },
        "690222be-ff1a-4d56-abd1-7e4f7d38e474",
        entra,
    ),
}


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_token_of_a_known_provider_is_its_user_by_the_section_that_a_file_has(
    name: str, tmp_path: Path
) -> None:
    provider = PROVIDERS[name]
    key = rsa("signing") if provider.algorithm == "RS256" else SigningKey("signing", "ES256")
    document = json.dumps(provider.document(key)).encode()
    (tmp_path / "keys.json").write_bytes(document)
    file = tmp_path / "cluster.toml"
    file.write_text(
        f"{to_toml(cluster_config(1, 7100, tmp_path))}\n"
        f'[jwt]\nkeys = "keys.json"\nissuer = "{provider.issuer}"\naudience = "fifo"\n'
        f'{provider.section}[[jwt.group]]\nname = "{provider.group}"\npublish = ["billing.*"]\n'
    )
    section = load_config(file).jwt
    assert section is not None
    bench = Bench(key, section=section)
    bench.document = document
    claims = {"groups": None, "iss": provider.issuer, **provider.claims}
    found = await bench.user(key.token(**claims, headers={"typ": "JWT", "x5t": "Vd1v"}))
    assert (found.name, found.publish) == (provider.user, ("billing.*",))
    assert "(iss)" in await bench.refusal(key.token(**{**claims, "iss": "https://other/"}))
    assert "(aud)" in await bench.refusal(key.token(**{**claims, "aud": ["account"]}))


def test_keys_for_encryption_and_of_other_algorithms_are_passed_over() -> None:
    key = rsa("signing")
    document = keycloak(key)
    document["keys"] += [
        {**rsa("pss").jwk(alg="PS256")},
        {"kty": "EC", "crv": "P-521", "kid": "large", "x": "AA", "y": "AA", "alg": "ES512"},
        {"kty": "oct", "kid": "shared", "k": "c2VjcmV0", "alg": "HS256"},
    ]
    assert [one.kid for one in read_keys(json.dumps(document).encode())] == ["signing"]


def test_a_chain_is_not_read_and_one_that_is_broken_harms_nothing() -> None:
    """A key is believed for its address, not for who has signed its certificate."""
    document = auth0(rsa("signing"))
    for one in document["keys"]:
        one["x5c"] = ["no certificate"]
    assert len(read_keys(json.dumps(document).encode())) == 2
