"""The schemas for editors take what the loader takes, and refuse what can be refused without running code.

Beside this, every rule that a test loads (`tests.support.rules.spec`) is held against the schema too.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from tests.support.places import ROOT
from tests.support.rules import complaints_of

from ingestd.cli.json_schemas import SCHEMAS
from ingestd.cli.schema import Subject, written
from ingestd.documents import DocumentError, Severity, read_documents, validate
from ingestd.rules.lint import lint
from ingestd.rules.load_options import LoadOptions
from ingestd.rules.source import FolderSource
from ingestd.settings import Settings
from ingestd.settings_loader import load_settings

SHIPPED = ROOT / "src/ingestd/schemas"
SAMPLES = {
    **dict.fromkeys(sorted((ROOT / "config/rules").glob("*.yaml")), "rules"),
    **dict.fromkeys([ROOT / "config/ingestd.yaml", *sorted((ROOT / "k8s").rglob("ingestd.yaml"))], "settings"),
}


def complaints(subject: str, text: str) -> list[str]:
    return [one for document in read_documents(text, "f.yaml") for one in complaints_of(subject, document)]


@pytest.mark.parametrize("subject", Subject)
def test_what_is_shipped_is_what_the_models_say(subject: Subject) -> None:
    assert (SHIPPED / f"{subject}.json").read_text() == written(subject), "run: make docs"
    Draft7Validator.check_schema(SCHEMAS[subject]())


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda one: str(one.relative_to(ROOT)))
def test_every_sample_names_its_schema_and_keeps_to_it(sample: Path) -> None:
    text = sample.read_text()
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert named is not None
    assert (sample.parent / named[1]).resolve() == SHIPPED / f"{SAMPLES[sample]}.json"
    assert complaints(SAMPLES[sample], text) == []


RULES = {
    "one value for a list, keys in any case": "dest: {TABLE: d.t, uniquecolumns: id}\nonsuccess: {action: DELETE}\n",
    "text for numbers and booleans": "Dest: {Table: d.t, SkipLeadingRows: '1'}\nAsync: yes\nDisabled: 'off'\n",
    "null means not given": "Dest: {Table: d.t, Partition: null, Transient: ~}\nBatch:\n",
    "a list of rules": "- {Dest: {Table: d.t}}\n- {Dest: {Table: d.u}}\n",
    "routes": "Routes: [{When: {Dest: '.*', Type: export}, OnSuccess: [{Action: delete, Request: {URLs: gs://b/o}}]}]\n",
    "BigQuery's schema and the rule's own": "Dest: {Table: d.t, schema: {fields: [{name: a, type: string}]}}\n",
    "the rule's own schema": "Dest: {Table: d.t, schema: {Template: d.u, Drift: Discard_Value}}\n",
    "nanoseconds": "Dest: {Table: d.t}\nBatch: {Window: {Duration: 90000000000}, MaxBytes: 64MiB}\n",
    "names that YAML takes for something else": "Dest: {Table: d.t, Transform: {a: 1, b: true, c: null}}\n",
    "field names": "dest: {table: d.t, side_inputs: [{table: d.s, alias: s, on: s.id = t.id}]}\n",
}
WRONG_RULES = {
    "unknown key": "Dest: {Table: d.t, Tabel: x}\n",
    "no destination": "When: {Prefix: /a/}\n",
    "a destination that is null": "Dest: null\n",
    "unknown action": "Dest: {Table: d.t}\nOnSuccess: [{Action: remove}]\n",
    "no action": "Dest: {Table: d.t}\nOnSuccess: [{Request: {}}]\n",
    "a request of another action": "Dest: {Table: d.t}\nOnSuccess: [{Action: move, Request: {Topic: t}}]\n",
    "a request that is missing": "Dest: {Table: d.t}\nOnSuccess: [{Action: move}]\n",
    "a key inside an action of an action": (
        "Dest: {Table: d.t}\nOnSuccess: [{Action: delete, OnFailure: [{Action: delete, Requests: {}}]}]\n"
    ),
    "no choice": "Dest: {Table: d.t, SourceFormat: XML}\n",
    "no number": "Dest: {Table: d.t, SkipLeadingRows: some}\n",
    "too small a number": "Dest: {Table: d.t, SkipLeadingRows: -1}\n",
    "no boolean": "Dest: {Table: d.t}\nAsync: perhaps\n",
    "no duration": "Dest: {Table: d.t}\nBatch: {Window: {Duration: soon}}\n",
    "no size": "Dest: {Table: d.t}\nBatch: {MaxBytes: 5 apples}\n",
    "no name": "Dest: {Table: d.t, Parameters: [{Name: 1a, Expression: $1}]}\n",
    "a list for a mapping": "Dest: [d.t]\n",
    "text for a rule": "just text\n",
}


async def refused_by_the_loader(text: str, folder: Path) -> bool:
    (folder / "rule.yaml").write_text(text)
    return any(one.severity is Severity.ERROR for one in await lint(FolderSource(folder)))


@pytest.mark.parametrize("case", RULES)
async def test_the_rules_that_load_are_taken(case: str, tmp_path: Path) -> None:
    assert not await refused_by_the_loader(RULES[case], tmp_path)
    assert complaints("rules", RULES[case]) == []


@pytest.mark.parametrize("case", WRONG_RULES)
async def test_rules_that_are_wrong_by_themselves_are_refused(case: str, tmp_path: Path) -> None:
    assert await refused_by_the_loader(WRONG_RULES[case], tmp_path)
    assert complaints("rules", WRONG_RULES[case])


SETTINGS = [
    "project: p\n",
    "ProjectID: p\nJournalURL: gs://b/j\nintake: {maxMessages: '7', max-bytes: 64MiB}\n",
    "Project: 1\nactions: {allowed_hosts: one}\nroutes: [{When: {Dest: x}}]\nspark: {conf: {a: 1, b: true}}\n",
    "project: p\nload_state: {enabled: no}\nspark: {warm_up: 'yes', heap: 1GiB, scratch: null}\ndrain: 0\n",
    "project: p\nsuccess: {conventions: {bucket: b}}\nhttp: {token: 123}\nlogging:\n",
]
WRONG_SETTINGS = [
    "journal_url: gs://b/j\n",
    "project: null\n",
    "project: p\nhttp: {prot: 1}\n",
    "project: p\nhttp: {port: 70000}\n",
    "project: p\nlogging: {level: loud}\n",
    "project: p\ndrain: 25\n",
    "project: p\nintake: 5\n",
    "project: p\nquotas: {share: much}\n",
]


def settings_load(text: str, folder: Path) -> bool:
    file = folder / "settings.yaml"
    file.write_text(text)
    try:
        load_settings(Settings, file, {})
    except DocumentError:
        return False
    return True


@pytest.mark.parametrize("text", SETTINGS)
def test_the_settings_that_load_are_taken(text: str, tmp_path: Path) -> None:
    assert settings_load(text, tmp_path)
    assert complaints("settings", text) == []


@pytest.mark.parametrize("text", WRONG_SETTINGS)
def test_settings_that_are_wrong_by_themselves_are_refused(text: str, tmp_path: Path) -> None:
    assert not settings_load(text, tmp_path)
    assert complaints("settings", text)


@pytest.mark.parametrize(
    ("document", "fits"),
    [
        ({"sourceFormat": "CSV", "skipLeadingRows": 1, "schema": {"fields": [{"name": "a", "type": "INT64"}]}}, True),
        ({"SourceFormat": "avro", "maxBadRecords": "5", "destinationTable": {"datasetId": "d"}, "labels": {}}, True),
        ({"nullMarker": None, "destinationRegex": "x", "timePartitioning": {"type": "DAY", "expirationMs": "5"}}, True),
        ({"sourceFormats": "CSV"}, False),
        ({"sourceFormat": "XML"}, False),
        ({"schema": {"fields": [{"name": "a"}]}}, False),
        ({"destinationTable": {"dataset": "d"}}, False),
    ],
)
def test_load_json_is_held_against_bigquerys_options(document: dict[str, Any], fits: bool) -> None:
    assert (complaints_of("load", document) == []) is fits
    given = {key: value for key, value in document.items() if key not in ("labels", "destinationRegex")}
    table = given.pop("destinationTable", {})
    try:
        validate(LoadOptions, given, "load.json")
        taken = set(table) <= {"projectId", "datasetId", "tableId"}
    except DocumentError:
        taken = False
    assert taken is fits


def test_a_schema_is_one_json_document() -> None:
    for subject in Subject:
        assert json.loads(written(subject))["$schema"].startswith("http://json-schema.org/draft-07/")
