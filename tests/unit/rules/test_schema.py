"""Rules are validated when read: every field of bqtail's rules is known, a contradiction is refused with its line."""

import json
from datetime import timedelta
from typing import Any

import pytest
from tests.support.rules import parsed, refused, spec

from ingestd.documents import DocumentError
from ingestd.model.preparation import Drift, FileLayout
from ingestd.rules.rule import Rule, content_hash, stored_spec
from ingestd.rules.schema import DEFAULT_WINDOW, CopyMethod, Engine

EVERY_FIELD = """
When: {Prefix: /data/, Suffix: .json, Filter: 'x', Exclusion: 'tmp', Directory: false}
Disabled: false
Async: true
Dest:
  Table: proj:dataset.table_$1_$Mod(4)
  Partition: $Date
  Pattern: '/data/(\\w+)/'
  Parameters:
    - {Name: App, Expression: "$Replace($ToLower($1),'_','')"}
  Override: true
  Transient:
    Dataset: temp
    ProjectID: other
    Region: EU
    Alias: x
    Template: ds.tmpl
    CopyMethod: query
    Criteria: x.id > 0
    Balancer: {ProjectIDs: [a, b], Strategy: fallback, MaxLoadJobs: 10}
  Schema:
    Template: ds.template
    Drift: evolve
    Split:
      Mapping: [{When: 'MOD(id, 2) = 0', Then: ds.even}, {When: 'MOD(id, 2) = 1', Then: ds.odd}]
      Match: all
      Unmatched: keep
      ClusterColumns: [id]
      TimeColumn: ts
  UniqueColumns: [id]
  Transform: {name: UPPER(t.name), batch: $EventID}
  SideInputs: [{Table: ds.side, Alias: s, 'On': s.id = t.id, Inner: true}]
  AllowFieldAddition: true
  Expiry: 2hours
  SourceFormat: newline_delimited_json
  WriteDisposition: WRITE_TRUNCATE
Batch:
  Window: {DurationInSec: 30}
  MultiPath: true
  RollOver: false
  MaxFiles: 100
  MaxBytes: 1GiB
  MaxDelayInSec: 5
  UsePatternHash: true
  Group: {DurationInSec: 60, OnDone: [{Action: notify, Request: {Channels: '#c', Title: done}}]}
OnSuccess: [{Action: delete}]
OnFailure: [{Action: notify, Request: {Channels: ['#c'], Title: failed, Message: $Error}}]
Info: {Workflow: w, Description: d, ProjectURL: u, LeadEngineer: e, URL: x}
Engine: spark
Merge: {TargetFileSize: 256MiB, Format: Parquet, Compression: zstd}
OnBadData: Quarantine Rows
StalledThresholdInSec: 60
CorruptedFileURL: gs://b/corrupted
InvalidSchemaURL: gs://b/invalid
CounterURL: gs://b/counter
MaxReload: 3
"""


def test_every_field_of_a_bqtail_rule_is_known() -> None:
    rule = spec(EVERY_FIELD)
    assert rule.batch is not None
    assert rule.batch.duration == timedelta(seconds=30)
    assert rule.batch.max_bytes == 1024**3
    assert rule.dest.transient is not None
    assert rule.dest.transient.copy_method is CopyMethod.QUERY
    assert rule.dest.expiry == timedelta(hours=2)
    assert rule.engine is Engine.SPARK
    assert rule.dest.side_inputs[0].on == "s.id = t.id"
    assert not rule.dest.append


def test_drift_follows_from_the_older_options_when_it_is_not_given() -> None:
    assert spec("Dest: {Table: d.t}").dest.drift is Drift.FREEZE
    assert spec("Dest: {Table: d.t, AllowFieldAddition: true}").dest.drift is Drift.EVOLVE
    assert spec("Dest: {Table: d.t, IgnoreUnknownValues: true}").dest.drift is Drift.DISCARD_VALUE
    assert spec("Dest: {Table: d.t, Schema: {Drift: Discard_Row}}").dest.drift is Drift.DISCARD_ROW


def test_an_upsert_has_one_row_per_key() -> None:
    rule = spec("Dest: {Table: d.t, Merge: {Keys: [a, b]}, OrderBy: [ts DESC]}")
    assert rule.dest.unique_keys == ("a", "b")


def test_prepared_files_are_written_as_the_rule_says() -> None:
    assert spec("Dest: {Table: d.t}").layout == FileLayout()
    layout = spec("Dest: {Table: d.t}\nMerge: {TargetFileSize: 64MiB, Format: parquet, Compression: snappy}").layout
    assert layout == FileLayout(64 * 1024**2, "PARQUET", "SNAPPY")


def test_the_window_has_bqtails_default_and_takes_nanoseconds_or_units() -> None:
    def window(text: str) -> timedelta:
        batch = spec(f"Dest: {{Table: d.t}}\nBatch: {text}").batch
        assert batch is not None
        return batch.duration

    assert window("{}") == DEFAULT_WINDOW
    assert window("{Window: {Duration: 90s}}") == timedelta(seconds=90)
    assert window("{Window: {Duration: 15000000000}}") == timedelta(seconds=15)
    assert window("{Window: {DurationInSec: '15'}}") == timedelta(seconds=15)


def test_lower_case_schema_with_fields_is_bigquerys_and_schema_is_the_rules() -> None:
    rule = spec(
        '{"Dest": {"Table": "d.t", "schema": {"fields": [{"name": "a", "type": "string", "mode": "required"}]},'
        ' "Schema": {"Autodetect": false}}}',
        "r.json",
    )
    assert rule.dest.load_configuration() == {
        "schema": {"fields": [{"name": "a", "type": "STRING", "mode": "REQUIRED"}]}
    }
    assert spec("Dest: {Table: d.t, schema: {template: d.x}}").dest.schema_options.template == "d.x"


def test_load_options_pass_through_in_bigquerys_own_names() -> None:
    rule = spec("""
        Dest:
          table: d.t
          skipLeadingRows: "1"
          FieldDelimiter: ;
          nullMarker: NA
          schemaUpdateOptions: ALLOW_FIELD_ADDITION
          TimePartitioning: {Type: hour, Field: ts, ExpirationMs: 86400000}
          clustering: {fields: [a, b]}
          rangePartitioning: ~
          hivePartitioningOptions: {mode: auto, sourceUriPrefix: gs://b/x}
          decimalTargetTypes: [numeric, STRING]
          Encoding: utf-8
        """)
    assert rule.dest.load_configuration() == {
        "skipLeadingRows": 1,
        "fieldDelimiter": ";",
        "nullMarker": "NA",
        "schemaUpdateOptions": ["ALLOW_FIELD_ADDITION"],
        "timePartitioning": {"type": "HOUR", "field": "ts", "expirationMs": "86400000"},
        "clustering": {"fields": ["a", "b"]},
        "hivePartitioningOptions": {"mode": "AUTO", "sourceUriPrefix": "gs://b/x"},
        "decimalTargetTypes": ["NUMERIC", "STRING"],
        "encoding": "UTF-8",
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("When: {}", "r.yaml:1:1: Dest: required key 'Dest' is missing"),
        ("Dest: {}", "r.yaml:1:1: Dest.Table: required key 'Table' is missing"),
        ("Dest: {Table: t}", "names no dataset; write it as [project.]dataset.table"),
        ("Dest: {Table: 'bad-ds.t'}", "'bad-ds' is not a dataset id"),
        ("Dest: {Table: ''}", "Dest.Table: must not be empty"),
        ("Dest: {Table: 'd.t;x'}", "is not a table id"),
        ("Dest: {Table: d.t}\nWhen: {Filter: '(a'}", "r.yaml:2:8: When.Filter: '(a' is no RE2 pattern: missing )"),
        ("Dest: {Table: d.t}\nWhen: {Exclusion: '(?=x)'}", "is no RE2 pattern"),
        ("Dest: {Table: d.t, Pattern: '[z-a]'}", "r.yaml:1:20: Dest.Pattern: '[z-a]' is no RE2 pattern"),
        ("Dest: {Table: d.t_$1}", "Table uses $1 but there is no Pattern"),
        ("Dest: {Table: d.t_$2, Pattern: '(x)'}", "Table uses $2 but Pattern has 1 groups"),
        ("Dest: {Table: d.t_$Mod(0)}", "Table uses $Mod(0)"),
        ("Dest: {Table: d.t$20240101, Partition: $Date}", "Table already ends in a partition"),
        ("Dest: {Table: d.t, Override: true, WriteDisposition: WRITE_APPEND}", "Override: true contradicts"),
        ("Dest: {Table: d.t, Override: false, writeDisposition: write_truncate}", "Override: false contradicts"),
        ("Dest: {Table: d.t, Schema: {Autodetect: true}, autodetect: false}", "contradicts Autodetect: false"),
        (
            "Dest: {Table: d.t, timePartitioning: {}, rangePartitioning: {field: a, range: {start: 0, end: 9, interval: 1}}}",  # noqa: E501
            "TimePartitioning and RangePartitioning exclude each other",
        ),
        ("Dest: {Table: d.t, sourceFormat: CVS}", "must be one of CSV, NEWLINE_DELIMITED_JSON"),
        ("Dest: {Table: d.t, Transient: {}}", "r.yaml:1:20: Dest.Transient.Dataset: required key"),
        ("Dest: {Table: d.t, Transient: {Dataset: x, CopyMethod: MOVE}}", "must be one of COPY, QUERY, DML"),
        ("Dest: {Table: d.t, Parameters: [{Name: DestTable, Expression: x}]}", "cannot be called DestTable"),
        ("Dest: {Table: d.t, Parameters: [{Name: A, Expression: '$Nope($1)'}]}", "unknown function $Nope()"),
        ("Dest: {Table: d.t, Parameters: [{Name: A, Expression: '$ToLower($1'}]}", "$ToLower( is never closed"),
        ("Dest: {Table: d.t, Parameters: [{Name: A, Expression: '$Replace(a,b)'}]}", "takes 3 arguments, not 2"),
        ("Dest: {Table: d.t, SideInputs: [{Table: d.s, 'On': a}]}", "required key 'Alias' is missing"),
        ("Dest: {Table: d.t, SideInputs: [{Alias: s, On: a}]}", "give either Table or From"),
        ("Dest: {Table: d.t, Schema: {Split: {Mapping: []}}}", "Dest.Schema.Split.Mapping: must not be empty"),
        ("Dest: {Table: d.t, Expiry: soon}", "is not a duration"),
        ("Dest: {Table: d.t, OrderBy: a}", "OrderBy says which of several rows"),
        ("Dest: {Table: d.t, SideInputs: [{Table: d.s, Alias: T, On: a}]}", "alias 't' is used twice"),
        ("Dest: {Table: d.t, Schema: {Drift: freeze}, AllowFieldAddition: true}", "contradicts Schema.Drift: freeze"),
        ("Dest: {Table: d.t, Schema: {Drift: bend}}", "Dest.Schema.Drift: must be one of evolve, freeze"),
        ("Dest: {Table: d.t, Merge: {Keys: []}}", "Dest.Merge.Keys: must not be empty"),
        ("Dest: {Table: d.t, Merge: {Keys: id}, Override: true}", "finds rows by key and Override replaces them all"),
        ("Dest: {Table: d.t, Merge: {Keys: id}, Partition: $Date}", "leave Partition out"),
        ("Dest: {Table: d.t, Merge: {Keys: id}, UniqueColumns: a}", "leave UniqueColumns out"),
        ("Dest: {Table: d.t, Merge: {Keys: id, Update: ID}}", "id is a key, and a key is never updated"),
        ("Dest: {Table: d.t, Merge: {Keys: id, Mode: insert, Update: a}}", "Mode: insert updates nothing"),
        ("Dest: {Table: d.t, Merge: {Keys: id}, Transient: {Dataset: x, CopyMethod: COPY}}", "contradicts CopyMethod"),
        ("Dest: {Table: d.t}\nEngine: bigquery\nMerge: {Format: parquet}", "which Engine: bigquery does not do"),
        ("Dest: {Table: d.t}\nEngine: bigquery\nOnBadData: quarantine rows", "it needs Engine: spark"),
        ("Dest: {Table: d.t, Schema: {Drift: discard_row}}\nEngine: bigquery", "discard_row looks at every row"),
        (
            "Dest: {Table: d.t, SideInputs: [{From: ' gs://b/s/*.csv', Alias: s, On: s.a = t.a}]}\nEngine: bigquery",
            "the side input s reads files",
        ),
        (
            "Dest: {Table: d.t}\nMerge: {Format: newline_delimited_json, Compression: zstd}",
            "BigQuery does not read NEWLINE_DELIMITED_JSON files with ZSTD",
        ),
        ("Dest: {Table: d.t}\nBatch: {Window: {MultiPath: true}}", "unknown key 'MultiPath'"),
        ("Dest: {Table: d.t}\nOnSucess: []", "r.yaml:2:1: OnSucess: unknown key 'OnSucess'; did you mean 'OnSuccess'?"),
        ("Dest: {Table: d.t}\nBatch: {Group: {DurationMs: 1, DurationInSec: 1}}", "say the same; keep the latter"),
        ("Dest: {Table: d.t}\nMaxReload: -1", "MaxReload: must be greater than or equal to 0"),
        ("Dest: [d.t]", "Dest: must be a mapping"),
    ],
)
def test_mistakes_are_refused_at_load(text: str, problem: str) -> None:
    assert problem in "\n".join(refused(text))


def test_documented_aliases_are_accepted() -> None:
    rule = spec("""
        Dest: {Table: d.t, TempDataset: temp}
        Batch: {Group: {DurationMs: 61500}}
        InvalidSchemaURLL: gs://b/x
        """)
    assert rule.dest.staging is not None
    assert rule.dest.staging.dataset == "temp"
    assert rule.batch is not None
    assert rule.batch.group is not None
    assert rule.batch.group.duration_in_sec == 62
    assert rule.invalid_schema_url == "gs://b/x"


def test_a_rule_survives_the_journal_unchanged() -> None:
    rule = Rule.of(spec(EVERY_FIELD), "gs://c/rules/a.yaml", 2, "a#2")
    stored = json.loads(json.dumps(rule.to_json()))
    again = Rule.from_json(stored)
    assert again == rule
    assert again.spec == rule.spec
    assert content_hash(again.spec) == rule.content_hash


@pytest.mark.parametrize(
    ("dest", "key"),
    [
        ({"Table": "d.t_$EventID"}, "Table"),
        ({"Table": "d.t_${EventID}_x"}, "Table"),
        ({"Table": "d.t", "Partition": "$EventID"}, "Partition"),
        ({"Table": "d.$App", "Parameters": [{"Name": "Id", "Expression": "$Concat('t',$EventID)"},
                                            {"Name": "App", "Expression": "x_$Id"}]}, "Table"),
    ],
)  # fmt: skip
async def test_a_table_named_after_its_file_is_refused_where_files_load_together(
    dest: dict[str, Any], key: str
) -> None:
    """Each file would have a window of its own, and actions would look for the table of the batch's own id."""
    when = {"When": {"Prefix": "/in/"}}
    assert len((await parsed(json.dumps({**when, "Dest": dest}))).rules) == 1
    with pytest.raises(DocumentError) as refused:
        await parsed(json.dumps({**when, "Dest": dest, "Batch": {"Window": {"DurationInSec": 60}}}), "orders.json")
    (problem,) = refused.value.problems
    assert problem.file == "orders.json"
    assert f"Dest.{key} has $EventID" in problem.message
    assert "Leave Batch out for a table per file" in problem.message


@pytest.mark.parametrize(
    "dest",
    [
        {"Table": "d.t_$Date", "Transform": {"batch": "$EventID"}},
        {"Table": "d.t_$EventID", "Parameters": [{"Name": "EventID", "Expression": "$Date"}]},
        {"Table": "d.t", "Schema": {"Split": {"Mapping": [{"When": "x", "Then": "d.t_$EventID"}]}}},
    ],
)
async def test_the_id_of_the_batch_may_be_named_wherever_only_the_batch_is_meant(dest: dict[str, Any]) -> None:
    rule = {"When": {"Prefix": "/in/"}, "Dest": dest, "Batch": {}}
    assert len((await parsed(json.dumps(rule))).rules) == 1


def test_what_was_pinned_of_a_rule_that_is_refused_now_ends_as_it_began() -> None:
    document = {"Dest": {"Table": "d.t_$EventID"}, "Batch": {"Window": {"DurationInSec": 60}}}
    assert stored_spec(document).batch is not None


def test_a_journal_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="schema version 99"):
        Rule.from_json({**Rule.of(spec("Dest: {Table: d.t}"), "u").to_json(), "schema_version": 99})


def test_the_hash_depends_on_what_a_rule_says_not_on_how() -> None:
    one = spec("# a comment\nDest: {table: d.t, SkipLeadingRows: '1'}\nAsync: yes\nMaxReload: 15\n")
    two = spec('{"async": true, "dest": {"Table": "d.t", "skipLeadingRows": 1}}', "r.json")
    other = spec("Dest: {Table: d.t, SkipLeadingRows: 2}\nAsync: true\n")
    assert content_hash(one) == content_hash(two) != content_hash(other)
