"""Load options: the part of a `JobConfigurationLoad` that decides what rows a file holds.

Dispositions, schema updates, partitioning and clustering belong to the catalog; they are listed here only so that a
misspelt option is refused instead of being ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.formats.inflation import BOUND, Inflation
from ingestd.model.schema import Type


class SourceFormat(StrEnum):
    CSV = "CSV"
    JSON = "NEWLINE_DELIMITED_JSON"
    AVRO = "AVRO"
    PARQUET = "PARQUET"
    ORC = "ORC"


class HiveMode(StrEnum):
    AUTO = "AUTO"
    STRINGS = "STRINGS"
    CUSTOM = "CUSTOM"


class ColumnMatch(StrEnum):
    """How CSV columns find their field."""

    UNSPECIFIED = "SOURCE_COLUMN_MATCH_UNSPECIFIED"
    POSITION = "POSITION"
    NAME = "NAME"


class CharacterMap(StrEnum):
    """What happens to column names a file brings along."""

    STRICT = "STRICT"
    V1 = "V1"
    V2 = "V2"


@dataclass(frozen=True, slots=True)
class HiveOptions:
    mode: HiveMode
    prefix: str
    require_filter: bool = False


@dataclass(frozen=True, slots=True)
class Formats:
    """Custom renderings of dates and times, and the zone for timestamps that name none."""

    date: str = ""
    time: str = ""
    datetime: str = ""
    timestamp: str = ""
    zone: str = ""


PLAIN = Formats()

# JobConfigurationLoad properties that do not change the rows read from a file.
_NOT_ABOUT_ROWS = frozenset(
    {
        "clustering",
        "connectionProperties",
        "copyFilesOnly",
        "createDisposition",
        "createSession",
        "destinationEncryptionConfiguration",
        "destinationTable",
        "destinationTableProperties",
        "rangePartitioning",
        "schema",
        "schemaUpdateOptions",
        "sourceUris",
        "timePartitioning",
        "writeDisposition",
    }
)
_ENCODINGS = {
    "UTF-8": "utf-8",
    "UTF8": "utf-8",
    "ISO-8859-1": "latin-1",
    "UTF-16BE": "utf-16-be",
    "UTF-16LE": "utf-16-le",
    "UTF-32BE": "utf-32-be",
    "UTF-32LE": "utf-32-le",
}
_DECIMAL_TARGETS = (Type.NUMERIC, Type.BIGNUMERIC, Type.STRING)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to read the files of a load job or of an external table."""

    source_format: SourceFormat = SourceFormat.CSV
    delimiter: str | None = None  # None: a comma, or detected
    quote: str = '"'
    skip_leading_rows: int | None = None  # None: 0, or header detection
    allow_quoted_newlines: bool = False
    allow_jagged_rows: bool = False
    ignore_unknown_values: bool = False
    max_bad_records: int = 0
    null_markers: tuple[str, ...] = ("",)
    encoding: str = "utf-8"
    preserve_control_characters: bool = False
    autodetect: bool = False
    projection_fields: tuple[str, ...] = ()
    avro_logical_types: bool = False
    decimal_targets: tuple[Type, ...] = ()
    hive: HiveOptions | None = None
    parquet_enum_as_string: bool = False
    parquet_list_inference: bool = False
    parquet_map_as_list: bool = False
    character_map: CharacterMap = CharacterMap.V1
    reference_schema_uri: str = ""
    manifest: bool = False
    formats: Formats = PLAIN
    column_match: ColumnMatch = ColumnMatch.UNSPECIFIED
    inflation: Inflation = BOUND  # not BigQuery's: how far a file may grow in our hands

    @classmethod
    def from_rest(cls, load: Mapping[str, Any]) -> "LoadOptions":
        """Parse a `JobConfigurationLoad`; what cannot be honoured is refused by name."""
        chosen: dict[str, Any] = {}
        formats: dict[str, str] = {}
        for key, value in load.items():
            if key in _NOT_ABOUT_ROWS or value is None or value == []:
                continue
            if key in _READERS:
                name, convert = _READERS[key]
                chosen[name] = convert(key, value)
            elif key in _FORMAT_READERS:
                formats[_FORMAT_READERS[key]] = _text(key, value)
            elif key == "parquetOptions":
                parquet = _object(key, value, {"enumAsString", "enableListInference", "mapTargetType"})
                chosen["parquet_enum_as_string"] = _flag("enumAsString", parquet.get("enumAsString", False))
                chosen["parquet_list_inference"] = _flag(
                    "enableListInference", parquet.get("enableListInference", False)
                )
                chosen["parquet_map_as_list"] = parquet.get("mapTargetType") == "ARRAY_OF_STRUCT"
            elif key == "jsonExtension":
                _refuse_json_extension(key, value)
            else:
                raise _unknown(key)
        if load.get("nullMarker") is not None and load.get("nullMarkers"):
            raise BigQueryError("invalid", "nullMarker and nullMarkers cannot be set at the same time")
        options = cls(**chosen, formats=Formats(**formats))
        _check(options)
        return options


def _check(options: LoadOptions) -> None:
    if options.delimiter == "" or (options.delimiter is not None and options.delimiter == options.quote):
        raise BigQueryError("invalid", "Field delimiter must be non-empty and differ from the quote character")
    if len(options.quote) > 1:
        raise BigQueryError("invalid", f"Invalid value for quote: {options.quote!r} is not a single character")
    if options.projection_fields and options.source_format in (SourceFormat.CSV, SourceFormat.JSON):
        raise BigQueryError("invalid", "Projection fields are not supported for CSV and NEWLINE_DELIMITED_JSON")


def _flag(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _bad(key, value)


def _count(key: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise _bad(key, value) from None
    if number < 0 or isinstance(value, bool):
        raise _bad(key, value)
    return number


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _bad(key, value)
    return value


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _bad(key, value)
    return tuple(_text(key, item) for item in value)


def _format(key: str, value: Any) -> SourceFormat:
    name = _text(key, value).upper()
    if name == "DATASTORE_BACKUP":
        raise not_implemented("sourceFormat DATASTORE_BACKUP")
    try:
        return SourceFormat(name)
    except ValueError:
        raise _bad(key, value) from None


def _delimiter(key: str, value: Any) -> str:
    text = _text(key, value)
    return "\t" if text.lower() in ("\\t", "tab") else text


def _encoding(key: str, value: Any) -> str:
    codec = _ENCODINGS.get(_text(key, value).upper())
    if codec is None:
        raise _bad(key, value)
    return codec


_E = TypeVar("_E", bound=StrEnum)


def _member(kind: type[_E]) -> Callable[[str, Any], _E]:
    def convert(key: str, value: Any) -> _E:
        try:
            return kind(_text(key, value).upper())
        except ValueError:
            raise _bad(key, value) from None

    return convert


def _character_map(key: str, value: Any) -> CharacterMap:
    if value == "COLUMN_NAME_CHARACTER_MAP_UNSPECIFIED":
        return CharacterMap.V1
    return _member(CharacterMap)(key, value)


def _decimal_targets(key: str, value: Any) -> tuple[Type, ...]:
    wanted = [item.upper() for item in _texts(key, value)]
    if set(wanted) - set(_DECIMAL_TARGETS) or len(set(wanted)) != len(wanted):
        raise _bad(key, value)
    # The order in the request does not count: the first type that holds every value wins.
    return tuple(kind for kind in _DECIMAL_TARGETS if kind in wanted)


def _hive(key: str, value: Any) -> HiveOptions:
    known = {"mode", "sourceUriPrefix", "requirePartitionFilter", "fields"}
    given = _object(key, value, known)
    mode = _member(HiveMode)(f"{key}.mode", given.get("mode") or "AUTO")
    prefix = _text(f"{key}.sourceUriPrefix", given.get("sourceUriPrefix") or "")
    if not prefix:
        raise BigQueryError("invalid", "sourceUriPrefix is required when hive partitioning is set")
    return HiveOptions(mode, prefix, _flag(f"{key}.requirePartitionFilter", given.get("requirePartitionFilter", False)))


def _refuse_json_extension(key: str, value: Any) -> None:
    if _text(key, value).upper() == "GEOJSON":
        raise not_implemented("jsonExtension GEOJSON")
    if value not in ("", "JSON_EXTENSION_UNSPECIFIED"):
        raise _bad(key, value)


def _file_set(key: str, value: Any) -> bool:
    name = _text(key, value).upper()
    if name not in ("FILE_SET_SPEC_TYPE_FILE_SYSTEM_MATCH", "FILE_SET_SPEC_TYPE_NEW_LINE_DELIMITED_MANIFEST"):
        raise _bad(key, value)
    return name.endswith("MANIFEST")


def _object(key: str, value: Any, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _bad(key, value)
    for name in value:
        if name not in known:
            raise _unknown(f"{key}.{name}")
    return value


def _unknown(key: str) -> BigQueryError:
    return BigQueryError("invalid", f'Invalid JSON payload received. Unknown name "{key}": Cannot find field.')


def _bad(key: str, value: Any) -> BigQueryError:
    return BigQueryError("invalid", f"Invalid value for {key}: {value} is not a valid value")


_Reader = tuple[str, Callable[[str, Any], Any]]
_READERS: dict[str, _Reader] = {
    "sourceFormat": ("source_format", _format),
    "fieldDelimiter": ("delimiter", _delimiter),
    "quote": ("quote", _text),
    "skipLeadingRows": ("skip_leading_rows", _count),
    "allowQuotedNewlines": ("allow_quoted_newlines", _flag),
    "allowJaggedRows": ("allow_jagged_rows", _flag),
    "ignoreUnknownValues": ("ignore_unknown_values", _flag),
    "maxBadRecords": ("max_bad_records", _count),
    "nullMarker": ("null_markers", lambda key, value: (_text(key, value),)),
    "nullMarkers": ("null_markers", _texts),
    "encoding": ("encoding", _encoding),
    "preserveAsciiControlCharacters": ("preserve_control_characters", _flag),
    "autodetect": ("autodetect", _flag),
    "projectionFields": ("projection_fields", _texts),
    "useAvroLogicalTypes": ("avro_logical_types", _flag),
    "decimalTargetTypes": ("decimal_targets", _decimal_targets),
    "hivePartitioningOptions": ("hive", _hive),
    "columnNameCharacterMap": ("character_map", _character_map),
    "referenceFileSchemaUri": ("reference_schema_uri", _text),
    "fileSetSpecType": ("manifest", _file_set),
    "sourceColumnMatch": ("column_match", _member(ColumnMatch)),
}
_FORMAT_READERS = {
    "dateFormat": "date",
    "timeFormat": "time",
    "datetimeFormat": "datetime",
    "timestampFormat": "timestamp",
    "timeZone": "zone",
}
