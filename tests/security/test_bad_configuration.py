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
from sarit.cli.user import user
from sarit.cluster import controller as cluster_controller
from sarit.cluster import store as cluster_store
from sarit.cluster.process_config import ProcessConfig
from sarit.core.errors import Invalid, Unauthenticated
from sarit.env.real import real_env
from sarit.env.tls import ServerTls, TlsFiles
from sarit.process import standalone
from sarit.process import supervisor as processes
from sarit.process.addresses import refuse_plain_passwords
from sarit.process.security import Security, SecurityConfig
from sarit.process.settings import NodeConfig
from sarit.security.oidc import OidcConfig
from sarit.security.users import parse_users
from tests.security.running import secured, write_files
from tests.unit.client.world import until

GOOD = "alice:$argon2id$v=19$m=8,t=1,p=1$YWJjZGVmZ2g$YWJjZGVmZ2g:analyst"


@pytest.mark.parametrize(
    ("users", "message"),
    [
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
        (lambda keys: keys.chmod(0o620), "--token-keys: .*keys can be written by others.*chmod go-w"),
        (lambda keys: keys.unlink(), "--token-keys: .*keys cannot be read: No such file or directory"),
    ],
)
def test_token_keys_that_are_wrong_refuse_the_start(tmp_path, change, message):
    config = write_files(tmp_path)
    change(tmp_path / "keys")
    with pytest.raises(Invalid, match=message):
        Security(config)


@pytest.mark.parametrize("mode", [0o660, 0o602, 0o666])
def test_files_that_others_can_write_are_refused_at_the_start_and_later(tmp_path, mode):
    config = write_files(tmp_path)
    security = Security(config)
    (tmp_path / "users.new").write_text("")
    (tmp_path / "users.new").chmod(mode)
    os.replace(tmp_path / "users.new", tmp_path / "users")
    for read in (security.reload, lambda: Security(config)):
        with pytest.raises(Invalid, match=r"--users: .*users can be written by others.*chmod go-w"):
            read()
    (tmp_path / "users").chmod(0o600)
    (tmp_path / "provider.json").write_bytes(b"{}")
    (tmp_path / "provider.json").chmod(mode)
    with pytest.raises(Invalid, match=r"--oidc-keys: .*provider.json can be written by others"):
        Security(replace(config, oidc=OidcConfig("https://x.example", "sarit", str(tmp_path / "provider.json"))))


@pytest.mark.parametrize("text", ["", "# only a comment\n"])
def test_users_file_without_users_lets_nobody_in(tmp_path, caplog, text):
    """Who deletes the last user means it: at the start, and while the node runs."""
    config = write_files(tmp_path)

    async def main() -> None:
        async with secured(tmp_path, config) as node:
            async with node.client("root") as root:
                assert await root.create_scope("app")
            (tmp_path / "users.new").write_text(text)
            os.replace(tmp_path / "users.new", tmp_path / "users")
            assert node.node.security.reload() == ["users"]
            with pytest.raises(Unauthenticated):
                async with node.client("root"):
                    pass

    asyncio.run(main())
    assert caplog.text.count("has no users: nobody may log in") == 1
    assert "0 users" in repr(Security(config))
    assert caplog.text.count("has no users: nobody may log in") == 2


def test_last_user_can_be_deleted_and_the_file_stays(tmp_path):
    write_files(tmp_path, {"one": set()})
    result = CliRunner().invoke(user, ["delete", "one", "--users", str(tmp_path / "users")])
    assert result.exit_code == 0, result.output
    assert parse_users((tmp_path / "users").read_text(), "users") == {}
    assert CliRunner().invoke(user, ["list", "--users", str(tmp_path / "users")]).exit_code == 0


@pytest.mark.parametrize(
    ("host", "change", "refused"),
    [
        ("0.0.0.0", {}, True), ("", {}, True), ("::", {}, True), ("10.0.0.1", {}, True),
        ("127.0.0.1", {}, False), ("localhost", {}, False), ("::1", {}, False),
        ("0.0.0.0", {"plain_passwords": True}, False), ("0.0.0.0", {"certificate": "c", "key": "k"}, False),
        ("0.0.0.0", {"users": None, "token_keys": None}, False),
        ("0.0.0.0", {"users": None, "oidc": OidcConfig("https://x.example", "a")}, True),
    ],
)  # fmt: skip
def test_passwords_in_clear_text_beyond_loopback_refuse_the_start(host, change, refused):
    config = replace(SecurityConfig(users="users", token_keys="keys"), **change)
    if refused:
        with pytest.raises(Invalid, match=r"clear text; give --tls-cert and --tls-key, or --plain-passwords"):
            refuse_plain_passwords(NodeConfig("/", host, security=config))
    else:
        refuse_plain_passwords(NodeConfig("/", host, security=config))


# Another node may have the default ports.
NOWHERE = {"data_dir": "/nowhere", "host": "0.0.0.0", "controller_port": 0, "store_port": 0}


@pytest.mark.parametrize(
    "run",
    [
        lambda security: standalone.run(NodeConfig(**NOWHERE, security=security)),
        lambda security: processes.run(NodeConfig(**NOWHERE, processes=2, security=security)),
        lambda security: cluster_store.run_store(ProcessConfig(None, "machine", host="0.0.0.0", security=security)),
        lambda security: cluster_controller.run_controller(
            ProcessConfig(None, "machine", host="0.0.0.0", security=security)
        ),
    ],
)
def test_each_kind_of_process_refuses_passwords_in_clear_text(run, monkeypatch):
    for module in (standalone, processes, cluster_store, cluster_controller):
        monkeypatch.setattr(module, "check_passed_sockets", lambda places: None, raising=False)
    with pytest.raises(Invalid, match="in clear text"):
        run(SecurityConfig(users="users", token_keys="keys"))


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
    monkeypatch.setattr("sarit.process.security.SECURITY_FILES_INTERVAL_SECONDS", 0.01)
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


@pytest.mark.parametrize(("users", "message"), [("bob\n", "users, line 1: user bob has no argon2 hash")])
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
