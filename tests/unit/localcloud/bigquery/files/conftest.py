from collections.abc import Iterator

import pytest
from tests.support.loads import Loads


@pytest.fixture
def loads() -> Iterator[Loads]:
    made = Loads()
    yield made
    made.conn.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Loads]:
    made = Loads()
    yield made
    made.conn.close()
