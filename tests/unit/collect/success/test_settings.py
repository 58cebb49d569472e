"""Turning the convention on, for one bucket or several, and the variables of the tool it comes from."""

from pathlib import Path

import pytest
from tests.unit.collect.success.directories import loaded

from ingestd.documents import DocumentError
from ingestd.settings import Late, Settings
from ingestd.settings_loader import load_settings


def test_a_convention_says_for_itself_what_the_section_says_for_all(tmp_path: Path) -> None:
    settings = loaded(
        """success:
  late: hold
  allowed_datasets: [a]
  conventions:
    - {bucket: one}
    - {bucket: two, late: apply, root: /landing/, order_grace: 0s}
""",
        tmp_path,
    )
    one, two = settings.success.effective()
    assert (one.bucket, one.late, one.allowed_datasets, one.root) == ("one", Late.HOLD, ("a",), "")
    assert (two.bucket, two.late, two.allowed_datasets, two.root) == ("two", Late.APPLY, ("a",), "landing/")
    assert Settings(project="p").success.effective() == ()


def test_the_old_tools_variables_are_honoured_and_ours_come_first(tmp_path: Path) -> None:
    environ = {
        "SUCCESS_FILENAME": "_DONE",
        "DESTINATION_REGEX": r"(?P<dataset>\w+)/(?P<table>\w+)",
        "MAX_BATCH_BYTES": "1000",
        "JOB_PREFIX": "mine-",
        "BQ_PROJECT": "pays",
        "BQ_STORAGE_PROJECT": "stores",
        "K_SERVICE": "fn",
        "FAIL_ON_ZERO_DML_ROWS_AFFECTED": "no",
        "ORDER_PER_TABLE": "Y",
        "START_BACKFILL_FILENAME": "_HISTORYDONE",
        "WAIT_FOR_VALIDATION": "on",
        "BQ_LOAD_STATE_TABLE": "ops.loads",
        "INGESTD_SUCCESS__JOB_PREFIX": "ours-",
    }
    settings = loaded("success: {success_filename: _X, conventions: [{bucket: b}]}", tmp_path, **environ)
    (one,) = settings.success.effective()
    assert (one.success_filename, one.job_prefix, one.job_project, one.storage_project) == (
        "_DONE", "ours-", "pays", "stores",
    )  # fmt: skip
    assert (one.fail_on_zero_dml_rows, one.order_per_table, one.wait_for_validation) == (False, True, True)
    assert (one.start_backfill_filename, one.function_name) == ("_HISTORYDONE", "fn")
    assert (settings.jobs.max_bytes, settings.load_state.table) == (1000, "ops.loads")


def test_retries_of_the_old_tool_are_attempts_less_the_first(tmp_path: Path) -> None:
    assert loaded("", tmp_path, MAX_RETRIES_ON_BIGQUERY_ERROR="0").jobs.max_attempts == 1
    assert loaded("jobs: {max_attempts: 9}", tmp_path, MAX_RETRIES_ON_BIGQUERY_ERROR="3").jobs.max_attempts == 4
    with pytest.raises(DocumentError, match="MAX_RETRIES_ON_BIGQUERY_ERROR"):
        loaded("", tmp_path, MAX_RETRIES_ON_BIGQUERY_ERROR="many")


def test_the_platforms_own_variables_count_where_nobody_says_otherwise(tmp_path: Path) -> None:
    """`GCP_PROJECT` is set everywhere on Google's platforms: a daemon whose settings name one stays there."""
    bare = {"GCP_PROJECT": "platform", "FUNCTION_NAME": "old"}
    nobody = load_settings(Settings, None, bare)
    assert (nobody.project, nobody.success.function_name) == ("platform", "old")
    assert loaded("success: {function_name: mine}", tmp_path, **bare).project == "p"
    assert loaded("success: {function_name: mine}", tmp_path, **bare).success.function_name == "mine"
    assert loaded("", tmp_path, **bare, K_SERVICE="new").success.function_name == "new"
    assert load_settings(Settings, None, bare | {"INGESTD_PROJECT": "ours"}).project == "ours"
    (tmp_path / "bqtail.yaml").write_text("ProjectID: theirs\n")
    assert load_settings(Settings, tmp_path / "bqtail.yaml", bare).project == "theirs"


def test_a_pattern_that_re2_does_not_take_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"destination_regex: no RE2 pattern"):
        loaded("success: {destination_regex: '(?=x)'}", tmp_path)
