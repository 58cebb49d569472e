"""The procedural language: variables, control flow, transactions, handlers."""

from typing import Any

import pytest

from ingestd.formats.errors import BigQueryError


def last(warehouse: Any, sql: str) -> Any:
    return warehouse.rows(sql)


def test_variables_have_types_defaults_and_scopes(warehouse: Any) -> None:
    sql = """
    DECLARE x, y INT64 DEFAULT 2;
    DECLARE name STRING;
    DECLARE inferred DEFAULT [1, 2];
    SET name = 'n';
    SET (x, y) = (y + 1, x + 10);
    BEGIN
      DECLARE name STRING DEFAULT 'inner';
      SET x = x * 100;
    END;
    SELECT x, y, name, inferred, name IS NULL;
    """
    assert last(warehouse, sql) == [(300, 12, "n", [1, 2], False)]


def test_columns_win_over_variables(warehouse: Any) -> None:
    assert last(warehouse, "DECLARE a INT64 DEFAULT 9; SELECT a FROM (SELECT 1 AS a)") == [(1,)]


def test_loops_run_until_told_otherwise(warehouse: Any) -> None:
    sql = """
    DECLARE i, total INT64 DEFAULT 0;
    LOOP
      SET i = i + 1;
      IF i = 3 THEN CONTINUE; END IF;
      IF i > 5 THEN LEAVE; END IF;
      SET total = total + i;
    END LOOP;
    WHILE i < 10 DO SET i = i + 1; END WHILE;
    REPEAT SET total = total + 100; UNTIL total > 200 END REPEAT;
    SELECT i, total;
    """
    assert last(warehouse, sql) == [(10, 212)]


def test_for_in_sees_each_row_as_a_struct(warehouse: Any) -> None:
    sql = """
    DECLARE seen STRING DEFAULT '';
    FOR r IN (SELECT n, CAST(n AS STRING) AS s FROM UNNEST([3, 1, 2]) AS n ORDER BY n) DO
      IF r.n = 2 THEN CONTINUE; END IF;
      SET seen = CONCAT(seen, r.s, ';');
    END FOR;
    SELECT seen;
    """
    assert last(warehouse, sql) == [("1;3;",)]


def test_labels_leave_the_loop_they_name(warehouse: Any) -> None:
    sql = """
    DECLARE n INT64 DEFAULT 0;
    outer_loop: LOOP
      LOOP
        SET n = n + 1;
        IF n > 3 THEN BREAK outer_loop; END IF;
      END LOOP;
    END LOOP outer_loop;
    SELECT n;
    """
    assert last(warehouse, sql) == [(4,)]


def test_if_and_case_choose_one_branch(warehouse: Any) -> None:
    sql = """
    DECLARE x INT64 DEFAULT 5;
    DECLARE r STRING DEFAULT '';
    IF x > 10 THEN SET r = 'big'; ELSEIF x > 3 THEN SET r = 'mid'; ELSE SET r = 'small'; END IF;
    CASE x WHEN 1 THEN SET r = CONCAT(r, '1'); WHEN 5 THEN SET r = CONCAT(r, '5'); ELSE SET r = 'none'; END CASE;
    CASE WHEN x < 0 THEN SET r = 'neg'; ELSE SET r = CONCAT(r, '+'); END CASE;
    SELECT r;
    """
    assert last(warehouse, sql) == [("mid5+",)]


def test_execute_immediate_binds_using_and_stores_into(dataset: Any) -> None:
    sql = """
    DECLARE total, most INT64;
    CREATE TABLE d.t AS SELECT n FROM UNNEST([1, 2, 3]) AS n;
    EXECUTE IMMEDIATE FORMAT('SELECT COUNT(*), MAX(n) FROM d.%s WHERE n > @low', 't') INTO total, most USING 1 AS low;
    EXECUTE IMMEDIATE 'INSERT INTO d.t VALUES (?), (?)' USING 10, 11;
    SELECT total, most, @@row_count;
    """
    assert last(dataset, sql) == [(2, 3, 2)]


def test_a_handler_sees_the_error_and_the_script_goes_on(warehouse: Any) -> None:
    sql = """
    BEGIN
      SELECT 1 / 0;
      SELECT 'not reached';
    EXCEPTION WHEN ERROR THEN
      SELECT @@error.message AS m;
    END;
    SELECT 'after';
    """
    result = warehouse.run(sql)
    rows = [warehouse.read(item.relation) for item in result.statements]
    assert rows == [[("division by zero: 1 / 0",)], [("after",)]]


def test_raise_carries_its_message_and_can_be_passed_on(warehouse: Any) -> None:
    with pytest.raises(BigQueryError, match="custom trouble"):
        warehouse.run("RAISE USING MESSAGE = CONCAT('custom', ' trouble')")
    with pytest.raises(BigQueryError, match="inner"):
        warehouse.run("BEGIN RAISE USING MESSAGE = 'inner'; EXCEPTION WHEN ERROR THEN RAISE; END")


def test_what_is_not_supported_is_not_swallowed_by_a_handler(warehouse: Any) -> None:
    with pytest.raises(BigQueryError) as caught:
        warehouse.run("BEGIN SELECT HLL_COUNT.INIT(1); EXCEPTION WHEN ERROR THEN SELECT 'hidden'; END")
    assert caught.value.reason == "notImplemented"


def test_a_transaction_is_all_or_nothing(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t (a INT64)")
    dataset.run("BEGIN TRANSACTION; INSERT d.t VALUES (1); INSERT d.t VALUES (2); COMMIT TRANSACTION")
    with pytest.raises(BigQueryError, match="division by zero"):
        dataset.run("BEGIN TRANSACTION; INSERT d.t VALUES (3); SELECT 1 / 0; COMMIT TRANSACTION")
    result = dataset.run("BEGIN; DELETE d.t WHERE TRUE; SELECT COUNT(*) FROM d.t; ROLLBACK; SELECT COUNT(*) FROM d.t")
    counts = [dataset.read(item.relation) for item in result.statements if item.relation]
    assert counts == [[(0,)], [(2,)]]


def test_a_script_that_ends_inside_a_transaction_rolls_back(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t (a INT64)")
    dataset.run("BEGIN TRANSACTION; INSERT d.t VALUES (1)")
    assert dataset.rows("SELECT COUNT(*) FROM d.t") == [(0,)]


def test_a_handler_rolls_back_its_transaction(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t (a INT64 NOT NULL)")
    sql = """
    BEGIN
      BEGIN TRANSACTION;
      INSERT INTO d.t VALUES (1);
      INSERT INTO d.t VALUES (NULL);
      COMMIT TRANSACTION;
    EXCEPTION WHEN ERROR THEN
      SELECT @@error.message AS m;
      ROLLBACK TRANSACTION;
    END;
    SELECT COUNT(*) FROM d.t;
    """
    result = dataset.run(sql)
    rows = [dataset.read(item.relation) for item in result.statements if item.relation]
    assert rows == [[("Required field a cannot be null",)], [(0,)]]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("COMMIT TRANSACTION", "no transaction"),
        ("ROLLBACK", "no transaction"),
        ("BEGIN TRANSACTION; BEGIN TRANSACTION", "within another transaction"),
        ("SET nope = 1", "Undeclared variable: nope"),
        ("DECLARE x INT64; DECLARE x STRING", "redeclaration"),
        ("DECLARE x INT64 DEFAULT 'a'", "Expected type INT64"),
        ("BREAK", "only allowed inside of a loop"),
        ("EXECUTE IMMEDIATE 'SELECT 1; SELECT 2'", "exactly one statement"),
        ("SELECT @@nope", "Unrecognized system variable @@nope"),
        ("IF TRUE THEN SELECT 1;", "Expected keyword END"),
    ],
)
def test_a_bad_script_is_refused(warehouse: Any, sql: str, message: str) -> None:
    with pytest.raises(BigQueryError) as caught:
        warehouse.run(sql)
    assert message in caught.value.message


def test_return_ends_the_script(warehouse: Any) -> None:
    result = warehouse.run("SELECT 1; IF TRUE THEN RETURN; END IF; SELECT 2")
    assert len(result.statements) == 1


def test_temporary_functions_are_inlined_with_their_types(warehouse: Any) -> None:
    sql = """
    CREATE TEMP FUNCTION double_it(x INT64) RETURNS FLOAT64 AS (x * 2);
    CREATE TEMP FUNCTION any_len(x ANY TYPE) AS (ARRAY_LENGTH(x));
    CREATE TEMP FUNCTION nested(a INT64, b INT64)
      AS ((SELECT SUM(v) FROM UNNEST([a, b, CAST(double_it(a) AS INT64)]) AS v));
    SELECT double_it(n + 1), any_len(['a', 'b']), nested(n, 2) FROM UNNEST([1]) AS n;
    """
    assert last(warehouse, sql) == [(4.0, 2, 5)]


def test_temporary_tables_live_in_the_script_alone(warehouse: Any) -> None:
    sql = """
    CREATE TEMP TABLE tt (a INT64, b ARRAY<STRING>);
    INSERT INTO tt (a) VALUES (1), (2);
    UPDATE tt SET a = a * 10 WHERE a = 2;
    CREATE OR REPLACE TEMP TABLE tt AS SELECT a, b FROM tt WHERE a > 5;
    SELECT * FROM tt;
    """
    assert last(warehouse, sql) == [(20, [])]
    with pytest.raises(BigQueryError, match="must be qualified with a dataset"):
        warehouse.run("SELECT * FROM tt")


def test_assert_passes_or_fails_with_its_message(warehouse: Any) -> None:
    assert warehouse.run("ASSERT (SELECT 1) = 1 AS 'fine'").statements[0].kind == "ASSERT"
    with pytest.raises(BigQueryError, match="rows are missing"):
        warehouse.run("ASSERT EXISTS (SELECT 1 FROM UNNEST(ARRAY<INT64>[])) AS 'rows are missing'")


def test_system_variables_tell_and_set_the_surroundings(dataset: Any) -> None:
    dataset.run("CREATE TABLE d.t AS SELECT 1 AS a")
    assert last(dataset, "SET @@dataset_id = 'd'; SELECT a, @@dataset_id, @@project_id FROM t") == [(1, "d", "p")]


def test_a_script_knows_its_statements_and_one_statement_is_no_script(warehouse: Any) -> None:
    one = warehouse.run("SELECT 1;")
    assert (one.script, one.kind) == (False, "SELECT")
    many = warehouse.run("DECLARE x INT64 DEFAULT 1;\nSELECT x;\nSELECT x + 1")
    assert (many.script, many.kind) == (True, "SCRIPT")
    assert [(item.sql, item.line) for item in many.statements] == [("SELECT x", 2), ("SELECT x + 1", 3)]


def test_statements_before_a_failure_stay_and_are_reported(dataset: Any) -> None:
    engine = dataset.engine()
    with pytest.raises(BigQueryError):
        engine.run("CREATE TABLE d.kept (a INT64); SELECT 1 / 0")
    assert [item.kind for item in engine.results] == ["CREATE_TABLE"]
    assert dataset.rows("SELECT COUNT(*) FROM d.kept") == [(0,)]


def test_a_cancelled_script_stops_between_statements(warehouse: Any) -> None:
    from ingestd.localcloud.bigquery.sql.engine import Surroundings

    calls = []

    def check() -> None:
        calls.append(1)
        if len(calls) > 3:
            raise BigQueryError("stopped", "Job execution was cancelled")

    with pytest.raises(BigQueryError, match="cancelled"):
        warehouse.run("LOOP SELECT 1; END LOOP", surroundings=Surroundings(before_statement=check))
    assert len(calls) == 4
