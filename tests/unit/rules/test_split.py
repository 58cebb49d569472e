"""A split whose conditions overlap: bqtail gives each branch its rows, and so does a rule that does not say."""

from typing import Any

import pytest
from tests.support.rules import rule

from ingestd.rules.rule import Rule, plain, stored_spec
from ingestd.rules.schema import SplitMatch
from ingestd.rules.shaping import shaping_of

_MAPPING = [{"When": "id > 0", "Then": "d.positive"}, {"When": "id > 10", "Then": "d.large"}]


def split_rule(**options: Any) -> Rule:
    return rule(Dest={"Table": "d.t", "Schema": {"Split": {"Mapping": _MAPPING, **options}}})


@pytest.mark.parametrize(("options", "every"), [({}, True), ({"Match": "all"}, True), ({"Match": "first"}, False)])
def test_a_row_goes_to_every_mapping_it_fits_unless_the_rule_says_first(options: dict[str, Any], every: bool) -> None:
    made = split_rule(**options)
    assert shaping_of(made.spec.dest, {}).every_branch is every
    again = Rule.from_json(made.to_json())
    assert shaping_of(again.spec.dest, {}).every_branch is every, "a pinned rule means what it meant"


def test_a_record_of_an_earlier_version_keeps_sending_rows_to_the_first_mapping() -> None:
    """They were written when `first` was what no `Match` meant, and defaults were left out."""
    old = plain(split_rule().spec)
    del old["Dest"]["Schema"]["Split"]["Match"]
    split = stored_spec(old).dest.schema_options.split
    assert split is not None and split.match is SplitMatch.FIRST


def test_an_earlier_version_reads_todays_records_right() -> None:
    """What is not its default is written down, whatever this version's is."""
    assert plain(split_rule().spec)["Dest"]["Schema"]["Split"]["Match"] == "all"
