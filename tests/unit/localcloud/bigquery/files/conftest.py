from collections.abc import Iterator

import pytest
from tests.unit.localcloud.bigquery.files.support import Loads


@pytest.fixture
def loads() -> Iterator[Loads]:
    made = Loads()
    yield made
    made.conn.close()
