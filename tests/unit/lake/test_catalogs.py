"""Iceberg catalogs of a node: the file, what may be shown of it, and what opens them."""

import pickle

import pytest

from sarit.core.errors import Invalid, Unavailable
from sarit.lake.catalogs import Catalogs, open_catalog, parse_catalogs, read_catalogs

FILE = """
[lake]
uri = "postgresql+psycopg2://sarit:hunter22@db.example/iceberg?sslpassword=open-sesame"
warehouse = "s3://lake/warehouse"
s3.endpoint = "http://127.0.0.1:9000"
"s3.access-key-id" = "AKIA1234"
"s3.secret-access-key" = "s3cr3t-of-s3"
"s3.force-virtual-addressing" = false

[polaris]
type = "rest"
uri = "https://polaris.example/api/catalog"
credential = "id-of-client:secret-of-client"
"s3.connect-timeout" = 10
"""
SECRETS = ("hunter22", "open-sesame", "AKIA1234", "s3cr3t-of-s3", "secret-of-client")


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "catalogs.toml"
    path.write_text(FILE)
    path.chmod(0o600)
    return path


def test_file_has_the_properties_of_each_catalog_as_text(secret_file):
    catalogs = read_catalogs(str(secret_file))
    assert sorted(catalogs) == ["lake", "polaris"]
    assert catalogs["lake"]["s3.endpoint"] == "http://127.0.0.1:9000"  # quoted or not
    assert catalogs["lake"]["s3.force-virtual-addressing"] == "false"
    assert catalogs["polaris"]["s3.connect-timeout"] == "10"
    assert dict(pickle.loads(pickle.dumps(catalogs))) == dict(catalogs)


def test_without_a_file_there_are_no_catalogs_and_the_error_says_how_to_get_some():
    none = read_catalogs(None)
    assert len(none) == 0
    with pytest.raises(
        Invalid, match=r"no catalog lake: this node has no Iceberg catalogs, its operator sets --catalogs"
    ):
        none.properties("lake")


def test_unknown_catalog_is_answered_with_names_alone():
    with pytest.raises(Invalid, match="there is no catalog lak in the node's configuration; there are lake, polaris"):
        parse_catalogs(FILE).properties("lak")


def test_neither_repr_nor_an_error_shows_a_secret():
    catalogs = parse_catalogs(FILE)
    assert repr(catalogs) == "<Catalogs lake, polaris>"
    said = catalogs.hide(f"cannot connect to {catalogs['lake']['uri']}\nwith {dict(catalogs['lake'])}, {FILE}")
    assert not [secret for secret in SECRETS if secret in said]
    assert not [place for place in ("db.example", "lake/warehouse", "polaris.example", "127.0.0.1") if place in said]
    assert said.startswith("cannot connect to *** with {'uri': '***', 'warehouse': '***', 's3.endpoint': '***'")
    assert "\n" not in said


def test_what_a_library_says_is_bounded():
    assert len(parse_catalogs(FILE).hide("x" * 100_000)) <= 500


def test_catalog_is_for_the_scopes_that_its_operator_names():
    catalogs = parse_catalogs('[lake]\nuri = "x"\nscopes = ["shop", "team-*"]\n[all]\nuri = "x"')
    assert "scopes" not in catalogs.for_scope("lake", "shop")
    assert catalogs.for_scope("lake", "team-7") == catalogs.for_scope("all", "other") == {"uri": "x"}
    for scope in ("other", "shop2", "Team-7", "team"):
        with pytest.raises(Invalid, match=f"catalog lake is not for streams of scope {scope}"):
            catalogs.for_scope("lake", scope)


@pytest.mark.parametrize("scopes", ["[]", '"shop"', "[7]", '["a/b"]', '[""]'])
def test_scopes_that_are_none_are_refused(scopes):
    with pytest.raises(Invalid, match="scopes are a list of names"):
        parse_catalogs(f'[lake]\nuri = "x"\nscopes = {scopes}')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[lake]\nuri = "secret-secret\n', "this is not TOML: line 2"),
        ('[lake]\nuri = "secret-secret', "this is not TOML"),
        ("[" * 5000, "this is not TOML"),
        ('uri = "secret-secret"', "uri is not a table"),
        ('["a b"]\nuri = "secret-secret"', "'a b' cannot be the name of a catalog"),
        ('[lake]\nwarehouse = "secret-secret"', "catalog lake has neither uri nor type"),
        ('[lake]\nuri = ["secret-secret"]', "'uri' is not a text, a number, true or false"),
        (f'[lake]\nuri = "{"secret-secret" * 1000}"', "'uri' has more than 8192 characters"),
        ("[lake]\nuri = 1\n" + "".join(f"p{n} = 1\n" for n in range(100)), "101 properties: at most 100"),
        ("".join(f"[c{n}]\nuri = 1\n" for n in range(101)), "101 catalogs: at most 100"),
    ],
)
def test_wrong_file_is_refused_without_its_values(text, reason):
    with pytest.raises(Invalid, match=reason) as refused:
        parse_catalogs(text)
    assert "secret-secret" not in str(refused.value)


def test_file_that_others_can_read_is_refused(secret_file):
    secret_file.chmod(0o644)
    with pytest.raises(Invalid, match=r"--catalogs: .* can be read by others, who could use the catalogs"):
        read_catalogs(str(secret_file))


def test_missing_file_is_named():
    with pytest.raises(Invalid, match="--catalogs: /nowhere/c.toml cannot be read"):
        read_catalogs("/nowhere/c.toml")


def test_catalog_opens_by_its_name(tmp_path):
    pytest.importorskip("pyiceberg", reason="sarit[lake] is not installed")
    catalogs = Catalogs({"lake": {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}})
    catalog = open_catalog(catalogs, "lake")
    catalog.create_namespace("shop")
    assert catalog.list_namespaces() == [("shop",)]
    assert catalog.name == "lake"


@pytest.mark.parametrize(
    ("properties", "kind", "reason"),
    [
        ({"uri": "ftp://user:hunter22@x/y"}, Invalid, r"catalog lake cannot be used as it is configured: ValueError"),
        ({"uri": "http://127.0.0.1:9/?token=hunter22", "type": "rest"}, Unavailable, "catalog lake cannot be opened"),
        ({"uri": "postgresql+nonsense://u:hunter22@x/y"}, Invalid, "cannot be used as it is configured"),
    ],
)
def test_catalog_that_cannot_be_opened_says_why_without_its_secrets(properties, kind, reason):
    pytest.importorskip("pyiceberg", reason="sarit[lake] is not installed")
    with pytest.raises(kind, match=reason) as refused:
        open_catalog(Catalogs({"lake": properties}), "lake")
    assert "hunter22" not in str(refused.value)
