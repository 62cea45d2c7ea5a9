"""Delegation tokens: what they say, what refuses them, and what official clients need of their form."""

from __future__ import annotations

import base64
import json

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.client.core.delegation import lifetime
from sarit.core.errors import Invalid
from sarit.security.permissions import Permission, stream_resource, token_resources
from sarit.security.tokens import ALGORITHM, AUDIENCE, TokenKeys, TokenRefused, parse_keys

KEY, OTHER = b"k" * 64, b"o" * 64
NOW = 1_700_000_000
STREAM = stream_resource("app", "s")
NAMES = st.from_regex(r"_?[A-Za-z0-9.\-]{1,40}", fullmatch=True)


def test_token_grants_what_it_was_signed_for_until_it_expires():
    token = TokenKeys([KEY]).sign({STREAM: Permission.READ}, NOW, 60)
    grant = TokenKeys([KEY]).verify(token, NOW + 59.9)
    assert grant.on(STREAM) is Permission.READ
    assert grant.on(stream_resource("app", "s2")) is Permission.NONE
    with pytest.raises(TokenRefused, match="expired") as refused:
        TokenKeys([KEY]).verify(token, NOW + 60)
    assert refused.value.expired


def test_token_of_an_older_key_is_accepted_while_that_key_is_listed():
    token = TokenKeys([OTHER]).sign({STREAM: Permission.READ}, NOW, 60)
    assert TokenKeys([KEY, OTHER]).verify(token, NOW).on(STREAM) is Permission.READ
    with pytest.raises(TokenRefused, match="not signed by this installation"):
        TokenKeys([KEY]).verify(token, NOW)


def _claims(**changed: object) -> dict[str, object]:
    return {"sub": "segmentstoreresource", "aud": AUDIENCE, "iat": NOW, "exp": NOW + 60, STREAM: "READ", **changed}


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b.c",
        "no token at all",
        jwt.encode(_claims(), KEY, algorithm="HS256"),
        jwt.encode(_claims(), None, algorithm="none"),
        jwt.encode(_claims(aud="somebody"), KEY, algorithm=ALGORITHM),
        jwt.encode({name: value for name, value in _claims().items() if name != "exp"}, KEY, algorithm=ALGORITHM),
        jwt.encode(_claims(exp=NOW + 60.5), KEY, algorithm=ALGORITHM),
        jwt.encode(_claims(**{STREAM: "EVERYTHING"}), KEY, algorithm=ALGORITHM),
        jwt.encode(_claims(**{STREAM: 2}), KEY, algorithm=ALGORITHM),
    ],
)
def test_token_of_another_form_is_refused(token):
    with pytest.raises(TokenRefused):
        TokenKeys([KEY]).verify(token, NOW)


@pytest.mark.parametrize("odd", ["prn::/scope:a/stream:*", "prn::/*", "*", "prn::/scope:a/stream:b/c", "exp", ""])
def test_resource_that_is_a_pattern_is_not_signed(odd):
    with pytest.raises(Invalid, match="cannot be the name of anything"):
        TokenKeys([KEY]).sign({odd: Permission.READ}, NOW, 60)


def test_token_whose_claims_were_changed_is_refused():
    head, body, signature = TokenKeys([KEY]).sign({STREAM: Permission.READ}, NOW, 60).split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    claims[STREAM] = "READ_UPDATE"
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    with pytest.raises(TokenRefused, match="not signed"):
        TokenKeys([KEY]).verify(f"{head}.{forged}.{signature}", NOW)


@given(NAMES, NAMES)
def test_claims_decode_as_standard_base64(scope, stream):
    # The Rust client decodes them so, and panics at "-" or "_".
    claims = dict.fromkeys((resource for resource, _ in token_resources(scope, stream)), Permission.READ_UPDATE)
    body = TokenKeys([KEY]).sign(claims, NOW, 600).split(".")[1]
    assert not set("-_") & set(body)
    assert f'"exp":{NOW + 600}' in base64.b64decode(body + "=" * (-len(body) % 4)).decode()


def test_lifetime_is_read_from_a_token_and_from_nothing_else():
    assert lifetime(TokenKeys([KEY]).sign({STREAM: Permission.READ}, NOW, 600)) == 600.0
    assert lifetime("") is None
    assert lifetime("opaque") is None
    assert lifetime("a.%%%.c") is None


def test_keys_are_lines_and_short_ones_are_refused():
    assert parse_keys(b"# signs\n" + KEY + b"\n\n " + OTHER + b" \n") == [KEY, OTHER]
    with pytest.raises(Invalid, match="no key"):
        TokenKeys(parse_keys(b"# nothing\n"))
    with pytest.raises(Invalid, match="line 2 of the token keys has 5 bytes"):
        TokenKeys([KEY, b"short"])
