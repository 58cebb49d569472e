from collections.abc import Iterator

import pytest
from tests.support.loads import Loads


@pytest.fixture
def loads() -> Iterator[Loads]:
    made = Loads()
    yield made
    made.conn.close()
