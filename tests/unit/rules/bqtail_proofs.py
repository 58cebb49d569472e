"""What docs/migration-from-bqtail.md calls better, by the start of the row, and the tests that hold it to that."""

_DEST = "e2e/dest/cases"
_VARIABLES = "unit/actions/test_executor.py::test_variables_come_from_the_batch_the_previous_answer_and_the_job"

PROOFS: dict[str, tuple[str, ...]] = {
    # Rule files
    "JSON: a rule": ("unit/rules/test_loading.py::test_files_hold_one_rule_a_list_or_several_documents",),
    "YAML: a rule": ("unit/rules/test_loading.py::test_files_hold_one_rule_a_list_or_several_documents",),
    "unknown keys": ("unit/rules/test_unknown_keys.py::test_a_key_that_bqtail_passes_over_does_not_take_the_rule_out",),
    "a broken edit": (
        "unit/rules/test_loading.py::test_a_broken_edit_keeps_the_last_good_version_and_is_reported_once",
    ),
    "two rules match": ("e2e/daemon/test_messages.py::test_two_rules_for_one_file_are_an_error_that_names_both",),
    # Rule
    "`When.Filter`": ("unit/rules/test_schema.py::test_mistakes_are_refused_at_load",),
    "`Async`": ("sim/test_publishing.py::test_rows_arrive_once_by_every_way_and_nothing_is_left_behind",),
    "`OnFailure`": (
        "e2e/daemon/test_loads.py::test_a_bad_file_runs_on_failure_once_while_its_neighbour_loads",
        f"{_DEST}/steps.yaml::a failed load is told about, once",
    ),
    "`CorruptedFileURL`": ("sim/test_batches.py::test_exactly_the_bad_files_are_quarantined_with_their_reasons",),
    "`MaxReload`": ("sim/test_batches.py::test_the_rest_fails_when_reloads_run_out_and_the_loaded_part_stands",),
    # Dest
    "`Dest.Table`": (
        "unit/rules/test_destination.py::test_an_object_name_never_moves_rows_into_another_dataset_or_partition",
    ),
    "`Dest.Partition`": (f"{_DEST}/plain.yaml::override of a partition replaces only that partition",),
    "`Dest.Pattern`": ("unit/rules/test_variables.py::test_groups_are_found_longest_first",),
    "`Dest.Parameters": ("unit/rules/test_destination.py::test_parameters_name_the_table_and_are_kept",),
    "`Dest.Override`": (
        f"{_DEST}/transient.yaml::override with DML replaces too",
        "unit/warehouse/test_statements.py::test_replacing_rows_keeps_the_table_as_it_is",
    ),
    "`Dest.UniqueColumns`": (
        f"{_DEST}/shaping.yaml::one row per key, the newest",
        f"{_DEST}/shaping.yaml::one whole nested row per key",
    ),
    "`Dest.Transform`": (f"{_DEST}/shaping.yaml::parameters from the path are values, whatever they hold",),
    "`Dest.SideInputs": (f"{_DEST}/shaping.yaml::a left join keeps rows without a partner",),
    "`Dest.AllowFieldAddition`": (f"{_DEST}/plain.yaml::new columns of parquet files are added",),
    "`Dest.Expiry`": ("unit/model/test_tables_and_quantities.py::test_bqtails_time_expressions",),
    "`Dest.Transient.Dataset`": (
        "sim/test_publishing.py::test_the_transient_table_is_there_for_the_actions_and_expires_by_itself",
    ),
    "`Dest.Transient.Region`": (f"{_DEST}/transient.yaml::a transient dataset that is missing is made",),
    "`Dest.Transient.Template`": (
        "sim/test_blocked.py::test_a_column_that_the_destination_lacks_is_told_and_waited_for",
    ),
    "`Dest.Transient.CopyMethod`": (
        "unit/warehouse/test_statements.py::test_the_way_into_the_table_is_the_one_that_can_do_it",
    ),
    "`Dest.Transient.Criteria`": (f"{_DEST}/transient.yaml::criteria hold for a copy too",),
    "`Dest.Schema.Autodetect`": (f"{_DEST}/shaping.yaml::a detected schema is transformed",),
    "`Dest.Schema.Split.Mapping": (
        f"{_DEST}/split_and_upsert.yaml::each row goes to all mappings it fits",
        f"{_DEST}/split_and_upsert.yaml::post-actions run after every mapping",
    ),
    "`Dest.Schema.Split.ClusterColumns`": (
        f"{_DEST}/split_and_upsert.yaml::split by a nested column, called by its last name",
    ),
    "a table that does not exist": (
        "sim/test_blocked.py::test_a_missing_table_is_told_within_minutes_and_loads_when_it_comes",
    ),
    "`Dest.SourceFormat`": ("e2e/daemon/test_loads.py::test_formats_and_load_options_reach_bigquery",),
    "`Dest.WriteDisposition`": (f"{_DEST}/transient.yaml::override through a transient table",),
    "`Dest.AllowJaggedRows`": ("unit/rules/test_schema.py::test_load_options_pass_through_in_bigquerys_own_names",),
    # Batch
    "`Batch.UsePatternHash`": (
        "unit/collect/windows/test_keys.py::test_groups_of_the_pattern_are_told_apart_when_asked",
    ),
    "`Batch.Group.DurationInSec`": ("sim/test_windows.py::test_on_done_of_a_group_runs_once_after_all_its_batches",),
    "`Batch.Group.OnDone`": (f"{_DEST}/steps.yaml::a group is done once, after all its batches",),
    "files of one window": ("sim/test_windows.py::test_folders_and_extensions_do_not_mix_unless_asked",),
    "more than 10,000": ("sim/test_batches.py::test_a_batch_of_several_jobs_appears_at_once",),
    # Actions
    "`Action.When.Exists`": (
        "unit/actions/test_executor.py::test_the_condition_is_expanded_and_asked_when_the_action_runs",
    ),
    "`Action.OnSuccess`": ("unit/actions/test_executor.py::test_nested_lists_run_for_every_kind_of_action",),
    "order": ("unit/actions/test_executor.py::test_a_list_runs_in_order",),
    "`delete`": (
        "unit/actions/test_objects.py::test_a_newer_upload_is_never_deleted",
        "unit/actions/test_objects.py::test_a_delete_that_is_refused_is_a_failure_and_the_others_are_done",
    ),
    "`move`": ("unit/actions/test_objects.py::test_an_upload_between_copy_and_delete_is_never_deleted",),
    "`query`": ("unit/rules/test_loading.py::test_sql_beside_a_rule_is_read_with_it_and_watched",),
    "`copy`": (
        "unit/actions/test_tables.py::test_each_partition_is_copied_and_on_success_comes_after_all",
        "unit/actions/test_tables.py::test_no_partitions_is_a_success",
    ),
    "`export`": ("unit/actions/test_tables.py::test_export_reads_the_format_off_the_destination",),
    "`insert`": ("unit/actions/test_tables.py::test_insert_streams_given_rows_under_stable_ids",),
    "`call`": (
        "unit/actions/test_outside.py::test_any_answer_but_success_is_a_failure",
        "unit/actions/test_outside.py::test_only_allowed_hosts_are_called",
    ),
    "`push`": ("unit/actions/test_outside.py::test_push_carries_its_key_and_its_attributes",),
    "`notify`": ("unit/actions/test_outside.py::test_the_daemons_own_token_stands_for_one_that_a_key_encrypts",),
    "`Route.": (
        "e2e/daemon/test_routes.py::test_routes_export_after_a_query_and_copy_after_a_load",
        "e2e/daemon/test_routes.py::test_a_failed_job_runs_the_routes_on_failure_with_its_error",
    ),
    # Variables
    "`$EventID`": ("unit/rules/test_destination.py::test_values_of_the_caller_are_known",),
    "`$Hour`": ("unit/rules/test_destination.py::test_date_hour_and_hash_come_from_the_file",),
    "`$DestTable`": ("unit/rules/test_sql.py::test_values_are_written_by_position",),
    "`$ProjectID`": (
        "unit/actions/test_executor.py::test_variables_come_from_the_batch_the_previous_answer_and_the_job",
    ),
    "`$SourceURI`": (
        "unit/actions/test_executor.py::test_variables_come_from_the_batch_the_previous_answer_and_the_job",
    ),
    "`$Error`": ("unit/actions/test_executor.py::test_on_failure_runs_once_with_the_error_and_the_error_goes_on",),
    "values in SQL": ("e2e/daemon/test_actions.py::test_an_object_name_cannot_inject_sql",),
    "unknown variables": ("unit/rules/test_variables.py::test_unknown_variables_are_reported_in_order",),
    "`FormatTime`": ("unit/rules/test_variables.py::test_random_numbers_are_fixed_for_a_file",),
    # Command line and configuration
    "`-R`": ("integration/cli/test_load.py::test_flags_as_bqtail_writes_them_load_the_same_rows",),
    "`-w --window`": ("integration/cli/test_load.py::test_a_command_line_of_bqtail_is_taken_as_it_is_written",),
    "`-i --ops`": ("integration/cli/test_load.py::test_a_bucket_folder_is_loaded_once_however_often_it_is_asked",),
    "the originals": ("integration/cli/test_load.py::test_a_local_folder_loads_together_and_leaves_no_copies",),
    "`CheckInMs`": ("unit/cli/test_bqtail_settings.py::test_a_check_every_few_milliseconds_is_one_every_second",),
    "`JournalURL`": ("unit/cli/test_bqtail_settings.py::test_both_configurations_become_one_settings_file",),
    "`MaxConcurrentSQL`": ("unit/warehouse/test_slots.py::test_no_more_jobs_than_allowed_run_at_the_same_time",),
    # Objects
    "`<JournalURL>/": ("e2e/daemon/test_seed_scenario.py::test_the_journal_keeps_what_each_job_was_and_did",),
    "`<CorruptedFileURL>": ("sim/test_batches.py::test_exactly_the_bad_files_are_quarantined_with_their_reasons",),
    "`<AsyncTaskURL>/<table>_": ("sim/test_windows.py::test_the_lock_is_named_after_table_source_and_due_time",),
    "`<AsyncTaskURL>/<table>.grp`": (
        "unit/collect/windows/test_store.py::test_a_group_is_not_done_while_a_batch_of_it_runs",
    ),
    "`<AsyncTaskURL>/proj:": ("e2e/daemon/test_routes.py::test_a_task_written_by_hand_follows_the_users_own_job",),
}
