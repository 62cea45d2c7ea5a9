"""The options of a schema registry: defaults, contradictions, and no secret in any text."""

from __future__ import annotations

import pickle

import pytest

from sarit.client.core.login import BearerToken, UserPassword
from sarit.core.errors import Invalid
from sarit.spark.formats.encoders import encoder
from sarit.spark.formats.options import parse_formats
from sarit.spark.login import REGISTRY_LOGIN, credentials_of
from sarit.spark.registry.options import RegistryTarget, parse_registry
from sarit.spark.sink.options import parse_write
from sarit.spark.source.options import parse_read
from tests.unit.spark.schemas import schema_of

URL = "http://127.0.0.1:8081"
SECRET = "hidden-secret"


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("USER", "PASSWORD", "PASSWORD_FILE", "TOKEN", "TOKEN_FILE", "CA_FILE"):
        monkeypatch.delenv(f"SARIT_REGISTRY_{name}", raising=False)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    return str(path)


def test_defaults_are_those_of_the_stream_and_its_latest_schema():
    found = parse_registry({"schemaRegistry": f"{URL}/"})
    assert found.target == RegistryTarget(URL)
    assert (found.subject, found.header, found.version, found.register) == (None, None, None, True)
    assert parse_registry({"stream": "s/t"}) is None


def test_options_are_taken_by_reads_and_writes():
    options = {
        "stream": "s/t", "schemaRegistry": URL, "subject": "orders", "schemaHeader": "Pravega", "waitSeconds": "5",
    }  # fmt: skip
    parse_read({**options, "schemaVersion": "3"})
    parse_write({**options, "registerSchemas": "false"})
    found = parse_registry({**options, "SCHEMAVERSION": "3", "registerSchemas": "false"})
    assert found.target.wait_seconds == 5
    assert (found.subject, found.header, found.version, found.register) == ("orders", "pravega", 3, False)
    assert parse_registry({"schemaRegistry": URL, "schemaVersion": "Latest"}).version is None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"subject": "x"}, 'option subject is for .option\\("schemaRegistry"'),
        ({"schemaRegistry": "127.0.0.1:8081"}, "option schemaRegistry: .*is not a URL"),
        ({"schemaRegistry": "ftp://h/"}, "option schemaRegistry: .*is not a URL"),
        ({"schemaRegistry": URL, "schemaVersion": "0"}, "option schemaVersion is '0'"),
        ({"schemaRegistry": URL, "schemaVersion": "new"}, "option schemaVersion is 'new'"),
        ({"schemaRegistry": URL, "schemaHeader": "kafka"}, "option schemaHeader is 'kafka': give confluent or pravega"),
        ({"schemaRegistry": URL, "format": "arrow"}, "option format is 'arrow': give avro or json or protobuf"),
        ({"format": "protobuf"}, "option format is 'protobuf': give bytes or json or avro or arrow"),
        ({"schemaRegistry": URL, "schemaRegistryPasswordFile": "/x"}, "needs option schemaRegistryUser"),
        ({"schemaRegistry": URL, "schemaRegistryUser": "u"}, "schemaRegistryPasswordFile, or SARIT_REGISTRY_PASSWORD"),
        (
            {"schemaRegistry": URL, "schemaRegistryPassword": SECRET},
            "use schemaRegistryPasswordFile, or SARIT_REGISTRY",
        ),
        ({"schemaRegistry": URL, "schemaRegistryToken": SECRET}, "schemaRegistryTokenFile, or SARIT_REGISTRY_TOKEN$"),
        ({"schemaRegistry": f"http://u:{SECRET}@127.0.0.1:1"}, "option schemaRegistry: a URL that has a user"),
    ],
)
def test_wrong_options_are_named(options, named):
    with pytest.raises(Invalid, match=named) as raised:
        parse_read({"stream": "s/t", **options})
        parse_formats(options)
    assert SECRET not in str(raised.value)


def test_log_in_is_the_registrys_own(file, monkeypatch):
    # The node's password is not sent to a registry, which may be anybody's.
    monkeypatch.setenv("SARIT_USER", "ann")
    monkeypatch.setenv("SARIT_PASSWORD", SECRET)
    options = {"schemaRegistry": URL, "user": "ann", "passwordFile": file}
    assert parse_registry(options).target.credentials is None
    monkeypatch.setenv("SARIT_REGISTRY_USER", "bob")
    monkeypatch.setenv("SARIT_REGISTRY_PASSWORD_FILE", file)
    monkeypatch.setenv("SARIT_REGISTRY_CA_FILE", "/ca")
    found = parse_registry(options).target
    assert (found.credentials, found.ca_file) == (UserPassword("bob", SECRET), "/ca")
    assert parse_registry({**options, "schemaRegistryUser": "eve"}).target.credentials == UserPassword("eve", SECRET)
    assert parse_registry({**options, "schemaRegistryCaFile": "/mine"}).target.ca_file == "/mine"
    found = parse_registry({**options, "schemaRegistryTokenFile": file}).target.credentials
    assert isinstance(found, BearerToken)
    assert found.authorization() == f"Bearer {SECRET}"


def test_errors_name_the_registrys_variables():
    with pytest.raises(Invalid, match="SARIT_REGISTRY_USER and SARIT_REGISTRY_TOKEN are both set"):
        credentials_of({}.get, {"SARIT_REGISTRY_USER": "u", "SARIT_REGISTRY_TOKEN": SECRET}, REGISTRY_LOGIN)


def test_secrets_are_pickled_and_never_shown(file):
    options = {"schemaRegistry": URL, "schemaRegistryUser": "bob", "schemaRegistryPasswordFile": file}
    found = parse_formats(options)
    assert SECRET not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


def test_log_in_goes_over_tls_alone(file):
    options = {"schemaRegistryUser": "bob", "schemaRegistryPasswordFile": file}
    with pytest.raises(Invalid, match="is not protected on its way"):
        parse_registry({"schemaRegistry": "http://registry.example:8081", **options})
    assert parse_registry({"schemaRegistry": "https://registry.example:8081", **options}).target.credentials
    assert parse_registry({"schemaRegistry": "http://registry.example:8081"}).target.credentials is None


def test_format_is_that_of_the_subject_unless_one_is_given():
    found = parse_formats({"schemaRegistry": URL})
    assert (found.format, found.mode, found.typed) == ("", "", True)
    found = parse_formats({"schemaRegistry": URL, "avroSchema": "{}"})
    assert (found.format, found.mode) == ("avro", "FAILFAST")
    assert parse_formats({"schemaRegistry": URL, "format": "json"}).mode == "PERMISSIVE"
    assert parse_formats({"schemaRegistry": URL, "mode": "dropmalformed"}).mode == "DROPMALFORMED"
    with pytest.raises(Invalid, match='which format\\? a write with option schemaRegistry needs .option\\("format"'):
        encoder(schema_of("id bigint"), parse_formats({"schemaRegistry": URL}), register=lambda fields: b"")
