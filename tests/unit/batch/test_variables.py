"""What `$…` stands for in a batch's actions."""

import re

import pytest
from tests.support.records import done, file

from ingestd.batch.variables import batch_variables
from ingestd.rules.catalogue import VARIABLES
from ingestd.rules.expansion import Scope
from ingestd.settings import Settings


@pytest.mark.parametrize("written", re.findall(r"\$Source\.\w+", str(VARIABLES)))
def test_actions_know_everything_that_the_rules_page_says_of_a_source(written: str) -> None:
    record = done(file("data/a.json", bucket="landing"))
    values = batch_variables(record, record.loaded_files, Settings(project="p"))
    assert Scope(values).expand_text(written) != written
    assert Scope(values).expand_text("$Source.Bucket/$Source.Name") == "landing/data/a.json"
