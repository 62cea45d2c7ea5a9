"""Tokens of an identity provider: what is taken, what is refused, and when its keys are fetched."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from sarit.core.errors import Invalid, Unauthenticated, Unavailable
from sarit.env.real import real_env
from sarit.security.jwks import parse_keys
from sarit.security.limits import (
    MAX_FAILED_LOGINS_OF_HOST,
    OIDC_FETCH_INTERVAL_SECONDS,
    OIDC_LEEWAY_SECONDS,
    OIDC_REFRESH_SECONDS,
    OIDC_REFUSED_SECONDS,
)
from sarit.security.login import OWN_NAME, Logins, basic
from sarit.security.oidc import OidcConfig, OidcTokens, keys_url, role_pairs
from sarit.security.permissions import Caller
from sarit.security.users import User
from tests.unit.security.provider import AUDIENCE, ISSUER, NOW, document, private_key, published, token

CONFIG = OidcConfig(ISSUER, AUDIENCE, "https://login.example.com/keys")
ALL = document(published("RS256"), published("ES256"), published("EdDSA"))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return NOW * 1000


class Provider:
    """Serves `document`; an exception is raised instead."""

    def __init__(self, answer: bytes | Exception = ALL) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def read(self, where: str) -> bytes:
        self.asked.append(where)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def _run(main, provider=None, config=CONFIG, clock=None):
    async def inner():
        tokens = OidcTokens(replace(real_env(), clock=clock or Clock()), config, (provider or Provider()).read)
        try:
            return await main(tokens)
        finally:
            await tokens.close()

    return asyncio.run(inner())


def _caller(text, config=CONFIG, provider=None, now=NOW):
    return _run(lambda tokens: tokens.caller(text, now), provider, config)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_token_of_each_algorithm_is_taken(algorithm):
    caller, until = _caller(token(algorithm))
    assert caller == Caller("carol", frozenset({"analyst"}))
    assert until == NOW + 300 + OIDC_LEEWAY_SECONDS


def _unsigned(header, payload=None):
    parts = (header, payload or {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "exp": 1 << 33})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)


def _by_public_key(algorithm):
    """HS256, with the public key as the secret: what a library takes that trusts the token's algorithm."""
    public = private_key(algorithm).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = _unsigned({"alg": "HS256", "kid": f"{algorithm}-0"})
    signature = base64.urlsafe_b64encode(hmac.digest(public, text.encode(), hashlib.sha256))
    return f"{text}.{signature.rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lambda: token(aud="another"), "[Aa]udience"),
        (lambda: token(aud=None), "aud"),
        (lambda: token(iss="https://elsewhere.example.com"), "issuer"),
        (lambda: token(iss=None), "iss"),
        (lambda: token(exp=NOW - OIDC_LEEWAY_SECONDS), "expired"),
        (lambda: token(exp=None), "exp"),
        (lambda: token(exp="never"), "not a number"),
        (lambda: token(nbf=NOW + OIDC_LEEWAY_SECONDS + 1), "not valid yet"),
        (lambda: token(sub=None), "no name"),
        (lambda: token(sub="a b"), "no name"),
        (lambda: token(sub="carol\n"), "no name"),
        (lambda: token()[:-8] + "AAAAAAAA", "refused"),
        (lambda: token("ES256", 1, {"kid": "ES256-0"}), "refused"),
        (lambda: token("ES256", 0, {"kid": "RS256-0"}), "does not publish"),
        (lambda: token("ES256", 1), "does not publish"),
        (lambda: token(headers={"kid": "ES256-0", "crit": ["b64"], "b64": True}), "header|not a JWT"),
        (lambda: _unsigned({"alg": "none"}) + ".", "not signed by one of"),
        (lambda: _unsigned({"alg": "none", "kid": "RS256-0"}) + ".", "not signed by one of"),
        (lambda: _by_public_key("RS256"), "not signed by one of"),
        (lambda: _by_public_key("ES256"), "not signed by one of"),
        (lambda: "", "not a JWT"),
        (lambda: "a.b.c", "not a JWT"),
        (lambda: "[" * 5000, "not a JWT"),
    ],
)
def test_other_tokens_are_refused(text, message):
    with pytest.raises(Unauthenticated, match=message):
        _caller(text())


def test_times_have_a_leeway_and_a_cached_token_expires():
    async def main(tokens):
        late = token(exp=NOW, nbf=NOW + OIDC_LEEWAY_SECONDS)
        assert (await tokens.caller(late, NOW + OIDC_LEEWAY_SECONDS - 1))[0].name == "carol"
        with pytest.raises(Unauthenticated, match="expired"):
            await tokens.caller(late, NOW + OIDC_LEEWAY_SECONDS)

    _run(main)


@pytest.mark.parametrize(
    ("config", "found", "roles"),
    [
        ({}, {"roles": ["analyst", "admin", 7, "b c"]}, {"analyst"}),
        ({}, {"roles": "reader writer"}, {"reader", "writer"}),
        ({}, {"roles": None}, set()),
        ({"roles": (("ops", "admin"),)}, {"roles": ["ops", "x"]}, {"admin", "x"}),
        ({"roles": (("cn=ops,dc=x", "admin"),)}, {"roles": "cn=ops,dc=x"}, {"admin"}),
        ({"roles_claim": "realm_access.roles"}, {"realm_access": {"roles": ["one"]}}, {"one"}),
        ({"roles_claim": "https://x.example/roles"}, {"https://x.example/roles": ["one"]}, {"one"}),
        ({"roles_claim": "a.b"}, {"a": "text"}, set()),
    ],
)
def test_roles_come_from_their_claim_and_admin_only_by_a_mapping(config, found, roles):
    assert _caller(token(**found), replace(CONFIG, **config))[0].roles == roles


def test_name_comes_from_its_claim():
    config = replace(CONFIG, name_claim="preferred_username")
    assert _caller(token(preferred_username="dora"), config)[0].name == "dora"
    with pytest.raises(Unauthenticated, match="preferred_username"):
        _caller(token(), config)


def test_keys_are_fetched_once_for_all_who_wait():
    provider = Provider()

    async def main(tokens):
        return await asyncio.gather(*(tokens.caller(token(sub=f"u{n}"), NOW) for n in range(20)))

    assert len({caller.name for caller, _ in _run(main, provider)}) == 20
    assert provider.asked == [CONFIG.keys]


def test_new_key_is_fetched_when_a_token_names_it_and_a_removed_one_is_refused():
    provider, clock = Provider(document(published("ES256", 0))), Clock()

    async def main(tokens):
        old = token("ES256", 0)
        assert await tokens.caller(old, NOW)
        provider.answer = document(published("ES256", 1))
        clock.now += OIDC_FETCH_INTERVAL_SECONDS
        assert await tokens.caller(token("ES256", 1), NOW)
        with pytest.raises(Unauthenticated, match="does not publish"):
            await tokens.caller(old, NOW)  # although it was cached

    _run(main, provider, clock=clock)
    assert len(provider.asked) == 2


def test_unknown_keys_do_not_make_a_storm_of_fetches():
    provider, clock = Provider(), Clock()

    async def main(tokens):
        await tokens.caller(token(), NOW)
        for _ in range(10):
            clock.now += OIDC_FETCH_INTERVAL_SECONDS / 10
            results = await asyncio.gather(
                *(tokens.caller(token(headers={"kid": f"k{n}"}), NOW) for n in range(50)), return_exceptions=True
            )
            assert {type(result) for result in results} == {Unauthenticated}

    _run(main, provider, clock=clock)
    assert len(provider.asked) == 2


def test_failing_fetch_keeps_the_keys_and_says_so(caplog):
    provider, clock = Provider(), Clock()

    async def main(tokens):
        await tokens.caller(token(), NOW)
        provider.answer = Unavailable("the provider is down")
        clock.now += OIDC_REFRESH_SECONDS
        assert await tokens.caller(token("RS256"), NOW)
        while len(provider.asked) < 2:
            await asyncio.sleep(0)
        with pytest.raises(Unauthenticated):
            await tokens.caller(token(headers={"kid": "new"}), NOW)
        assert await tokens.caller(token("EdDSA"), NOW)

    with caplog.at_level(logging.ERROR):
        _run(main, provider, clock=clock)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "the 3 known keys stay in force: the provider is down" in lines[0]


def test_without_keys_callers_are_asked_to_try_again():
    provider, clock = Provider(Unavailable("down")), Clock()

    async def main(tokens):
        for _ in range(10):
            with pytest.raises(Unavailable, match="not known yet"):
                await tokens.caller(token(), NOW)
        provider.answer = ALL
        clock.now += OIDC_FETCH_INTERVAL_SECONDS
        assert await tokens.caller(token(), NOW)

    _run(main, provider, clock=clock)
    assert len(provider.asked) == 2


def test_issuer_says_where_its_keys_are():
    asked = []

    def read(where):
        asked.append(where)
        description = {"issuer": ISSUER, "jwks_uri": "https://login.example.com/certs"}
        return json.dumps(description).encode() if "well-known" in where else ALL

    provider = Provider()
    provider.read = read
    assert _caller(token(), replace(CONFIG, keys=None), provider)
    assert asked == [ISSUER + "/.well-known/openid-configuration", "https://login.example.com/certs"]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (b"<html>", "does not describe an issuer"),
        (b"[]", "does not describe an issuer"),
        (b'{"issuer": "https://evil", "jwks_uri": "https://evil/keys"}', "is of the issuer"),
        (json.dumps({"issuer": ISSUER, "jwks_uri": 7}).encode(), "not a URL"),
        (json.dumps({"issuer": ISSUER, "jwks_uri": "http://login.example.com/k"}).encode(), "not protected"),
        (json.dumps({"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"}).encode(), "not a URL"),
    ],
)
def test_descriptions_of_an_issuer_that_cannot_be_used(found, message):
    with pytest.raises(Invalid, match=message):
        keys_url(found, ISSUER, "https://x")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": []}', b"[" * 100_000,
        document({"kty": "oct", "k": "c2VjcmV0", "kid": "s", "alg": "HS256"}),
        document(published("ES256", use="enc")),
        document(published("RS256", alg="RS512")),
        document({**published("EdDSA"), "d": "c2VjcmV0"}),
        document({"kty": "EC", "crv": "P-256", "x": "!", "y": "!"}),
        document({"kty": ["RSA"]}),
    ],
)  # fmt: skip
def test_documents_without_a_key_that_verifies_are_refused(data):
    with pytest.raises(Invalid, match="keys.json"):
        parse_keys(data, "keys.json")


def test_one_key_that_cannot_be_read_does_not_take_the_others():
    keys = parse_keys(document({"kty": "RSA", "n": "!", "e": "AQAB"}, published("ES256")), "keys.json")
    assert len(keys) == 1


def test_token_without_a_key_name_fits_the_only_key_of_its_algorithm():
    assert _caller(token(headers={}))
    two = Provider(document(published("ES256", 0), published("ES256", 1)))
    with pytest.raises(Unauthenticated, match="does not publish"):
        _caller(token(headers={}), provider=two)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (OidcConfig("login.example.com", "a"), "--oidc-issuer: .* is not a URL"),
        (OidcConfig("http://login.example.com", "a"), "--oidc-issuer: .*https"),
        (OidcConfig(ISSUER, ""), "--oidc-audience is empty"),
        (OidcConfig(ISSUER, "a", "http://10.0.0.1/keys"), "--oidc-keys: .*https"),
        (OidcConfig(ISSUER, "a", "https://u:p@h/keys"), r"--oidc-keys: .*has a user is not fetched: https://\.\.\.@h"),
        (OidcConfig(ISSUER, "a", "ftp://h/keys"), "--oidc-keys"),
        (OidcConfig(ISSUER, "a", name_claim=""), "--oidc-name-claim"),
        (OidcConfig(ISSUER, "a", roles_claim="a..b"), "--oidc-roles-claim"),
        (OidcConfig(ISSUER, "a", roles=role_pairs("ops")), "--oidc-roles"),
        (OidcConfig(ISSUER, "a", roles=role_pairs("a=b; ops=two words")), "--oidc-roles"),
    ],
)
def test_wrong_settings_are_named(config, message):
    with pytest.raises(Invalid, match=message):
        config.check()


@pytest.mark.parametrize(
    "config",
    [
        OidcConfig("http://127.0.0.1:8080/realm", "a"), OidcConfig("http://localhost/x", "a"),
        OidcConfig("anything", "a", "/etc/keys.json"),
        OidcConfig(ISSUER, "a", roles=role_pairs("cn=a,dc=b=admin; x=y;")),
    ],
)  # fmt: skip
def test_settings_that_can_be_used(config):
    config.check()


def test_token_cannot_take_the_name_of_a_user_of_the_file():
    async def main():
        env = replace(real_env(), clock=Clock())
        tokens = OidcTokens(env, CONFIG, Provider().read)
        logins = Logins(env, {"root": User("root", "$argon2id$", frozenset({"admin"}))}, tokens)
        try:
            assert (await logins.caller(f"Bearer {token()}", "p:1")).name == "carol"
            with pytest.raises(Unauthenticated, match="cannot take the name"):
                await logins.caller(f"bearer {token(sub='root')}", "p:1")
            with pytest.raises(Unauthenticated, match="cannot take the name"):
                await logins.caller(f"Bearer {token(sub=OWN_NAME)}", "p:1")
            with pytest.raises(Unauthenticated, match="wrong"):
                await logins.caller(basic("carol", "anything"), "p:1")
        finally:
            await logins.close()
            await tokens.close()

    asyncio.run(main())


async def _with_logins(main, monkeypatch, clock):
    """`main(logins, verified)`; `verified`: the tokens whose signature was verified."""
    env = replace(real_env(), clock=clock)
    tokens = OidcTokens(env, CONFIG, Provider().read)
    logins = Logins(env, {}, tokens)
    verified: list[str] = []
    verify = tokens._verified
    monkeypatch.setattr(tokens, "_verified", lambda text: verified.append(text) or verify(text))
    try:
        await main(logins, verified)
    finally:
        await logins.close()
        await tokens.close()


def test_refused_tokens_of_a_network_cost_bounded_work(monkeypatch, caplog):
    async def main(logins, verified):
        mine = token()
        await logins.caller(f"Bearer {mine}", "1.1.1.1:1")
        for number in range(3 * MAX_FAILED_LOGINS_OF_HOST):
            with pytest.raises(Unauthenticated):
                await logins.caller(f"Bearer {token(sub=f'u{number}', aud='other')}", f"1.1.1.1:{number}")
        assert len(verified) == 1 + MAX_FAILED_LOGINS_OF_HOST
        with pytest.raises(Unauthenticated, match="too many wrong tokens"):
            await logins.caller(f"Bearer {token(sub='dave')}", "1.1.1.1:1")
        # Who was right before, with the same token and with the next one; and others elsewhere.
        await logins.caller(f"Bearer {mine}", "1.1.1.1:2")
        await logins.caller(f"Bearer {token(jti='next')}", "1.1.1.1:2")
        await logins.caller(f"Bearer {token(sub='dave')}", "2.2.2.2:1")

    asyncio.run(_with_logins(main, monkeypatch, Clock()))
    assert len(caplog.records) <= 3


def test_same_refused_token_is_verified_once_in_a_while_and_does_not_count(monkeypatch):
    clock = Clock()

    async def main(logins, verified):
        bad = token(aud="other")
        for _ in range(3 * MAX_FAILED_LOGINS_OF_HOST):
            with pytest.raises(Unauthenticated, match="[Aa]udience"):
                await logins.caller(f"Bearer {bad}", "1.1.1.1:1")
        assert len(verified) == 1
        clock.now += OIDC_REFUSED_SECONDS
        with pytest.raises(Unauthenticated, match="[Aa]udience"):
            await logins.caller(f"Bearer {bad}", "1.1.1.1:1")
        assert len(verified) == 2

    asyncio.run(_with_logins(main, monkeypatch, clock))
