"""The cookbook cannot rot: every rule, command and row of the page is tried as it stands."""

import re
from pathlib import Path

import pytest
from tests.e2e.cookbook.kitchen import Kitchen
from tests.e2e.cookbook.page import PAGE, Query, Recipe, Shell, read_page
from typer.testing import CliRunner

from ingestd.cli.main import app

pytestmark = [pytest.mark.xdist_group("cookbook"), pytest.mark.timeout(1800)]

RECIPES = read_page()[1]


@pytest.mark.parametrize("title", [recipe.title for recipe in RECIPES])
def test_a_recipe_gives_the_rows_it_shows(kitchen: Kitchen, title: str) -> None:
    kitchen.outcome(title)


@pytest.mark.parametrize("recipe", RECIPES, ids=[recipe.title for recipe in RECIPES])
def test_a_recipe_is_complete_and_its_rules_lint_clean(recipe: Recipe, tmp_path: Path) -> None:
    assert any(isinstance(step, Shell) for step in recipe.steps)
    assert any(isinstance(step, Query) and step.rows for step in recipe.steps)
    rules = [file for file in recipe.files if file.name.startswith("rules/")]
    for file in rules:
        (tmp_path / Path(file.name).name).write_text(file.text)
    if rules:
        linted = CliRunner().invoke(app, ["rules", "lint", "--strict", str(tmp_path)])
        assert linted.exit_code == 0, linted.output


def test_the_page_lists_every_recipe() -> None:
    before = PAGE.read_text().partition("\n## ")[0]
    for recipe in RECIPES:
        anchor = re.sub(r"[^a-z0-9-]", "", recipe.title.lower().replace(" ", "-"))
        assert f"(#{anchor})" in before


@pytest.mark.parametrize("title", ["Tell Slack of a failure"])
def test_slack_hears_which_file_failed(kitchen: Kitchen, title: str) -> None:
    kitchen.outcome(title)
    told = [message.json for message in kitchen.slack.of("/api/chat.postMessage")]
    assert [one["text"] for one in told if one["channel"] == "#invoices"] == [
        "invoices/invoice.json could not be loaded"
    ]


def test_the_readme_and_the_rules_lead_here() -> None:
    assert "(docs/cookbook.md)" in (PAGE.parents[1] / "README.md").read_text()
    assert "(cookbook.md" in (PAGE.parent / "rules.md").read_text()
