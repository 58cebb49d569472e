"""The rule reference tells the truth: its tables are those of the code, and its examples load."""

import re

import pytest
from tests.support.places import ROOT
from tests.support.rules import lint_path, spec

from ingestd.documents import Document, read_documents
from ingestd.rules import actions, schema
from ingestd.rules.actions import ACTIONS
from ingestd.rules.catalogue import VARIABLES
from ingestd.rules.functions import FUNCTIONS
from ingestd.rules.load_options import LoadOptions
from ingestd.rules.routes import RoutesFile

REFERENCE = ROOT / "docs" / "rules.md"
MIGRATION = ROOT / "docs" / "migration-from-bqtail.md"
TEXT = REFERENCE.read_text()


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in [heads, ("---",) * len(heads), *rows]]


def section(name: str, lines: list[str]) -> str:
    return "\n".join([f"<!-- {name} -->", "", *lines, "", f"<!-- end of {name} -->"])


def rendered(text: str) -> str:
    """The reference with its generated parts as the code says they are."""
    parts = {
        "variables": table(
            ("Variable", "Known in", "Meaning"),
            [(f"`${each.name}`", ", ".join(each.contexts), each.description) for each in VARIABLES],
        ),
        "functions": table(
            ("Function", "Meaning"), [(f"`{name}`", each.description) for name, each in sorted(FUNCTIONS.items())]
        ),
    }
    for name, lines in parts.items():
        pattern = rf"<!-- {name} -->(?:.*<!-- end of {name} -->)?"
        text = re.sub(pattern, lambda _, name=name, lines=lines: section(name, lines), text, flags=re.DOTALL)
    return text


def test_generated_parts_are_up_to_date() -> None:
    """To update them: python -m tests.unit.rules.test_reference"""
    assert rendered(TEXT) == TEXT


def models(module: object) -> list[type[Document]]:
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Document)]
    return [model for model in found if model.__module__ == getattr(module, "__name__", "")]


@pytest.mark.parametrize("model", [*models(schema), *models(actions)], ids=lambda model: model.__name__)
def test_every_key_is_documented(model: type[Document]) -> None:
    assert [key for key in model.known_keys() if not re.search(rf"`[^`\n]*\b{key}\b[^`\n]*`", TEXT)] == []


@pytest.mark.parametrize(
    "model",
    [schema.RuleSpec, schema.When, schema.Transient, schema.SchemaOptions, schema.Split, schema.Batch, schema.Dest],
    ids=lambda model: model.__name__,
)
def test_those_who_come_from_bqtail_find_every_field(model: type[Document]) -> None:
    options = LoadOptions.known_keys() if model is schema.Dest else ()
    text = MIGRATION.read_text()
    assert [key for key in model.known_keys() if key not in options and not re.search(rf"\b{key}\b", text)] == []
    assert [name for name in ACTIONS if f"`{name}`" not in text] == []


def test_every_action_is_documented() -> None:
    assert [name for name in ACTIONS if f"| `{name}` |" not in TEXT] == []


def test_every_example_loads() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        if block.startswith("Routes"):
            RoutesFile.model_validate(read_documents(block, "docs.yaml")[0])
        else:
            spec(block)


def test_shipped_rules_have_no_problems() -> None:
    found = [str(problem) for problem in lint_path(ROOT / "config" / "rules")]
    # The sample for a first run has a window as short as a newcomer's patience; few files a day go through it.
    assert [one for one in found if not ("clicks.yaml" in one and "Batch.Window" in one)] == []


if __name__ == "__main__":
    REFERENCE.write_text(rendered(TEXT))
