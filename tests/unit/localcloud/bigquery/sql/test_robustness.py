"""Whatever is thrown at the engine, it answers or refuses in BigQuery's words; nothing else comes out."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingestd.formats.errors import BigQueryError

CASES = yaml.safe_load((Path(__file__).parent / "sql_cases.yaml").read_text())
QUERIES = [case["sql"] for cases in CASES.values() for case in cases]
TOKENS = [re.findall(r"\w+|'[^']*'|\s+|.", sql) for sql in QUERIES]
POOL = [token for tokens in TOKENS for token in tokens]


def mutated(source: random.Random) -> str:
    tokens = list(source.choice(TOKENS))
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(tokens))
        if source.random() < 0.4:
            tokens[at] = source.choice(POOL)
        elif source.random() < 0.5:
            tokens.insert(at, source.choice(POOL))
        elif len(tokens) > 1:
            del tokens[at]
    return "".join(tokens)


@pytest.mark.parametrize("seed", range(4))
def test_a_mutated_query_answers_or_is_refused(warehouse: Any, seed: int) -> None:
    source = random.Random(seed)
    answered = 0
    for _ in range(250):
        sql = mutated(source)
        try:
            result = warehouse.run(sql)
        except BigQueryError as error:
            assert error.message, sql
            assert error.reason in ("invalidQuery", "invalid", "notFound", "notImplemented", "resourcesExceeded"), sql
            continue
        answered += 1
        for statement in result.statements:
            if statement.relation:
                warehouse.cursor.execute(f"DROP TABLE {statement.relation}")
    assert answered > 0


def test_a_recursive_query_that_does_not_end_is_an_error(warehouse: Any) -> None:
    with pytest.raises(BigQueryError, match="maximum number of iterations: 500"):
        warehouse.run("WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT COUNT(*) FROM t")
    rows = warehouse.rows(
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 400) SELECT * FROM t "
        "ORDER BY n DESC LIMIT 1"
    )
    assert rows == [(400,)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT REPEAT('abc', 1000000000000)", "exceeds max allowed output size of 1MB"),
        ("SELECT LPAD('a', 1000000000)", "exceeds max allowed output size of 1MB"),
        ("SELECT GENERATE_ARRAY(1, 1000000000000)", "Cannot generate arrays with more than 1048575 elements"),
    ],
)
def test_what_would_eat_the_memory_is_refused(warehouse: Any, sql: str, message: str) -> None:
    with pytest.raises(BigQueryError) as caught:
        warehouse.run(sql)
    assert message in caught.value.message


def test_an_interrupted_query_is_a_cancelled_job(warehouse: Any) -> None:
    import threading

    timer = threading.Timer(0.3, warehouse.cursor.interrupt)
    timer.start()
    with pytest.raises(BigQueryError) as caught:
        warehouse.run(
            "SELECT COUNT(*) FROM UNNEST(GENERATE_ARRAY(1, 1000000)) a, "
            "UNNEST(GENERATE_ARRAY(1, 1000000)) b WHERE a * b = -1"
        )
    timer.join()
    assert caught.value.reason == "stopped"
    assert warehouse.rows("SELECT 1") == [(1,)]
