"""The options of formats: the envelope, typed payloads, malformed events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.spark.options import ALL, READ, STREAMING_READ, Given, Option
from sarit.spark.registry.options import parse_registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.spark.registry.options import Registered, RegistryOptions

PLAIN: Final = "bytes"
JSON: Final = "json"
AVRO: Final = "avro"
ARROW: Final = "arrow"
PROTOBUF: Final = "protobuf"
FORMATS: Final = (PLAIN, JSON, AVRO, ARROW)
REGISTERED_FORMATS: Final = (AVRO, JSON, PROTOBUF)
BY_SUBJECT: Final = ""  # the format of a read is that of the schemas in the registry

PERMISSIVE: Final = "PERMISSIVE"
FAILFAST: Final = "FAILFAST"
DROPMALFORMED: Final = "DROPMALFORMED"

OPTIONS: Final = (
    Option(
        "envelope", ALL,
        "`sarit`: events are envelopes; columns `key`, `event_time`, `headers` and `payload`. `none`: bare bytes",
        "`none`",
    ),
    Option(
        "format", ALL,
        "`json` (reading), `avro` or `arrow`: events (or payloads of envelopes) are decoded into columns, and encoded "
        "from them. `bytes`: they are left as they are. JSON is written with Spark's `to_json`; with `schemaRegistry` "
        "rows are written as JSON, too",
        "`bytes`; of a read with `schemaRegistry` that of its schemas",
    ),
    Option("avroSchema", ALL, "format `avro`: the schema, as JSON text or the path of a file on the driver"),
    Option(
        "payloadColumn", ALL,
        "with a typed format: the struct column that holds the fields of a payload, instead of a column for each. For "
        "payloads whose fields have names of other columns", "a column for each field",
    ),
    Option(
        "mode", READ,
        "events that cannot be decoded. `PERMISSIVE`: a row of nulls. `DROPMALFORMED`: no row. `FAILFAST`: the read "
        "fails",
        "`PERMISSIVE` with format `json`, else `FAILFAST`",
    ),
    Option(
        "columnNameOfCorruptRecord", READ,
        "`PERMISSIVE`: the column (string or binary, if the schema has it) that gets an event that cannot be decoded",
        "`_corrupt_record`",
    ),
    Option(
        "includeCut", READ,
        "`true`: column `cut string`, the stream cut where the read (or the micro-batch) ends, the same for all "
        "rows of a stream. `start` or `end` of another read may be such a text", "`false`",
    ),
    Option(
        "notedTime", STREAMING_READ,
        "`true`: a column `noted_time` with the time that the writers of the stream had noted (`note_time`, in "
        "milliseconds since 1970) before an event; for `withWatermark`",
        "`false`",
    ),
    Option("timeZone", READ, "format `json`: the zone of timestamps that name none, as `Europe/Berlin`", "`UTC`"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """The options of a format.  `avro_schema`: JSON text, or the path of a file with it.

    With a `registry`, a driver finds out what is left open, as `format` BY_SUBJECT, and adds what it has found
    (`registered`)."""

    format: str = PLAIN
    envelope: bool = False
    avro_schema: str | None = None
    payload_column: str | None = None
    mode: str = FAILFAST
    corrupt_column: str = "_corrupt_record"
    time_zone: str = "UTC"
    include_cut: bool = False
    noted_time: bool = False
    registry: RegistryOptions | None = None
    registered: Registered | None = None

    @property
    def typed(self) -> bool:
        """Whether the fields of payloads are columns."""
        return self.format != PLAIN


def parse_formats(options: Mapping[str, str]) -> FormatOptions:
    """Return the options of formats among all given options.  Raises Invalid."""
    own = {option.name.lower() for option in OPTIONS}
    given = Given({name: value for name, value in options.items() if name.lower() in own}, [OPTIONS])
    registry = parse_registry(options)
    form = _format(given, registry)
    envelope = given.choice("envelope", ("sarit", "none"), "none") == "sarit"
    schema, payload = given.text("avroSchema"), given.text("payloadColumn")
    if schema is not None and form != AVRO:
        raise Invalid('option avroSchema is for .option("format", "avro")')
    if payload is not None and form == PLAIN:
        raise Invalid('option payloadColumn is for typed payloads: give .option("format", "json"), "avro" or "arrow"')
    if given.text("mode") is not None and form == PLAIN and not envelope:
        raise Invalid('option mode is for events that are decoded: give option "format" or option "envelope"')
    mode = given.choice("mode", (PERMISSIVE, DROPMALFORMED, FAILFAST), default_mode(form))
    return FormatOptions(
        form, envelope, schema, payload, mode,
        given.text("columnNameOfCorruptRecord") or "_corrupt_record", given.text("timeZone") or "UTC",
        given.flag("includeCut", default=False),
        given.flag("notedTime", default=False),
        registry,
    )  # fmt: skip


def default_mode(form: str) -> str:
    """Return the mode of a read that names none; "" while the format is not known."""
    return form and (PERMISSIVE if form == JSON else FAILFAST)


def _format(given: Given, registry: RegistryOptions | None) -> str:
    """Return the format that the options name.  Raises Invalid."""
    if registry is None:
        return given.choice("format", FORMATS, PLAIN)
    default = BY_SUBJECT if given.text("avroSchema") is None else AVRO
    return given.choice("format", REGISTERED_FORMATS, default)
