"""The guards: what each guarantee hangs on, and the test that notices when it is gone.

A guard is a piece of source text, found exactly once, and what is left of it when it is taken out. `make mutants` takes
out one at a time, in a copy of the source, and runs the guard's test over the copy: it has to fail, and soon.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guard:
    name: str
    file: str  # below src/ingestd
    text: str
    without: str
    test: str  # below tests/


GUARDS = (
    Guard(
        "a lock is taken over by its generation",
        "collect/windows/store.py",
        "            await self._write_lock(head, generation)\n        except (PreconditionFailed, NotFound):",
        "            await self._write_lock(head, None)\n        except (PreconditionFailed, NotFound):",
        "unit/collect/windows/test_store.py::test_of_two_that_take_over_the_same_lock_one_gets_it",
    ),
    Guard(
        "an end is written once",
        "batch/journal.py",
        "            await self._write(self.done(record), record, ABSENT)\n        except PreconditionFailed:",
        "            await self._write(self.done(record), record, None)\n        except PreconditionFailed:",
        "unit/batch/test_journal.py::test_the_first_end_of_a_batch_is_never_written_over",
    ),
    Guard(
        "the number of an attempt is used once",
        "batch/recovery.py",
        "    return _put(progress.give_out_again(chunk.job), chunk, again)",
        "    return _put(progress, chunk, again)",
        "unit/batch/test_recovery.py::test_a_repetition_keeps_the_files_and_takes_the_next_number",
    ),
    Guard(
        "the number of a preparing attempt is used once",
        "batch/stages/prepare.py",
        "            number = drive.progress.preparing + 1",
        "            number = max(drive.progress.preparing, 1)",
        "sim/test_prepared.py::test_nothing_that_a_dead_attempt_wrote_is_taken_for_that_of_whoever_goes_on",
    ),
    Guard(
        "the number of a preparing attempt is saved before anything is written under it",
        "batch/stages/prepare.py",
        "            drive.advance(preparing=number)\n            await drive.save()",
        "            drive.advance(preparing=number)",
        "sim/test_prepared.py::test_nothing_that_a_dead_attempt_wrote_is_taken_for_that_of_whoever_goes_on",
    ),
    Guard(
        "a file that another batch has entered into the register is left to it",
        "batch/stages/look.py",
        "        others = await parts.register.enter(destination(record), name, files)",
        "        others = {} if await parts.register.enter(destination(record), name, files) else {}",
        "sim/test_windows.py::test_a_file_that_is_alone_and_in_a_window_at_once_is_loaded_once",
    ),
    Guard(
        "a page of the register is written once",
        "batch/register.py",
        "        await self._store.create(ref, data, if_generation=ABSENT, metadata=span.to_metadata())",
        "        await self._store.create(ref, data, metadata=span.to_metadata())",
        "unit/batch/test_register.py::test_each_file_belongs_to_one_batch_whoever_enters_it_at_the_same_time",
    ),
    Guard(
        "what a load may have read of a newer generation is noted on the trail of its name",
        "batch/stages/land.py",
        "    await drive.parts.trails.note(record, moved.notes)",
        "    pass",
        "sim/test_overwrites.py::test_a_file_overwritten_around_the_load_of_its_window_is_counted_once",
    ),
    Guard(
        "the trail of a name is asked before another generation of it is loaded",
        "batch/overwrites.py",
        "        trails = await self.trails.of(record, mine)\n        asked",
        "        trails: dict[ObjectRef, Trail] = {}\n        asked",
        "unit/batch/test_overwrites.py::test_what_an_earlier_load_has_read_is_not_loaded_again",
    ),
    Guard(
        "a trail is added to by its generation",
        "batch/trails.py",
        "                await self._store.create(place, after.to_json(ref), if_generation=generation)",
        "                await self._store.create(place, after.to_json(ref))",
        "unit/batch/test_overwrites.py"
        "::test_of_two_that_note_something_on_a_name_at_the_same_time_neither_is_forgotten",
    ),
    Guard(
        "earlier generations of a name are waited for",
        "batch/overwrites.py",
        "            await self._decided(one, names)",
        "            pass",
        "unit/batch/test_overwrites.py"
        "::test_an_earlier_generation_under_way_is_waited_for_after_saying_what_is_given_up",
    ),
    Guard(
        "what is given up is said before earlier generations are waited for",
        "batch/overwrites.py",
        "            await give_up()",
        "            pass",
        "unit/batch/test_overwrites.py"
        "::test_an_earlier_generation_under_way_is_waited_for_after_saying_what_is_given_up",
    ),
    Guard(
        "a table has its share of the job slots, and no more",
        "warehouse/slots.py",
        "        return admits(sum(job.table == table for job in self.jobs.values()), free)",
        "        return free > 0",
        "sim/test_shares.py::test_a_slow_table_does_not_keep_another_one_waiting",
    ),
    Guard(
        "a share leaves room for whoever has none",
        "model/fair.py",
        "    return free > 0 and (held == 0 or held + 1 <= SHARE * (free - 1))",
        "    return free > 0",
        "unit/model/test_fair.py::test_one_key_never_holds_all_slots",
    ),
    Guard(
        "messages are kept while our own storage is down",
        "intake/puller.py",
        "            keep=self._keep,",
        "            keep=lambda receipt, delay: False,",
        "sim/test_dead_letters.py::test_an_outage_of_our_own_storage_spends_no_deliveries",
    ),
    Guard(
        "messages that are kept are given back when the daemon stops",
        "intake/puller.py",
        "            receipt.retry_later(timedelta())",
        "            pass",
        "sim/test_dead_letters.py::test_messages_kept_are_given_back_when_the_daemon_stops",
    ),
    Guard(
        "parts of a split load are left alone by whoever knows them by other names",
        "batch/record.py",
        "        if self.progress.parts:",
        "        if False:",
        "unit/batch/test_record.py"
        "::test_an_older_daemon_leaves_a_split_load_alone_and_what_it_split_itself_keeps_its_names",
    ),
    Guard(
        "what a load has read is written down before its actions take the sources away",
        "batch/stages/land.py",
        "    if moved:\n        await drive.save()",
        "    if False:\n        await drive.save()",
        "sim/test_overwrites.py"
        "::test_that_a_load_read_something_else_is_still_known_after_a_crash_among_its_actions",
    ),
    Guard(
        "that nothing came of a batch is said by whoever holds it",
        "batch/runner.py",
        "        if held.record.phase is not Phase.DONE:",
        "        if False:",
        "sim/test_prepared.py"
        "::test_who_stood_still_while_another_loaded_its_batch_does_not_end_it_as_if_nothing_was_loaded",
    ),
    Guard(
        "a renewal of the lease that is under way is over before the batch's end gets its revision",
        "batch/journal.py",
        "        async with held.lock:\n            return",
        "        return",
        "unit/batch/test_journal.py::test_no_state_of_a_batch_looks_as_new_as_its_end",
    ),
    Guard(
        "that a batch has a table of its own is written down before the table is made",
        "batch/stages/land.py",
        "            await drive.pin()  # whoever goes on",
        "            pass  # whoever goes on",
        "sim/test_staging.py::test_a_table_of_its_own_is_dropped_by_whoever_finds_that_one_job_will_do",
    ),
    Guard(
        "whoever takes a batch over gives up no file before the id of the job for it is used up",
        "batch/stages/fence.py",
        "    return number in drive.unsure and not drive.record.lands_apart",
        "    return False",
        "sim/test_overwrites.py"
        "::test_what_was_given_up_by_who_took_the_batch_over_is_not_loaded_by_the_one_before",
    ),
    Guard(
        "what was made for a batch after its end is dropped",
        "batch/runner.py",
        "            if await self._parts.journal.is_finished(record):\n                await self._parts.landing.drop",
        "            if False:\n                await self._parts.landing.drop",
        "sim/test_overwrites.py::test_a_table_that_is_made_after_the_end_of_its_batch_is_dropped",
    ),
    Guard(
        "prepared rows are counted when they are loaded",
        "batch/stages/pour.py",
        "    if whole and (landed := pinned.landed(branch)) != output.rows:",
        "    if False and (landed := pinned.landed(branch)) != output.rows:",
        "unit/batch/test_pour.py::test_every_prepared_row_has_to_be_loaded",
    ),
    Guard(
        "messages in flight keep their lease",
        "intake/receipts.py",
        "                await self._subscription.extend(list(self._open), self._lease)",
        "                pass",
        "unit/intake/test_receipts.py::test_messages_in_flight_keep_their_lease_until_they_are_settled",
    ),
    Guard(
        "what a paused replica's job read counts as read",
        "batch/stages/land.py",
        "    return replace(chunk, files=tuple(sorted({*chunk.files, *extra.values()})))",
        "    return chunk",
        "unit/warehouse/test_proof.py::test_files_that_a_paused_replicas_job_read_count_as_read",
    ),
    Guard(
        "the number of files read is proven",
        "warehouse/proof.py",
        "    if read is not None and read != len(files):",
        "    if False and read != len(files):",
        "unit/warehouse/test_proof.py::test_a_job_must_have_read_as_many_files_as_it_was_given",
    ),
    Guard(
        "the files of a job are proven",
        "warehouse/proof.py",
        "    if sources is not None and sorted(sources) != sorted(file.ref.url for file in files):",
        "    if False and sorted(sources) != sorted(file.ref.url for file in files):",
        "unit/warehouse/test_proof.py::test_a_job_must_have_been_given_these_files",
    ),
    Guard(
        "a group waits for its running batches",
        "collect/windows/groups.py",
        "            due.discard(entry.group)",
        "            pass",
        "unit/collect/windows/test_store.py::test_a_group_is_not_done_while_a_batch_of_it_runs",
    ),
    Guard(
        "a batch is opened again before its end goes",
        "batch/journal.py",
        "        held = Held(stamped, await self._write(self.running(stamped), stamped, ABSENT))\n"
        "        await self._take_back(stamped)",
        "        await self._take_back(stamped)\n"
        "        held = Held(stamped, await self._write(self.running(stamped), stamped, ABSENT))",
        "unit/batch/test_journal.py::test_a_batch_opened_again_is_in_a_place_however_long_its_opener_stands_still",
    ),
    Guard(
        "an end is taken back by its generation",
        "batch/journal.py",
        "            await self._store.delete(self.done(record), if_generation=record.stamp.reopens)",
        "            await self._store.delete(self.done(record))",
        "unit/batch/test_journal.py::test_an_end_is_taken_back_only_in_the_generation_that_was_opened_again",
    ),
    Guard(
        "a moved source is deleted by its generation",
        "actions/move.py",
        "[Deletion(one.source, one.generation) for one in copied]",
        "[Deletion(one.source, None) for one in copied]",
        "unit/actions/test_objects.py::test_an_upload_between_copy_and_delete_is_never_deleted",
    ),
    Guard(
        "a newer upload is not moved",
        "actions/move.py",
        "        elif one.own is not None and live.generation != one.own.generation:",
        "        elif False and one.own is not None:",
        "unit/actions/test_objects.py::test_a_newer_upload_is_never_moved",
    ),
    Guard(
        "a source is deleted by its generation",
        "actions/delete.py",
        "Deletion(ref, own.generation if (own := ctx.file_at(ref)) else None)",
        "Deletion(ref, None)",
        "unit/actions/test_objects.py::test_a_newer_upload_is_never_deleted",
    ),
    Guard(
        "a record is saved by its generation",
        "batch/journal.py",
        "                held.generation = await self._write(self.running(stamped), stamped, held.generation)",
        "                held.generation = await self._write(self.running(stamped), stamped, None)",
        "unit/batch/test_journal.py::test_of_two_that_claim_the_same_record_one_gets_it",
    ),
    Guard(
        "somebody else's lease is respected",
        "batch/journal.py",
        "        if stamp.leased(self._clock.now()) and stamp.owner != self._owner:",
        "        if False:",
        "unit/batch/test_journal.py::test_a_record_under_somebody_elses_lease_is_not_claimed",
    ),
    Guard(
        "an end after the lease asks first",
        "batch/journal.py",
        "        if until <= self._clock.now():\n            await self.save(held)",
        "        if False:\n            await self.save(held)",
        "unit/batch/test_journal.py::test_an_end_that_comes_after_the_lease_does_not_undo_what_others_did_since",
    ),
    Guard(
        "a window is closed before its shards are listed",
        "collect/windows/tender.py",
        "        await self.store.close(name)\n        shards = await self.store.shards(name)",
        "        shards = await self.store.shards(name)\n        await self.store.close(name)",
        "unit/collect/windows/test_large.py::test_a_window_is_closed_before_its_shards_are_listed",
    ),
    Guard(
        "what an earlier sequence took is not taken again",
        "collect/windows/tender.py",
        "    return sorted(one.file() for digest, one in arrivals.items() if digest not in known)",
        "    return sorted(one.file() for digest, one in arrivals.items())",
        "unit/collect/windows/test_large.py::test_files_of_an_earlier_sequence_are_left_out",
    ),
    Guard(
        "a failed job is a failure",
        "batch/stages/land.py",
        "            problem = job_failure(job)\n            if problem is None:",
        "            problem = None\n            if problem is None:",
        "sim/test_trouble.py::test_a_job_that_fails_for_a_moment_is_tried_again_under_a_new_id",
    ),
    Guard(
        "sources are looked at before their load",
        "batch/sources.py",
        "    if info.generation > file.generation:",
        "    if False:",
        "sim/test_trouble.py::test_a_file_overwritten_before_its_load_gives_way_to_the_newer_one",
    ),
    Guard(
        "a name that BigQuery reads as another is refused",
        "batch/load_config.py",
        '    if "//" in uri.removeprefix("gs://"):',
        "    if False:",
        "sim/test_odd_names.py::test_a_file_whose_name_bigquery_reads_as_another_is_refused_and_stays",
    ),
    Guard(
        "one bucket does not decide for the files of others",
        "batch/sources.py",
        "        if not isinstance(error, (BadInput, NotFound) if patient else (BadInput, Fatal)):",
        "        if True:",
        "sim/test_odd_names.py::test_a_file_of_a_bucket_that_is_not_there_fails_alone",
    ),
    Guard(
        "nothing makes way in quarantine",
        "actions/move.py",
        "        if present and one.spare:",
        "        if False:",
        "sim/test_quarantine.py::test_a_bad_file_leaves_earlier_ones_of_its_name_where_they_are",
    ),
    Guard(
        "files that no window can take are refused",
        "collect/windows/manager.py",
        "                if isinstance(error, BadInput) and await self._refused(window, error):",
        "                if False:",
        "sim/test_odd_names.py::test_a_file_that_cannot_have_a_record_is_refused_and_blocks_nobody",
    ),
    Guard(
        "what is left out is shut off by the same look that judges its jobs",
        "batch/stages/directory.py",
        "    following = located.load_job(progress.jobs + len(unsaved) + 1)",
        "    following = located.load_job(progress.jobs + len(await unsaved_loads(located, warehouse)) + 1)",
        "sim/test_interventions.py::test_a_batch_whose_job_is_submitted_while_somebody_looks_cannot_be_left_out",
    ),
    Guard(
        "what is left out is shut off from jobs that its record tells of and nobody has submitted yet",
        "batch/stages/directory.py",
        "    for ref in [*(ref for ref in refs if known[ref] is None), following]:",
        "    for ref in [following]:",
        "sim/test_interventions.py::test_a_replica_whose_clock_is_behind_loads_nothing_of_what_was_left_out",
    ),
    Guard(
        "what is left out is no more than that in the running record before its end is written",
        "collect/success/interventions.py",
        "        await self._journal.save(held)\n        held.record = held.record.enter(Phase.FAILED)",
        "        held.record = held.record.enter(Phase.FAILED)",
        "sim/test_interventions.py::test_a_batch_that_somebody_takes_meanwhile_cannot_be_left_out",
    ),
    Guard(
        "the name of a table fits into that of a record",
        "model/segments.py",
        "    if len(data) <= LONGEST:",
        "    if True:",
        "sim/test_odd_names.py::test_tables_with_long_names_are_loaded_as_others_are",
    ),
    Guard(
        "published rows are proven",
        "warehouse/proof.py",
        "    if rows is not None and int(moved) != rows:",
        "    if False:",
        "unit/warehouse/test_proof.py::test_as_many_rows_are_published_as_were_landed",
    ),
    Guard(
        "a moved file does not start its rule again",
        "batch/sources.py",
        "        if verdict is None and info is not None and guarded(info):",
        "        if False:",
        "sim/test_trouble.py::test_a_move_into_the_watched_prefix_does_not_go_round_in_circles",
    ),
    Guard(
        "a moved file that is put back is a file like any other",
        "actions/objects.py",
        "    return keys if keys and moved_here(info) else set()",
        "    return keys",
        "sim/test_put_back.py::test_a_moved_file_that_is_put_back_is_loaded_once_more",
    ),
    Guard(
        "marks of a move before do not tell of the last one",
        "actions/objects.py",
        '    return info.metadata.get(TARGET_MARK, "").partition(".")[0] == _digest(_move(info.metadata))',
        "    return TARGET_MARK in info.metadata",
        "unit/actions/test_objects.py::test_versions_that_move_one_after_the_other_stop_loops_as_well",
    ),
    Guard(
        "no two rules have one name",
        "rules/loading.py",
        "        ordered = tuple(sorted(told_apart(rules), key=lambda rule: (rule.url, rule.index)))",
        "        ordered = tuple(sorted(rules, key=lambda rule: (rule.url, rule.index)))",
        "sim/test_rule_names.py::test_rules_that_share_a_workflow_do_with_their_files_what_they_say",
    ),
    Guard(
        "the console asks for its token",
        "ops/access.py",
        '        elif path in self._open or self._allowed(request):',
        "        elif True:",
        "unit/ops/test_api.py::test_a_token_guards_everything_but_the_probes",
    ),
    Guard(
        "what is inflated is bounded",
        "formats/inflation.py",
        "        if self.left < 0:",
        "        if False:",
        "unit/formats/test_inflation.py::test_a_compressed_bomb_is_refused_after_what_it_may_have",
    ),
    Guard(
        "the address of a call is checked",
        "gcp/http.py",
        "    found = [address for address in addresses if reach(address)]",
        "    found = addresses",
        "unit/gcp/test_http.py::test_a_name_that_leads_inside_is_refused",
    ),
)  # fmt: skip
