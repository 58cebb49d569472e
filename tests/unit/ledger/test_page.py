"""The documented columns are the columns."""

from tests.support.places import ROOT

from ingestd.ledger.columns import COLUMNS


def test_the_page_lists_every_column_with_its_meaning() -> None:
    page = (ROOT / "docs" / "ledger.md").read_text()
    listed = page.partition("<!-- columns -->")[2].partition("<!-- /columns -->")[0].strip().splitlines()
    assert listed[2:] == [f"| `{column.name}` | {column.description} |" for column in COLUMNS]
