"""Legacy SQL, as far as it is GoogleSQL with other table names; the rest is refused by name."""
# ruff: noqa: S608 - names with quotes are refused

import re
from collections.abc import Mapping
from typing import Any

from ingestd.formats.errors import not_implemented

_TABLE = re.compile(r"\[(?:(?P<project>[^\[\]:]+(?::[^\[\]:.]+)?)[:.])?(?P<dataset>\w+)\.(?P<table>[^\[\]]+)\]")
_DIRECTIVE = re.compile(r"^\s*#(?P<name>standardSQL|legacySQL)\s*$", re.IGNORECASE | re.MULTILINE)
_SELECT = re.compile(r"^\s*(SELECT|WITH)\b", re.IGNORECASE)
_LEGACY_ONLY = re.compile(
    r"\b(TABLE_DATE_RANGE|TABLE_DATE_RANGE_STRICT|TABLE_QUERY|FLATTEN|OMIT\s+RECORD|JOIN\s+EACH|GROUP\s+EACH|WITHIN)\b",
    re.IGNORECASE,
)
_COMMA_UNION = re.compile(r"\bFROM\s+\[[^\]]+\]\s*,", re.IGNORECASE)


def standard_sql(query: Mapping[str, Any]) -> str:
    """The query's text in GoogleSQL. BigQuery's REST default is legacy SQL, so an absent flag means legacy."""
    sql = str(query.get("query") or "")
    legacy = query.get("useLegacySql")
    legacy = True if legacy is None else str(legacy).lower() == "true"
    directive = _DIRECTIVE.search(sql)
    if directive:
        legacy = directive["name"].lower() == "legacysql"
    return _translate(_DIRECTIVE.sub("", sql)) if legacy else sql


def _translate(sql: str) -> str:
    if "[" not in sql and not _LEGACY_ONLY.search(sql):
        return sql
    if not _SELECT.match(sql) or _LEGACY_ONLY.search(sql) or _COMMA_UNION.search(sql):
        raise not_implemented("this legacy SQL; set useLegacySql to false and use GoogleSQL")
    translated = _TABLE.sub(_name, sql)
    if re.search(r"\[[^\]]*:[^\]]*\]", translated):
        raise not_implemented("this legacy SQL; set useLegacySql to false and use GoogleSQL")
    return translated


def _name(match: re.Match[str]) -> str:
    table = match["table"]
    project = f"{match['project']}." if match["project"] else ""
    if table.endswith("$__PARTITIONS_SUMMARY__"):
        return _partitions_summary(project, match["dataset"], table.removesuffix("$__PARTITIONS_SUMMARY__"))
    if set(table) & set("@$'`\\\""):
        raise not_implemented(f"the table decorator of [{match['dataset']}.{table}] in legacy SQL")
    return f"`{project}{match['dataset']}.{table}`"


def _partitions_summary(project: str, dataset: str, table: str) -> str:
    """The meta table of legacy SQL, from INFORMATION_SCHEMA.PARTITIONS."""
    return (
        "(SELECT table_catalog AS project_id, table_schema AS dataset_id, table_name AS table_id, partition_id, "
        "UNIX_MILLIS(last_modified_time) AS creation_time, UNIX_MILLIS(last_modified_time) AS last_modified_time "
        f"FROM `{project}{dataset}.INFORMATION_SCHEMA.PARTITIONS` WHERE table_name = '{table}')"
    )
