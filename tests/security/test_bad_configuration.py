"""Files of security that are wrong: a start is refused with the file and the line, a reload keeps what was in force."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from sarit.cli.config import check
from sarit.cli.dev_ca import make_certificates
from sarit.core.errors import Invalid
from sarit.env.real import real_env
from sarit.env.tls import ServerTls, TlsFiles
from sarit.node.security import Security, SecurityConfig
from sarit.security.oidc import OidcConfig
from tests.security.running import write_files
from tests.unit.client.world import until

GOOD = "alice:$argon2id$v=19$m=8,t=1,p=1$YWJjZGVmZ2g$YWJjZGVmZ2g:analyst"


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ("", "users has no users, so nobody could log in"),
        ("# only a comment\n", "users has no users"),
        (f"{GOOD}\nbob\n", "users, line 2: user bob has no argon2 hash"),
        (f"\n# x\n{GOOD}\n\na b:{GOOD}\n", "users, line 5: 'a b' is not the name of a user"),
        (f"{GOOD}\n{GOOD}\n", "users, line 2: user alice is there twice"),
        (f"{GOOD},two words\n", "users, line 1: 'two words' is not the name of a role"),
    ],
)
def test_user_file_that_is_wrong_refuses_the_start(tmp_path, users, message):
    config = write_files(tmp_path)
    (tmp_path / "users").write_text(users)
    with pytest.raises(Invalid, match=message):
        Security(config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda keys: keys.write_text("short\n"), "keys: line 1 .* has 5 bytes"),
        (lambda keys: keys.write_text(""), "keys: .* has no key"),
        (lambda keys: keys.chmod(0o644), "keys can be read by others.*chmod 600"),
        (lambda keys: keys.unlink(), "--token-keys: .*keys cannot be read: No such file or directory"),
    ],
)
def test_token_keys_that_are_wrong_refuse_the_start(tmp_path, change, message):
    config = write_files(tmp_path)
    change(tmp_path / "keys")
    with pytest.raises(Invalid, match=message):
        Security(config)


def test_keys_of_a_provider_that_are_wrong_refuse_the_start(tmp_path):
    found = tmp_path / "provider.json"
    config = replace(write_files(tmp_path), oidc=OidcConfig("https://x.example", "sarit", str(found)))
    with pytest.raises(Invalid, match=r"provider.json"):
        Security(config)
    found.write_text("{}")
    with pytest.raises(Invalid, match=r"provider.json is not a JWK set"):
        Security(config)


def test_expired_certificate_and_one_that_is_not_valid_yet_refuse_the_start(tmp_path):
    expired = make_certificates(tmp_path / "expired", (), -0.0001)
    with pytest.raises(Invalid, match=r"expired/server.pem cannot be used: certificate has expired"):
        ServerTls(TlsFiles(str(expired["server"]), str(expired["server key"])))


def test_reload_of_an_expired_certificate_keeps_the_old_one(tmp_path):
    good, expired = make_certificates(tmp_path / "c", (), 1), make_certificates(tmp_path / "expired", (), -0.0001)
    tls = ServerTls(TlsFiles(str(good["server"]), str(good["server key"])))
    before = tls.context, tls.http_context
    for name in ("server", "server key"):
        os.replace(expired[name], good[name])
    with pytest.raises(Invalid, match="expired"):
        tls.reload()
    assert (tls.context, tls.http_context) == before


def _tls(files, ca, **options):
    return SecurityConfig(str(files["server"]), str(files["server key"]), str(ca), **options)


def test_ca_that_did_not_sign_the_certificate_refuses_the_start(tmp_path):
    ours, other = make_certificates(tmp_path / "ours", (), 1), make_certificates(tmp_path / "other", (), 1)
    Security(_tls(ours, ours["ca"]))
    with pytest.raises(Invalid, match=r"--tls-ca .*other/ca.pem did not sign the certificate .*ours/server.pem"):
        Security(_tls(ours, other["ca"]))


def test_certificate_that_is_none_for_clients_refuses_a_start_with_client_certificates(tmp_path):
    files = make_certificates(tmp_path / "c", (), 1)
    files |= _server_only(files)
    Security(_tls(files, files["ca"]))
    with pytest.raises(Invalid, match=r"only.pem is not one for clients, too .*--tls-client-certs"):
        Security(_tls(files, files["ca"], client_certificates=True))


def _server_only(files):
    """A certificate of the CA, as the big authorities make them: for servers alone."""
    ca = x509.load_pem_x509_certificate(files["ca"].read_bytes())
    signer = serialization.load_pem_private_key(files["ca key"].read_bytes(), None)
    served = x509.load_pem_x509_certificate(files["server"].read_bytes())
    made = x509.CertificateBuilder().subject_name(served.subject).issuer_name(ca.subject)
    made = made.public_key(served.public_key()).serial_number(7)
    made = made.not_valid_before(served.not_valid_before_utc).not_valid_after(served.not_valid_after_utc)
    for extension in served.extensions:
        uses = isinstance(extension.value, x509.ExtendedKeyUsage)
        value = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]) if uses else extension.value
        made = made.add_extension(value, extension.critical)
    path = files["server"].with_name("only.pem")
    path.write_bytes(made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return {"server": path}


def test_reload_of_a_foreign_ca_keeps_the_old_one_and_says_so(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("sarit.node.security.SECURITY_FILES_INTERVAL_SECONDS", 0.01)
    ours, other = make_certificates(tmp_path / "ours", (), 1), make_certificates(tmp_path / "other", (), 1)
    security = Security(_tls(ours, ours["ca"]))
    before = security.server_tls.context, security.client_tls()()

    async def main() -> None:
        security.start(real_env())
        os.replace(other["ca"], ours["ca"])
        await until(lambda: caplog.records)
        await security.stop()

    asyncio.run(main())
    assert "the old one stays in force: --tls-ca" in caplog.text
    assert "did not sign the certificate" in caplog.text
    assert (security.server_tls.context, security.client_tls()()) == before


def test_key_that_everybody_can_read_is_warned_of(tmp_path, caplog):
    files = make_certificates(tmp_path, (), 1)
    config = SecurityConfig(str(files["server"]), str(files["server key"]))
    Security(config)
    assert not caplog.records
    files["server key"].chmod(0o644)
    Security(config)
    assert "server-key.pem can be read by every user of this machine" in caplog.text


@pytest.mark.parametrize(
    ("users", "message"), [("", "has no users"), ("bob\n", "users, line 1: user bob has no argon2 hash")]
)
def test_reload_of_a_wrong_user_file_keeps_the_old_users(tmp_path, users, message):
    security = Security(write_files(tmp_path))
    before = repr(security)
    (tmp_path / "users.new").write_text(users)
    os.replace(tmp_path / "users.new", tmp_path / "users")
    with pytest.raises(Invalid, match=message):
        security.reload()
    assert repr(security) == before
    write_files(tmp_path, {"one": set()})
    assert security.reload() == ["users"]
    assert "1 users" in repr(security)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['oidc-audience = "a"'], "--oidc-audience needs --oidc-issuer"),
        (['oidc-issuer = "https://x.example"'], "--oidc-issuer needs --oidc-audience"),
        (['oidc-issuer = "http://x.example"', 'oidc-audience = "a"', 'token-keys = "k"'], "--oidc-issuer: .*https"),
        (['oidc-issuer = "https://x.example"', 'oidc-audience = "a"'], "--oidc-issuer needs --token-keys"),
        (['oidc-roles = "ops=admin"'], "--oidc-roles needs --oidc-issuer"),
        (
            ['oidc-issuer = "https://x.example"', 'oidc-audience = "a"', 'token-keys = "k"', 'oidc-roles = "ops"'],
            "NAME=ROLE",
        ),
    ],
)
def test_config_check_says_what_is_wrong_with_a_provider(tmp_path, lines, message):
    file = tmp_path / "sarit.toml"
    file.write_text("\n".join(["[standalone]", f'data-dir = "{tmp_path}"', *lines, ""]))
    with pytest.raises(Exception, match=message):
        CliRunner().invoke(check, [str(file), "--for", "standalone"], catch_exceptions=False, standalone_mode=False)


def test_config_check_takes_a_provider(tmp_path):
    file = tmp_path / "sarit.toml"
    file.write_text(
        f'[standalone]\ndata-dir = "{tmp_path}"\ntoken-keys = "k"\noidc-issuer = "https://x.example"\n'
        'oidc-audience = "a"\noidc-roles = "ops=admin; cn=x=writer"\noidc-keys = "keys.json"\n'
    )
    CliRunner().invoke(check, [str(file), "--for", "standalone"], catch_exceptions=False, standalone_mode=False)
