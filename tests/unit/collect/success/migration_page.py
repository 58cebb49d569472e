"""docs/migration-from-gcs_ocn_bq_ingest.md as data, and where each of its claims is proven.

`SURFACE` is what the original has, section by section, taken from its code and documents (not from our page): its
environment variables, events, objects, files and keys, groups, job ids, labels, behaviours, errors and flags. `PROVEN`
names the tests that hold a row's claim; rows that are missing there are executed by `test_migration_page` itself.
"""

import re
from dataclasses import dataclass

from tests.support.places import ROOT

PAGE = ROOT / "docs" / "migration-from-gcs_ocn_bq_ingest.md"
VERDICTS = ("same", "better", "refused")


@dataclass(frozen=True, slots=True)
class Row:
    section: str
    cells: tuple[str, ...]  # what; the verdict next to last; how or why last

    @property
    def what(self) -> str:
        return self.cells[0]

    @property
    def verdict(self) -> str:
        return self.cells[-2]

    @property
    def here(self) -> str:
        return self.cells[-1]

    @property
    def names(self) -> list[str]:
        """What of the row is code."""
        return re.findall(r"`([^`]+)`", self.what)


def read_page() -> list[Row]:
    rows: list[Row] = []
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        rows += [
            Row(title if len(cells) == 3 else f"{title}: paths", cells)
            for line in text.splitlines()
            if line.startswith("| ")
            for cells in [tuple(cell.strip() for cell in line.split("|")[1:-1])]
            if cells[-2]  # the head of the table has none
        ]
    return rows


SURFACE: dict[str, tuple[str, ...]] = {
    "Environment variables": (
        "SUCCESS_FILENAME", "DESTINATION_REGEX", "WAIT_FOR_JOB_SECONDS", "MAX_BATCH_BYTES", "JOB_PREFIX", "BQ_PROJECT",
        "BQ_STORAGE_PROJECT", "GCP_PROJECT", "FUNCTION_TIMEOUT_SEC", "RESTART_BUFFER_SECONDS",
        "FAIL_ON_ZERO_DML_ROWS_AFFECTED", "ORDER_PER_TABLE", "START_BACKFILL_FILENAME", "WAIT_FOR_VALIDATION",
        "MAX_RETRIES_ON_BIGQUERY_ERROR", "USE_ERROR_REPORTING_API", "K_SERVICE", "FUNCTION_NAME", "BQ_LOAD_STATE_TABLE",
    ),
    "Notifications": (
        "bucketId", "objectId", "eventType", "kind: storage#object", "OBJECT_METADATA_UPDATE", "OBJECT_ARCHIVE",
        "OBJECT_DELETE",
    ),
    "Objects": (
        "_SUCCESS", "_HISTORYDONE", "_BACKFILL", "_backlog/", "_bqlock", "_claimed_…", "_config/", "_temporary/",
        "_metadata", ".", "_", "#", "?", "*",
    ),
    "Configuration": (
        "load.json", "external.json", "*.sql", "ORDERME", "temp_ext", "{dest_dataset}", "{dest_table}",
        "destinationTable", "destinationRegex", "dataSourceName", "labels", "writeDisposition", "schemaUpdateOptions",
        "hivePartitioningOptions", "JobConfigurationLoad", "sourceUris", "null", "_config_old/", "_config/archive/",
    ),
    "Destinations": ("dataset", "table", "partition", "yyyy", "mm", "dd", "hh", "hr", "batch"),
    "Destinations: paths": (
        "ds/t/_SUCCESS", "ds/t/historical/_SUCCESS", "ds/t/incremental/_SUCCESS", "ds/t/history/_SUCCESS",
        "ds/t/incrementalfoo/_SUCCESS", "ds/t/$20201030/b1/_SUCCESS", "ds/t$20200101/_SUCCESS",
        "ds/t/$20200101abc/_SUCCESS", "ds/t/2020/01/02/03/b/_SUCCESS", "ds/t/20200102/_SUCCESS",
        "ds/t/2020010203/_SUCCESS", "ds/t/20200102/13/_SUCCESS", "ds/t/202001020304/_SUCCESS",
        "ds/t/2020-01-02/_SUCCESS", "ds/t/12345/_SUCCESS", "ds/t/2020/1/_SUCCESS", "ds/t/foo/bar/baz/_SUCCESS",
        "ds/t/dt=2020-01-02/_SUCCESS", "ds/2020/b01/_SUCCESS",
        "p.ds/t/_SUCCESS", "a.b.c/t/_SUCCESS", "ds/_SUCCESS",
    ),
    "Jobs": (
        "dataSourceName", "component", "cloud-function-name", "batch-id", "bucket-id", "MAX_BATCH_BYTES",
        "WRITE_TRUNCATE",
    ),
    "Ordered tables": ("_bqlock", "_BACKFILL"),
    "Errors": (
        "DuplicateNotificationException", "BigQueryJobFailure", "DestinationRegexMatchException",
        "HiveSourceUriPrefixRegexMatchException", "UnexpectedTriggerException", "BacklogException",
    ),
    "`backfill.py`": (
        "--gcs-path", "-p", "--mode", "-m", "--pubsub-topic", "--topic", "-t", "--success-filename", "-f",
        "--destination-regex", "-r",
    ),
}  # fmt: skip
"""What each section's rows have to name, all of it and nothing else."""

_DIRECTORIES = "tests/e2e/success/test_directories.py"
_FORMATS = f"{_DIRECTORIES}::test_w01_w11_w20_formats_layouts_regions_and_configuration_of_one_bucket"
_DUPLICATES = f"{_DIRECTORIES}::test_w22_duplicates_load_nothing_a_new_upload_runs_again_and_other_events_mean_nothing"
_MENDED = f"{_DIRECTORIES}::test_w03_bad_configuration_holds_its_batch_until_it_is_mended"
_TRUNCATING = f"{_DIRECTORIES}::test_w18_truncating_with_several_jobs_replaces_the_partition_once_and_no_other"
_MANY = f"{_DIRECTORIES}::test_w12_ten_thousand_and_fifty_files_and_one_larger_than_a_job_may_read_commit_at_once"
_REFUSED = f"{_DIRECTORIES}::test_a_refused_load_commits_nothing_of_its_batch"
_QUERIES = "tests/e2e/success/test_transforms.py::test_w18_queries_scripts_and_their_failures"
_ORDERED = "tests/e2e/success/test_ordered.py"
_IN_ORDER = f"{_ORDERED}::test_w04_w05_batches_commit_in_order_a_late_one_is_applied_and_duplicates_never_block"
_LATE = f"{_ORDERED}::test_a_late_batch_is_held_or_rejected_where_the_settings_say_so"
_HELD = f"{_ORDERED}::test_w07_a_failed_batch_holds_its_table_alone_until_it_is_retried_or_skipped"
_GATE = f"{_ORDERED}::test_w21_gate_and_validation_hold_under_new_arrivals"
_DRAINED = f"{_ORDERED}::test_backfill_files_go_when_the_backlog_is_empty_and_not_before"
_REPLICAS = f"{_ORDERED}::test_w09_w14_failing_loads_are_repeated_in_order_by_two_replicas_one_of_them_killed"
_BELOW = f"{_ORDERED}::test_w08_orderme_below_the_table_orders_what_lies_below_it"
_SIM = "tests/sim/test_success.py"
_CRASH = f"{_SIM}::test_w03_a_crash_after_any_effect_neither_loses_nor_doubles_a_directory"
_ORDERED_CRASH = f"{_SIM}::test_w06_a_crash_after_any_effect_of_an_ordered_table_loses_no_batch"
_LATE_FAILURE = f"{_SIM}::test_w10_a_load_that_fails_after_a_while_is_seen_and_repeated"
_LOOKED_AGAIN = f"{_SIM}::test_files_that_go_or_change_before_the_load_are_looked_at_again"
_AS_PINNED = f"{_SIM}::test_a_directory_that_goes_after_its_load_was_submitted_was_loaded_all_the_same"
_PARTS = f"{_SIM}::test_w12_parts_of_a_split_load_are_called_parts"
_WAITS = f"{_SIM}::test_a_wrong_configuration_waits_visibly_and_goes_on_when_it_is_mended"
_NO_TABLE = f"{_SIM}::test_a_missing_table_is_answered_in_the_words_of_the_convention"
_HABITS = "tests/sim/test_old_habits.py"
_EXPLAINED = "tests/sim/test_explained_directories.py"
_IGNORED = f"{_EXPLAINED}::test_a_success_file_below_backlog_is_ignored_and_explained_as_ignored"
_UNIT = "tests/unit/collect/success"
_ONLY_DATA = f"{_UNIT}/test_listing.py::test_w13_only_data_is_listed"
_SIGNS = f"{_UNIT}/test_listing.py::test_which_files_mean_something"
_NESTED = f"{_UNIT}/test_listing.py::test_w13_directories_with_a_success_file_of_their_own_are_batches_of_their_own"
_HIVE = f"{_UNIT}/test_listing.py::test_hive_layouts_keep_what_the_user_says_and_derive_the_rest"
_TEMP_EXT = f"{_UNIT}/test_listing.py::test_the_external_table_is_exactly_the_batchs_files"
_LABELS = f"{_UNIT}/test_listing.py::test_w17_labels_are_made_to_fit"
_CLOSEST = f"{_UNIT}/test_configuration.py::test_w02_the_closest_load_json_wins_and_the_batchs_own_counts"
_SQL = f"{_UNIT}/test_configuration.py::test_external_json_and_sql_count_from_the_closest_folder_alone"
_NAMED = f"{_UNIT}/test_configuration.py::test_what_cannot_be_used_is_named"
_FORMAT = f"{_UNIT}/test_planning.py::test_names_tell_the_format_where_load_json_does_not"
_NO_LEAK = f"{_UNIT}/test_configuration.py::test_w01_nothing_of_one_merge_leaks_into_the_next"
_UNREADABLE = (
    "tests/e2e/daemon/test_messages.py"
    "::test_unreadable_messages_go_to_the_error_place_with_their_reason_and_do_not_stop_the_stream"
)
_TRIES = "tests/unit/batch/test_record.py::test_the_repetitions_of_one_load_for_all_files_are_tries"

PROVEN: dict[str, dict[str, tuple[str, ...]]] = {
    "Environment variables": {
        "`WAIT_FOR_VALIDATION`": (_GATE,),
        "`MAX_RETRIES_ON_BIGQUERY_ERROR`": (
            f"{_UNIT}/test_settings.py::test_retries_of_the_old_tool_are_attempts_less_the_first", _LATE_FAILURE,
        ),
        "`FUNCTION_NAME`": (
            f"{_UNIT}/test_settings.py::test_the_platforms_own_variables_count_where_nobody_says_otherwise",
        ),
        "`BQ_LOAD_STATE_TABLE`": (
            "tests/e2e/ledger/test_backfill.py::test_complete_directories_are_found_by_backfill_and_by_the_sweep",
        ),
    },
    "Notifications": {
        "Pub/Sub, attributes `bucketId` and `objectId`": (_DUPLICATES,),
        "Pub/Sub without `eventType` and body, as `backfill.py` publishes": (
            f"{_HABITS}::test_a_message_with_nothing_but_names_loads_the_directory_as_it_is_now",
        ),
        "`kind: storage#object`, as a function gets it": (
            "tests/unit/intake/test_notifications.py::test_a_bare_object_resource_published_by_hand_is_a_finalize",
            "tests/unit/intake/test_notifications.py::test_a_cloud_functions_event_is_understood",
            "tests/unit/intake/test_notifications.py::test_a_binary_cloudevent_is_understood",
        ),
        "`OBJECT_METADATA_UPDATE`, `OBJECT_ARCHIVE`": (_DUPLICATES,),
        "`OBJECT_DELETE` of a success file": (_DUPLICATES,),
        "anything else": (_UNREADABLE,),
    },
    "Objects": {
        "`_SUCCESS`": (_FORMATS, _AS_PINNED),
        "`_SUCCESS`, announced twice": (_DUPLICATES,),
        "`_SUCCESS`, uploaded again": (_DUPLICATES,),
        "`_SUCCESS` above other `_SUCCESS` files": (_NESTED,),
        "`_SUCCESS` below `_config/`, `_backlog/`, `_temporary/`": (_IGNORED, _SIGNS),
        "`_HISTORYDONE`": (_GATE,),
        "`_BACKFILL`": (_DRAINED, _HELD, _GATE),
        "`_backlog/`": (_IGNORED, _ONLY_DATA),
        "`_bqlock`": (_HELD,),
        "`_bqlock`, put there by hand": (f"{_HABITS}::test_a_lock_put_there_by_hand_holds_no_table",),
        "`_claimed_…`": (_CRASH,),
        "`_config/` at every level": (_CLOSEST,),
        "files in subfolders": (_ONLY_DATA, _FORMATS),
        "empty objects, names with a leading `.`": (_ONLY_DATA,),
        "`_metadata`, `_temporary/`, other names with a leading `_`": (_ONLY_DATA, _FORMATS),
        "names with `#` or `?`": (_FORMATS,),
        "names with `*`": (_FORMAT,),
    },
    "Configuration": {
        "`load.json`, several": (
            _CLOSEST, f"{_UNIT}/test_configuration.py::test_the_documentations_worked_example_merges_as_it_prints",
        ),
        "`load.json`, none": (_FORMAT, _NO_LEAK, _FORMATS),
        "`load.json`, `null`": (
            f"{_UNIT}/test_configuration.py::test_lists_scalars_and_null_replace_and_objects_never_clash",
        ),
        "`load.json`, no JSON": (_NAMED, _MENDED),
        "`destinationTable`": (
            f"{_UNIT}/test_destination.py::test_destination_table_overrides_what_the_path_says_part_by_part",
        ),
        "`destinationRegex`": (f"{_UNIT}/test_destination.py::test_a_pattern_of_ones_own",),
        "`dataSourceName`": (f"{_UNIT}/test_planning.py::test_one_project_pays_and_another_has_the_table",),
        "`labels`": (_LABELS, _FORMATS),
        "`writeDisposition`": (_TRUNCATING,),
        "`schemaUpdateOptions`": (_WAITS, f"{_SIM}::test_schema_updates_go_with_an_overwritten_partition"),
        "`hivePartitioningOptions`": (_HIVE, _FORMATS),
        "unknown keys": (f"{_UNIT}/test_configuration.py::test_a_wrong_option_names_the_file_it_is_from", _MENDED),
        "`external.json`": (_SQL, _QUERIES),
        "`sourceUris` in `external.json`": (_TEMP_EXT,),
        "`*.sql`": (_SQL, _QUERIES),
        "`*.sql`, several in one folder": (_NAMED, _MENDED),
        "`*.sql`, empty": (_SQL, _MENDED),
        "`*.sql` in `_config_old/` or `_config/archive/`": (
            f"{_UNIT}/test_lookup.py::test_only_what_lies_directly_in_config_counts",
        ),
        "`temp_ext`": (_TEMP_EXT, _QUERIES),
        "`{dest_dataset}`, `{dest_table}`": (
            f"{_UNIT}/test_listing.py::test_w15_placeholders_are_names_and_nothing_else_of_a_path_reaches_the_sql",
        ),
        "`ORDERME`": (f"{_UNIT}/test_configuration.py::test_w08_orderme_counts_at_every_level", _BELOW),
    },
    "Jobs": {
        "job id of a retry": (_TRIES, f"{_HABITS}::test_a_query_that_fails_for_a_moment_is_run_again"),
        "job ids of several jobs": (_PARTS,),
        "label `batch-id`": (_LABELS, _QUERIES),
        "more than 10,000 files": (_MANY,),
        "more than `MAX_BATCH_BYTES`": (_MANY,),
        "`WRITE_TRUNCATE` with several jobs": (_TRUNCATING, _MANY),
        "where jobs run": (_FORMATS,),
        "a job that runs longer than five seconds": (_LATE_FAILURE,),
        "a load that fails for a moment": (_LATE_FAILURE, _REPLICAS),
        "a query that fails for a moment": (
            f"{_HABITS}::test_a_query_that_fails_for_a_moment_is_run_again", _QUERIES,
        ),
        "a DML statement that changes no row": (_QUERIES,),
        "files that come after the look at the folder": (_LOOKED_AGAIN, _AS_PINNED),
    },
    "Ordered tables": {
        "a late earlier batch": (_IN_ORDER, _LATE),
        "a batch that is announced twice": (_IN_ORDER,),
        "a batch that fails": (_HELD,),
        "`_bqlock` deleted, `_BACKFILL` dropped after a failure": (_HELD,),
        "a crash at any point": (_ORDERED_CRASH,),
        "several instances": (_REPLICAS,),
    },
    "Errors": {
        "`DuplicateNotificationException`": (_DUPLICATES,),
        "`BigQueryJobFailure`": (_REFUSED,),
        "`HiveSourceUriPrefixRegexMatchException`": (_HIVE,),
        "`UnexpectedTriggerException`": (_UNREADABLE,),
        "`BacklogException`": ("tests/sim/test_ordering.py::test_ordered_tables_commit_in_order_whatever_goes_wrong",),
        "a crash after the trigger": (_CRASH,),
        "a table or dataset that does not exist": (
            _NO_TABLE, f"{_EXPLAINED}::test_a_dry_run_says_why_it_would_not_load",
        ),
        "no permission": (
            f"{_HABITS}::test_a_directory_without_permission_waits_and_goes_on_when_it_is_granted",
        ),
        "no files beside the success file": (_DUPLICATES,),
        "a configuration that BigQuery does not take": (_WAITS,),
    },
    "`backfill.py`": {
        "`--gcs-path`, `-p`": (
            "tests/e2e/ledger/test_backfill.py::test_complete_directories_are_found_by_backfill_and_by_the_sweep",
        ),
    },
}  # fmt: skip
"""By section and row: the tests that would fail if it were not so."""
