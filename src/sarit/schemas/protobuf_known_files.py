"""Files of Protobuf that clients of Confluent's registry import without a reference: their serializers bring them.

Names, numbers and types of the fields are what matters: options for generated code are left out.  A reference of the
same name goes before.  Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEAD: Final = 'syntax = "proto3"; package '
_META_HOLDERS: Final = (("File", "file"), ("Message", "message"), ("Field", "field"), ("Enum", "enum"),
                        ("EnumValue", "enum_value"))  # fmt: skip
_ENUMS: Final[Mapping[str, tuple[str, str]]] = {
    "calendar_period": (
        "CalendarPeriod", "CALENDAR_PERIOD_UNSPECIFIED DAY WEEK FORTNIGHT MONTH QUARTER HALF YEAR",
    ),
    "dayofweek": (
        "DayOfWeek", "DAY_OF_WEEK_UNSPECIFIED MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY",
    ),
    "month": (
        "Month",
        "MONTH_UNSPECIFIED JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER",
    ),
}  # fmt: skip
# Fields in the order of their numbers, from 1.
_MESSAGES: Final[Mapping[str, tuple[str, str]]] = {
    "date": ("Date", "int32 year, int32 month, int32 day"),
    "decimal": ("Decimal", "string value"),
    "expr": ("Expr", "string expression, string title, string description, string location"),
    "fraction": ("Fraction", "int64 numerator, int64 denominator"),
    "latlng": ("LatLng", "double latitude, double longitude"),
    "localized_text": ("LocalizedText", "string text, string language_code"),
    "money": ("Money", "string currency_code, int64 units, int32 nanos"),
    "postal_address": (
        "PostalAddress",
        "int32 revision, string region_code, string language_code, string postal_code, string sorting_code, "
        "string administrative_area, string locality, string sublocality, repeated string address_lines, "
        "repeated string recipients, string organization",
    ),
    "quaternion": ("Quaternion", "double x, double y, double z, double w"),
    "timeofday": ("TimeOfDay", "int32 hours, int32 minutes, int32 seconds, int32 nanos"),
}
_OTHERS: Final[Mapping[str, str]] = {
    "color": """import "google/protobuf/wrappers.proto";
        message Color { float red = 1; float green = 2; float blue = 3; google.protobuf.FloatValue alpha = 4; }""",
    "datetime": """import "google/protobuf/duration.proto";
        message DateTime {
          int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4; int32 minutes = 5; int32 seconds = 6;
          int32 nanos = 7; oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; }
        }
        message TimeZone { string id = 1; string version = 2; }""",
    "interval": """import "google/protobuf/timestamp.proto";
        message Interval { google.protobuf.Timestamp start_time = 1; google.protobuf.Timestamp end_time = 2; }""",
    "phone_number": """message PhoneNumber {
          message ShortCode { string region_code = 1; string number = 2; }
          oneof kind { string e164_number = 1; ShortCode short_code = 2; } string extension = 3;
        }""",
}


def known_source(name: str) -> str | None:
    """Return the source of a file that needs no reference, by its path of import; None for others."""
    return _SOURCES.get(name)


def _numbered(parts: str, separator: str, first: int) -> str:
    return " ".join(f"{one.strip()} = {number};" for number, one in enumerate(parts.split(separator), first))


def _sources() -> dict[str, str]:
    head = f"{_HEAD}google.type; "
    found = {name: f"enum {kind} {{ {_numbered(values, ' ', 0)} }}" for name, (kind, values) in _ENUMS.items()}
    found |= {name: f"message {kind} {{ {_numbered(fields, ',', 1)} }}" for name, (kind, fields) in _MESSAGES.items()}
    found = {f"google/type/{name}.proto": head + text for name, text in (found | dict(_OTHERS)).items()}
    meta = f"""{_HEAD}confluent; import "google/protobuf/descriptor.proto";
        message Meta {{
          string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4;
        }}
        message Rule {{ string name = 1; string doc = 2; string expr = 3; string sql = 4; }}"""
    for kind, field in _META_HOLDERS:
        meta += f" extend google.protobuf.{kind}Options {{ Meta {field}_meta = 1088; }}"
    decimal = f"{_HEAD}confluent.type; message Decimal {{ bytes value = 1; uint32 precision = 2; int32 scale = 3; }}"
    variant = f"{_HEAD}confluent.type; message Variant {{ bytes metadata = 1; bytes value = 2; }}"
    return found | {
        "confluent/meta.proto": meta,
        "confluent/type/decimal.proto": decimal,
        "confluent/type/variant.proto": variant,
        # The path before, for the same type.
        "confluent/types/decimal.proto": 'syntax = "proto3"; import public "confluent/type/decimal.proto";',
    }


_SOURCES: Final[Mapping[str, str]] = _sources()
