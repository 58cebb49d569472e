"""One local BigQuery for the statements of a module; every test has tables of its own."""

from collections.abc import Iterator

import pytest
from tests.support.tables import Tables


@pytest.fixture
def tables() -> Iterator[Tables]:
    made = Tables()
    yield made
    made.core.close()
