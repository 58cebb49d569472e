"""Rule files written for bqtail load; where they use what is not supported yet, that alone is what is refused."""

import json
from typing import Any

import pytest
from tests.support.rules import parsed

from ingestd.documents import DocumentError, read_documents, validate
from ingestd.rules.routes import Route, RouteSpec, matching_routes

ASYNC_LOAD = """{
  "When": {"Prefix": "/data/case002", "Suffix": ".json"},
  "Async": true,
  "Dest": {"Table": "bqtail.dummy"},
  "OnSuccess": [{"Action": "delete"}]
}"""
BATCHED_LOAD = """[{
  "When": {"Prefix": "/data/case003", "Suffix": ".json"},
  "Dest": {"Table": "bqtail.dummy"},
  "Batch": {"Window": {"DurationInSec": 10}},
  "OnSuccess": [{"Action": "delete"}]
}]"""
MINIMAL = """
When: {Prefix: "/data/", Suffix: ".avro"}
Async: true
Batch: {Window: {DurationInSec: 30}}
Dest: {Table: mydataset.mytable, Transient: {Dataset: temp}}
OnSuccess:
  - Action: delete
OnFailure:
  - Action: move
    Request: {DestURL: "gs://errors-bucket/failed"}
"""
DEDUPED = """
When: {Prefix: /data/case, Suffix: .json}
Async: true
Dest:
  Table: bqtail.dummy_v${Mod(2)}
  TransientDataset: temp
  UniqueColumns: [id]
  Transform: {event_id: $EventID}
  SideInputs:
    - Table: bqtail.side
      Alias: s
      'On': t.id = s.id
Batch: {MultiPath: true, Window: {DurationInSec: 15}}
OnSuccess:
  - Action: query
    Request:
      SQL: SELECT $EventID AS id, '$SourceURI' AS uri FROM $DestTable
      Dest: bqtail.out
      Append: true
    OnSuccess:
      - Action: export
        Request: {Source: bqtail.out, DestURL: 'gs://b/x.json.gz'}
"""
ROUTES = """{"Routes": [
  {"When": {"Dest": ".+:mydataset\\\\.my_table_v2", "Type": "QUERY"},
   "OnSuccess": [{"Action": "export", "Request": {"DestURL": "gs://${config.Bucket}/export/my_table.json.gz"}}]},
  {"When": {"Dest": ".+:mydataset\\\\.my_table_v3", "Type": "LOAD"},
   "OnSuccess": [{"Action": "copy", "Request": {"Dest": "mydataset.my_table_v4"}}]}
]}"""


async def test_an_asynchronous_load_is_ready_to_run() -> None:
    (found,) = (await parsed(ASYNC_LOAD, "rule.json")).rules
    assert found.rule.spec.async_
    assert found.rule.matcher.accepts("/data/case002/dummy1.json")


@pytest.mark.parametrize(
    ("text", "file"), [(BATCHED_LOAD, "rule.json"), (MINIMAL, "rule.yaml"), (DEDUPED, "rule.yaml")]
)
async def test_rules_with_batches_transient_tables_and_unique_rows_load(text: str, file: str) -> None:
    assert len((await parsed(text, file)).rules) == 1


async def test_routes_match_by_destination_source_and_type() -> None:
    routes = (await parsed(ROUTES, "config.json")).routes

    def names(kind: str, source: str, dest: str) -> list[str]:
        return [route.name for route in matching_routes(routes, kind, source, dest)]

    assert names("QUERY", "SELECT 1", "p:mydataset.my_table_v2") == ["config#0"]
    assert names("LOAD", "gs://b/x", "p:mydataset.my_table_v2") == []
    assert names("load", "gs://b/x", "p:mydataset.my_table_v3") == ["config#1"]


def route(**fields: Any) -> RouteSpec:
    return validate(RouteSpec, read_documents(json.dumps(fields), "r.json")[0], "r.json")


def test_a_disabled_route_does_not_match() -> None:
    off = Route.of(route(When={"Source": "x"}, Disabled=True), "r")
    assert matching_routes([off], "QUERY", "x", "") == []


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ({"Type": "LOAD"}, "give Dest or Source"),
        ({"Dest": "(", "Type": "LOAD"}, "is no RE2 pattern"),
        ({"Dest": "x", "Type": "MERGE"}, "must be one of QUERY, LOAD, COPY, EXTRACT"),
    ],
)
def test_routes_that_cannot_work_are_refused(when: dict[str, str], message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        route(When=when)
