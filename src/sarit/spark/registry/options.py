"""The options of a schema registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.core.properties import CONFLUENT, KNOWN, NO_HEADER, SCHEMA_HEADER
from sarit.spark.limits import SPARK_WAIT_SECONDS
from sarit.spark.login import REGISTRY_LOGIN, ca_file_of, credentials_of
from sarit.spark.options import ALL, READ, WRITE, Given, Option
from sarit.spark.options import OPTIONS as COMMON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.core.login import Credentials
    from sarit.serializers.schema_source import WrittenSchema

LATEST: Final = "latest"

OPTIONS: Final = (
    Option(
        "schemaRegistry", ALL,
        "the URL of a schema registry, as `http://127.0.0.1:8081`. Reading: each event is decoded by the schema that "
        "its header names. Writing: the schema is registered, and each event gets the header",
    ),
    Option(
        "subject", ALL, "the subject (Pravega: the group) of the schemas; needed when several streams are read",
        "`SCOPE.STREAM`",
    ),
    Option(
        "schemaHeader", ALL,
        "`confluent`, `pravega` or `none`: what the events begin with, where the stream does not say so. Needed with "
        "`streamPattern`",
        "the stream's property `schema-header`; of a new or empty stream that is written `confluent`",
    ),
    Option(
        "schemaVersion", READ, "the version of the subject that gives the columns: a number, or `latest`",
        "`latest` when the frame is loaded",
    ),
    Option(
        "registerSchemas", WRITE, "`true`: the subject gets the schema. `false`: it must have it already",
        "`true`",
    ),
    Option(
        "schemaRegistryUser", ALL, "the user to log in to the registry as", "`SARIT_REGISTRY_USER` of the driver",
    ),
    Option(
        "schemaRegistryPasswordFile", ALL,
        "the password of `schemaRegistryUser` is the first line of this file, which the driver reads",
        "`SARIT_REGISTRY_PASSWORD` or `SARIT_REGISTRY_PASSWORD_FILE` of the driver",
    ),
    Option(
        "schemaRegistryTokenFile", ALL,
        "a token for the registry, instead of a user: the first line of this file, which driver and executors read for "
        "each call",
        "`SARIT_REGISTRY_TOKEN` or `SARIT_REGISTRY_TOKEN_FILE` of the driver",
    ),
    Option(
        "schemaRegistryCaFile", ALL, "TLS: the CA of the registry's certificate, at this path on all machines",
        "`SARIT_REGISTRY_CA_FILE` of the driver, else the system's CAs",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RegistryTarget:
    """Where a registry is, how to log in to it, and how long to wait while it does not reply.

    Spark pickles it for the executors; its repr shows no secret."""

    url: str
    credentials: Credentials | None = None
    ca_file: str | None = None
    wait_seconds: int = SPARK_WAIT_SECONDS


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """The options of a query's registry.  `subject`, `header`: None: those of the stream.  `version`: None: the latest
    one.  `register`: whether a write adds its schema."""

    target: RegistryTarget
    subject: str | None = None
    header: str | None = None
    version: int | None = None
    register: bool = True


def parse_registry(options: Mapping[str, str]) -> RegistryOptions | None:
    """Return the options of a registry among all given options; None: there is no registry.  Raises Invalid."""
    own = {option.name.lower() for table in (OPTIONS, COMMON) for option in table}
    given = Given({name: value for name, value in options.items() if name.lower() in own}, [OPTIONS])
    url = given.text("schemaRegistry")
    if url is None:
        alone = [option.name for option in OPTIONS if given.text(option.name) is not None]
        if alone:
            raise Invalid(f'option {alone[0]} is for .option("schemaRegistry", "http://HOST:8081"): give both')
        return None
    from sarit.env.https import check_url

    credentials = credentials_of(given.text, names=REGISTRY_LOGIN)
    try:
        check_url(url, plain=credentials is None)
    except Invalid as error:
        raise Invalid(f"option schemaRegistry: {error}") from None
    return RegistryOptions(
        RegistryTarget(
            url.rstrip("/"), credentials, ca_file_of(given.text), given.positive("waitSeconds") or SPARK_WAIT_SECONDS
        ),
        given.text("subject") or None,
        given.choice("schemaHeader", KNOWN[SCHEMA_HEADER], "") or None,
        _version(given),
        given.flag("registerSchemas", default=True),
    )


def _version(given: Given) -> int | None:
    if (given.text("schemaVersion") or LATEST).strip().lower() == LATEST:
        return None
    return given.positive("schemaVersion")


@dataclass(frozen=True, slots=True)
class Registered:
    """The answers of a registry to the driver of a query.

    `format`: AVRO, JSON or PROTOBUF, as registries name them.  `text`, `references`, `message`: a read's schema, as of
    `WrittenSchema`.  `header`: of the events.  `subject`: that of the schemas."""

    format: str
    text: str
    subject: str
    header: str = CONFLUENT
    references: tuple[tuple[str, str], ...] = ()
    message: str = ""

    @property
    def schema(self) -> WrittenSchema:
        """The schema of a read's columns."""
        from sarit.serializers.schema_source import WrittenSchema

        return WrittenSchema(self.format, self.text, references=self.references, message=self.message)

    @property
    def has_ids(self) -> bool:
        """Whether each event names its schema."""
        return self.header != NO_HEADER
