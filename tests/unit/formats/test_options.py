from typing import Any

import pytest

from ingestd.formats.errors import BigQueryError
from ingestd.formats.options import Formats, HiveMode, LoadOptions, SourceFormat
from ingestd.model.schema import Type


@pytest.mark.parametrize(
    ("rest", "attribute", "value"),
    [
        ({}, "source_format", SourceFormat.CSV),
        ({"sourceFormat": "newline_delimited_json"}, "source_format", SourceFormat.JSON),
        ({"fieldDelimiter": "\\t"}, "delimiter", "\t"),
        ({"fieldDelimiter": "tab"}, "delimiter", "\t"),
        ({"fieldDelimiter": "|"}, "delimiter", "|"),
        ({"quote": ""}, "quote", ""),
        ({"skipLeadingRows": "2"}, "skip_leading_rows", 2),
        ({"maxBadRecords": 7}, "max_bad_records", 7),
        ({"nullMarker": "\\N"}, "null_markers", ("\\N",)),
        ({"nullMarkers": ["", "NULL"]}, "null_markers", ("", "NULL")),
        ({"encoding": "UTF-16LE"}, "encoding", "utf-16-le"),
        ({"decimalTargetTypes": ["STRING", "NUMERIC"]}, "decimal_targets", (Type.NUMERIC, Type.STRING)),
        ({"dateFormat": "DD/MM/YYYY"}, "formats", Formats(date="DD/MM/YYYY")),
        ({"writeDisposition": "WRITE_TRUNCATE", "timePartitioning": {}}, "max_bad_records", 0),
    ],
)
def test_options_are_read_from_the_load_configuration(rest: dict[str, Any], attribute: str, value: object) -> None:
    assert getattr(LoadOptions.from_rest(rest), attribute) == value


def test_hive_options_carry_mode_and_prefix() -> None:
    options = LoadOptions.from_rest({"hivePartitioningOptions": {"mode": "STRINGS", "sourceUriPrefix": "gs://b/t"}})
    assert options.hive is not None
    assert (options.hive.mode, options.hive.prefix) == (HiveMode.STRINGS, "gs://b/t")


@pytest.mark.parametrize(
    ("rest", "named"),
    [
        ({"skipLeadingRow": 1}, "skipLeadingRow"),
        ({"parquetOptions": {"enumsAsString": True}}, "enumsAsString"),
        ({"skipLeadingRows": -1}, "skipLeadingRows"),
        ({"maxBadRecords": "many"}, "maxBadRecords"),
        ({"encoding": "EBCDIC"}, "encoding"),
        ({"sourceFormat": "XML"}, "sourceFormat"),
        ({"decimalTargetTypes": ["FLOAT64"]}, "decimalTargetTypes"),
        ({"nullMarker": "x", "nullMarkers": ["y"]}, "nullMarker"),
        ({"hivePartitioningOptions": {"mode": "AUTO"}}, "sourceUriPrefix"),
        ({"allowJaggedRows": "perhaps"}, "allowJaggedRows"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(rest: dict[str, Any], named: str) -> None:
    with pytest.raises(BigQueryError) as refused:
        LoadOptions.from_rest(rest)
    assert refused.value.reason == "invalid"
    assert named in refused.value.message


@pytest.mark.parametrize("rest", [{"sourceFormat": "DATASTORE_BACKUP"}, {"jsonExtension": "GEOJSON"}])
def test_what_is_not_supported_says_so(rest: dict[str, Any]) -> None:
    with pytest.raises(BigQueryError) as refused:
        LoadOptions.from_rest(rest)
    assert refused.value.status == 501
