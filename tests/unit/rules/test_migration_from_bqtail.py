"""docs/migration-from-bqtail.md answers for everything that bqtail reads or writes, and what it says is so.

What is cheap to run is run here: every field, request, variable, function, flag and key. What `better` promises beyond
that is proven by the tests that `PROOFS` names.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support import rules
from tests.support.places import ROOT
from tests.support.rules import lint_path
from tests.unit.rules import bqtail
from tests.unit.rules.bqtail_proofs import PROOFS
from typer.testing import CliRunner

from ingestd.cli.bqtail_flags import as_we_write
from ingestd.cli.bqtail_settings import KEYS, Kept
from ingestd.cli.commands import COMMANDS
from ingestd.cli.main import app
from ingestd.cli.rules import _checks
from ingestd.documents import Problem, Severity
from ingestd.model.objects import FileVersion, Generation, ObjectRef
from ingestd.rules.actions import ACTIONS
from ingestd.rules.catalogue import VARIABLES
from ingestd.rules.destination import expand_destination
from ingestd.rules.functions import FUNCTIONS
from ingestd.rules.parsing import ParsedFile
from ingestd.settings import Settings
from ingestd.settings_loader import load_settings

PAGE = (ROOT / "docs" / "migration-from-bqtail.md").read_text()
STATES = ("same", "better", "no effect", "refused")
HONOURED = ("same", "better")


@dataclass(frozen=True)
class Row:
    section: str
    what: str  # the first cell
    state: str
    here: str

    @property
    def names(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.what)

    @property
    def quoted(self) -> list[str]:
        """Words that an error has."""
        return re.findall(r'"([^"]+)"', self.here)


def rows_of(page: str) -> Iterator[Row]:
    section, checked = "", False
    for line in page.splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            checked = False
        elif cells[0].startswith("bqtail") and len(cells) == 3:
            checked = True
        elif checked and not set(cells[0]) <= {"-"}:
            yield Row(section, *cells)


ROWS = list(rows_of(PAGE))


def states(section: str) -> dict[str, Row]:
    """Name → its row, of a section's rows that name something."""
    return {name: row for row in ROWS if row.section == section for name in row.names}


FIELDS = {
    name: row
    for section in ("Rule", "Dest", "Options of the load job", "Batch")
    for name, row in states(section).items()
    if re.match(r"(When|Dest|Batch|Info)\.|[A-Z]\w+$", name)
}
REQUEST_ROWS = [
    row for row in ROWS if row.section == "Actions" and re.match(r"`(?!Action|Request|Route)[a-z]", row.what)
]


def request_state(action: str, key: str) -> Row | None:
    return next((row for row in REQUEST_ROWS if row.names[0] == action and key in row.names[1:]), None)


def test_every_row_says_what_becomes_of_it() -> None:
    assert len(ROWS) > 100
    assert [row for row in ROWS if row.state not in STATES] == []
    assert [row for row in ROWS if row.state in ("no effect", "refused") and not row.here] == []


# Completeness


def test_every_field_of_a_rule_is_answered_for() -> None:
    assert set(FIELDS) == set(bqtail.RULE_FIELDS)


def test_every_action_and_field_of_its_request_is_answered_for() -> None:
    named = {(row.names[0], key) for row in REQUEST_ROWS for key in row.names[1:]}
    wanted = {(action, key) for action, fields in bqtail.REQUESTS.items() for key in fields}
    internal = {(row.names[0], key) for row in REQUEST_ROWS if row.state == "refused" for key in row.names[1:]}
    assert named - internal == wanted
    assert {name for row in REQUEST_ROWS if row.state == "refused" for name in row.names} == {
        name for name, fields in bqtail.REQUESTS.items() if not fields
    }
    others = {name for name in states("Actions") if re.match(r"(Action|Request|Route)\b", name)}
    assert others == {*bqtail.ACTION_FIELDS, *bqtail.ROUTE_FIELDS}


@pytest.mark.parametrize(
    ("section", "pattern", "wanted"),
    [
        ("Variables", r"\$(\w+[.(]?[\w)]*)$", bqtail.VARIABLES),
        ("Variables", r"([A-Z]\w+)$", bqtail.FUNCTIONS),
        ("Command line", r"(-\w( --[\w-]+)?)$", bqtail.FLAGS),
        ("Environment", r"([A-Z_]+)$", bqtail.ENVIRONMENT),
        ("Configuration", r"(\w+)$", bqtail.CONFIGURATION),
    ],
)
def test_every_name_is_answered_for(section: str, pattern: str, wanted: list[str]) -> None:
    found = [match[1] for name in states(section) if (match := re.match(pattern, name))]
    assert sorted(found) == sorted(wanted)


def test_every_kind_of_object_is_answered_for() -> None:
    first = [row.what for row in ROWS if row.section == "Objects"]
    assert [kind for kind in bqtail.OBJECTS if not any(kind in cell for cell in first)] == []
    assert [cell for cell in first if not any(kind in cell for kind in bqtail.OBJECTS)] == []


# Truth: rules


def put(document: dict[str, Any], path: str, value: Any) -> None:
    parts = path.split(".")
    for depth, part in enumerate(parts[:-1], start=1):
        if ".".join(parts[:depth]) in bqtail.LISTS:
            document = document.setdefault(part, [{}])[0]
        else:
            document = document.setdefault(part, {})
    document[parts[-1]] = value


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value[0] if isinstance(value, list) else value
        value = value.get(part) if isinstance(value, dict) else None
    return value


def rule_with(field: str) -> dict[str, Any]:
    document: dict[str, Any] = {"When": {"Prefix": "/x/"}, "Dest": {"Table": "d.t"}}
    if field.startswith("Dest.Transient."):
        put(document, "Dest.Transient.Dataset", "temp")
    for path, value in (bqtail.BESIDES.get(field, {}) | {field: bqtail.RULE_FIELDS[field]}).items():
        put(document, path, value)
    return document


def problems(document: Any, folder: Path) -> list[Problem]:
    (folder / "rule.json").write_bytes(orjson.dumps(document))
    return lint_path(folder, _checks())


def errors(found: list[Problem]) -> list[str]:
    return [str(one) for one in found if one.severity is Severity.ERROR]


def warnings(found: list[Problem], name: str) -> list[str]:
    return [str(one) for one in found if one.severity is Severity.WARNING and name in f"{one.path}: {one.message}"]


def parsed(document: Any) -> ParsedFile:
    return asyncio.run(rules.parsed(orjson.dumps(document), "/rules/rule.json", root="/rules/"))


@pytest.mark.parametrize("field", bqtail.RULE_FIELDS)
def test_a_field_of_a_rule_is_what_the_page_says(field: str, tmp_path: Path) -> None:
    row, document = FIELDS[field], rule_with(field)
    found = problems(document, tmp_path)
    if row.state == "refused":
        assert row.quoted
        assert all(any(words in error for error in errors(found)) for words in row.quoted), errors(found)
        return
    assert errors(found) == []
    key = field.rpartition(".")[2]
    told = warnings(found, f"{key}' has no effect") + warnings(found, f"{key} has no effect")
    told += warnings(found, f"{key} is accepted for compatibility")
    assert bool(told) is (row.state == "no effect")
    if told:
        return
    (read,) = parsed(document).rules
    assert at(read.rule.spec.model_dump(mode="json", by_alias=True), field) not in (None, [], {}), "it is kept"
    assert not read.ignored


@pytest.mark.parametrize("field", ["InvalidSchemaURLL", "Dest.TempDataset", "Batch.Group.DurationMs"])
def test_names_of_bqtails_documentation_are_taken(field: str, tmp_path: Path) -> None:
    assert f"`{field.rpartition('.')[2]}`" in PAGE
    document: dict[str, Any] = {"When": {"Prefix": "/x/"}, "Dest": {"Table": "d.t"}}
    put(document, field, {"InvalidSchemaURLL": "gs://b/o", "Dest.TempDataset": "temp"}.get(field, 120_000))
    assert errors(problems(document, tmp_path)) == []


FORMS: dict[str, Any] = {
    # Forms that bqtail's repository and documentation have, in rules of our own.
    "lower-case keys": {"when": {"prefix": "/a/"}, "dest": {"table": "d.t"}, "onSuccess": [{"action": "delete"}]},
    "a list of rules": [{"When": {"Prefix": f"/{one}/"}, "Dest": {"Table": "d.t"}} for one in "ab"],
    "storage by documented names": {
        "Dest": {"Table": "d.t"},
        "OnSuccess": [
            {"action": "move", "Request": {"source": "gs://b/o", "dest": "gs://b/p"}},
            {"action": "delete", "Request": {"source": "gs://b/o"}},
        ],
    },
    "tables with colons": {
        "Dest": {"Table": "my-project:d.t_$Mod(2)"},
        "OnSuccess": [{"Action": "copy", "Request": {"Source": "d:s", "Dest": "p:d.t"}}],
    },
    "export by documented name": {
        "Dest": {"Table": "d.t"},
        "OnSuccess": [{"Action": "export", "Request": {"Source": "d.t", "Dest": "gs://b/x-*.avro", "Format": "AVRO"}}],
    },
    "a URL that is a variable": {
        "Dest": {"Table": "d.t"},
        "OnSuccess": [{"Action": "call", "Request": {"URL": "$Endpoint", "Method": "POST", "Auth": True}}],
    },
    "a secret that KMS encrypts": {
        "Dest": {"Table": "d.t"},
        "OnFailure": [
            {
                "Action": "notify",
                "Request": {
                    "Channels": ["#x"],
                    "Title": "failed",
                    "Message": "$Error",
                    "Secret": {"URL": "gs://c/slack.json.enc", "Key": "ring/key"},
                },
            }
        ],
    },
    "a message of data": {
        "Dest": {"Table": "d.t"},
        "OnSuccess": [
            {"Action": "push", "Request": {"Topic": "t", "Message": {"Rule": "$RuleURL", "Of": "$LoadURIs"}}}
        ],
    },
    "a window's key one level too deep": {
        "Dest": {"Table": "d.t", "Async": True},
        "Batch": {"RollOver": True, "Window": {"MultiPath": True, "DurationInSec": 90}},
    },
    "a comma in quotes": {
        "Dest": {"Table": "d.t", "Transient": {"Dataset": "temp"}, "Transform": {"x": 'SPLIT(t.y, ",")'}}
    },
    "a chain of steps": {
        "Dest": {"Table": "d.t", "Transient": {"Dataset": "temp"}},
        "OnSuccess": [
            {
                "Action": "query",
                "When": {"Exists": "d.dep"},
                "Request": {"SQL": "SELECT * FROM $TempTable", "Dest": "${ProjectID}.temp.x_$EventID", "Append": False},
                "OnSuccess": [{"Action": "drop", "Request": {"Table": "${ProjectID}.temp.x_$EventID"}}],
            }
        ],
    },
    "routes": [
        {
            "When": {"Dest": ".+:d\\.t_v2", "Type": "QUERY"},
            "OnSuccess": [{"Action": "copy", "Request": {"Dest": "d.x"}}],
        }
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_found_in_bqtails_repository_are_accepted(form: str, tmp_path: Path) -> None:
    assert errors(problems(FORMS[form], tmp_path)) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Dest: {Table: d.t, Transient: {Dataset: temp, tAlias: t}}", "did you mean 'Alias'?"),
        (
            "Dest: {Table: d.t}\nOnSuccess: [{Action: drop, When: {Exits: d.x}, Request: {Table: d.y}}]",
            "did you mean 'Exists'?",
        ),
        ('{"Dest": {"Table": "d.t"}', "not valid"),
        ("When:\nPrefix: /x/\nDest:\nTable: d.t", "required key 'Dest' is missing"),
    ],
)
def test_mistakes_found_in_bqtails_repository_are_refused_as_the_page_says(
    text: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / ("rule.json" if text.startswith("{") else "rule.yaml")).write_text(text)
    assert any(words in one for one in errors(lint_path(tmp_path)))
    assert "`tAlias`" in PAGE and "`Exits`" in PAGE and "dynamic_dest.json" in PAGE and "usage/batch/rule.yaml" in PAGE


# Truth: actions and routes


def acting(action: str, request: dict[str, Any], **more: Any) -> dict[str, Any]:
    step = {"Action": action, **({"Request": request} if request else {}), **more}
    return {"When": {"Prefix": "/x/"}, "Dest": {"Table": "d.t"}, "OnSuccess": [step]}


@pytest.mark.parametrize(("action", "key"), [(one, key) for one, keys in bqtail.REQUESTS.items() for key in keys])
def test_a_request_is_what_the_page_says(action: str, key: str, tmp_path: Path) -> None:
    row = request_state(action, key)
    assert row is not None
    document = acting(action, bqtail.NEEDED[action] | {key: bqtail.REQUESTS[action][key]})
    found = problems(document, tmp_path)
    assert errors(found) == []
    if row.state == "no effect":
        assert any("has no effect" in one for one in warnings(found, f"Request.{key}"))
        return
    (read,) = parsed(document).rules
    kept = read.rule.spec.on_success[0].body.model_dump(by_alias=True)
    spelled = next(name for name in kept if name.lower() == key.lower())
    assert kept[spelled] not in (None, (), {})
    assert not read.ignored


@pytest.mark.parametrize("action", [name for name, fields in bqtail.REQUESTS.items() if not fields])
def test_steps_of_bqtails_own_are_no_actions(action: str, tmp_path: Path) -> None:
    (row,) = (row for row in REQUEST_ROWS if action in row.names and row.state == "refused")
    assert all(
        any(words in one for one in errors(problems(acting(action, {"a": 1}), tmp_path))) for words in row.quoted
    )


@pytest.mark.parametrize("field", [name for name, value in bqtail.ACTION_FIELDS.items() if value])
@pytest.mark.parametrize("action", [name for name, fields in bqtail.REQUESTS.items() if fields])
def test_what_every_action_has_is_what_the_page_says(field: str, action: str, tmp_path: Path) -> None:
    assert action in ACTIONS
    found = problems(acting(action, bqtail.NEEDED[action], **bqtail.ACTION_FIELDS[field]), tmp_path)
    assert errors(found) == []
    told = warnings(found, f"OnSuccess[0].{field.rpartition('.')[2]}: unknown key")
    assert bool(told) is (states("Actions")[field].state == "no effect")


@pytest.mark.parametrize("field", bqtail.ROUTE_FIELDS)
def test_a_field_of_a_route_is_taken(field: str, tmp_path: Path) -> None:
    route: dict[str, Any] = {"When": {"Dest": "d\\.t$"}, "OnSuccess": [{"Action": "delete"}]}
    put(route, field.removeprefix("Route."), bqtail.ROUTE_FIELDS[field])
    file = parsed([route])
    assert len(file.routes) == 1
    assert not file.ignored
    assert errors(problems([route], tmp_path)) == []


# Truth: variables and functions

OF_THE_FILE = {"EventID", "Date", "Hour", "Mod(n)", "1"}


def test_variables_of_the_file_name_its_table() -> None:
    assert all(states("Variables")[f"${name}"].state in HONOURED for name in OF_THE_FILE)
    dest = {"Table": "d.t_$1_${Date}_${Hour}_$Mod(4)_$EventID", "Pattern": r"/in/(\w+)\.json"}
    (read,) = parsed({"When": {"Prefix": "/in/"}, "Dest": dest}).rules
    file = FileVersion(ObjectRef("b", "in/shop.json"), Generation(1), event_time=datetime(2024, 1, 31, 17, tzinfo=UTC))
    table = expand_destination(read.rule, file, {"EventID": "77"}).table.table
    assert re.fullmatch(r"t_shop_20240131_17_[0-3]_77", table)


@pytest.mark.parametrize("name", [name for name in bqtail.VARIABLES if name not in OF_THE_FILE])
def test_a_variable_is_known_or_left_as_the_page_says(name: str, tmp_path: Path) -> None:
    """What each stands for when an action runs: `test_outside`, `test_tables` and `test_actions`."""
    step = {"Action": "push", "Request": {"Topic": "t", "Message": f"it is ${{{name}}}"}}
    if name == "PartitionID":
        request = {"Dest": "d.x${DollarSign}${PartitionID}", "MultiPartition": True, "Append": True}
        step = {"Action": "copy", "Request": request}
    document = {
        "When": {"Prefix": "/x/"},
        "Dest": {"Table": "d.t"},
        "Batch": {"Window": {"DurationInSec": 90}, "Group": {"DurationInSec": 900}},
        "OnFailure": [{"Action": "delete"}, step],
    }
    unknown = warnings(problems(document, tmp_path), f"${{{name}}} is no variable") + warnings(
        problems(document, tmp_path), f"${name} is no variable"
    )
    honoured = states("Variables")[f"${name}"].state in HONOURED
    assert bool(unknown) is not honoured
    assert (name.partition(".")[0] in {one.name for one in VARIABLES}) is honoured


@pytest.mark.parametrize("name", bqtail.FUNCTIONS)
def test_a_function_is_known_or_refused_as_the_page_says(name: str, tmp_path: Path) -> None:
    row = states("Variables")[name]
    assert (name in FUNCTIONS) is (row.state in HONOURED)
    if row.state == "refused":
        dest = {"Table": "d.$X", "Parameters": [{"Name": "X", "Expression": f"${name}(a)"}]}
        assert any(row.quoted[0] in one for one in errors(problems({"Dest": dest}, tmp_path)))


# Truth: command line, environment, configuration

LOAD = COMMANDS["load"].load("load")


@pytest.mark.parametrize("flag", bqtail.FLAGS)
def test_a_flag_is_what_the_page_says(flag: str) -> None:
    row, words = states("Command line")[flag], flag.split()
    taken = {opt for one in LOAD.params for opt in one.opts}
    if row.state == "refused":
        run = CliRunner(env={"TERM": "dumb", "COLUMNS": "200"}).invoke(app, ["load", words[0]])
        assert run.exit_code != 0 and row.quoted[0] in run.output
        return
    assert set(words) <= taken
    valued = {opt for one in LOAD.params if not getattr(one, "is_flag", True) for opt in one.opts}
    if words[0] in valued:
        assert as_we_write([f"{words[0]}=x"], valued) == [words[0], "x"]


@pytest.mark.parametrize("name", bqtail.ENVIRONMENT)
def test_a_variable_of_the_environment_is_what_the_page_says(name: str) -> None:
    row = states("Environment")[name]
    settings = load_settings(Settings, None, {"INGESTD_PROJECT": "p", name: "x"})
    if name == "GCP_PROJECT":
        assert load_settings(Settings, None, {name: "x"}).project == "x"
    elif row.state == "no effect":
        assert settings == load_settings(Settings, None, {"INGESTD_PROJECT": "p"})
    assert ("the daemon says so" in row.here) is (name in Settings.bqtail_variables)


@pytest.mark.parametrize("key", bqtail.CONFIGURATION)
def test_a_key_of_the_configuration_is_what_the_page_says(key: str) -> None:
    """`test_bqtail_settings` converts each of them."""
    row, meaning = states("Configuration")[key], KEYS[key]
    assert (row.state in HONOURED) is isinstance(meaning, Kept)
    if isinstance(meaning, Kept):
        assert f"`{meaning.setting}`" in row.here


def test_every_key_that_is_converted_is_bqtails() -> None:
    assert set(KEYS) == set(bqtail.CONFIGURATION)


# Truth: what only whole daemons show


def test_what_is_better_is_proven_somewhere() -> None:
    better = [row.what for row in ROWS if row.state == "better"]
    assert [what for what in better if not any(what.startswith(start) for start in PROOFS)] == []
    assert [start for start in PROOFS if not any(what.startswith(start) for what in better)] == []


@pytest.mark.parametrize("proof", sorted({one for proofs in PROOFS.values() for one in proofs}))
def test_a_proof_exists(proof: str) -> None:
    file, _, name = proof.partition("::")
    text = (ROOT / "tests" / file).read_text()
    assert f"def {name}(" in text if file.endswith(".py") else f"name: {name}\n" in text
