"""The judge notices every claim that is not so: each is falsified in turn, in a world where all of them hold."""

from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.sim.checker import Evidence, Input, check
from tests.sim.scenario import Features, draw
from tests.sim.scheduler import simulate
from tests.sim.seeds import FEATURES, quiet

PLAIN = Features(overwrites=0, changes=False)
SEED = 17  # some files are bad, the others are loaded


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    folder: Path = tmp_path_factory.mktemp("judged")
    with quiet():
        evidence = simulate(replace(draw(SEED, PLAIN), load_state=True), folder)
    assert evidence.load_state
    assert any(given.bad for given in evidence.inputs)
    assert sum(not given.bad for given in evidence.inputs) > 1
    return evidence


def _good(evidence: Evidence) -> Iterator[str]:
    return (given.name for given in evidence.inputs if not given.bad)


def _explain_forgets(evidence: Evidence) -> None:
    evidence.explained[next(_good(evidence))].clear()


def _explain_denies(evidence: Evidence) -> None:
    for one in evidence.explained[next(_good(evidence))]:
        one["fate"] = "missing"


def _explain_waits(evidence: Evidence) -> None:
    evidence.explained[next(_good(evidence))][0]["phase"] = "accepted"


def _explain_boasts(evidence: Evidence) -> None:
    bad = next(given.name for given in evidence.inputs if given.bad)
    evidence.explained[bad][0]["fate"] = "loaded"


def _rows_vanish(evidence: Evidence) -> None:
    given = next(given for given in evidence.inputs if not given.bad)
    for rows in evidence.rows.values():
        for number in given.ids:
            del rows[number]


def _row_doubles(evidence: Evidence) -> None:
    next(rows for rows in evidence.rows.values() if rows).update([next(given.ids[0] for given in evidence.inputs)])


def _end_is_not_told(evidence: Evidence) -> None:
    assert evidence.load_state
    evidence.load_state[:] = [row for row in evidence.load_state if not row["final"]]


def _other_end_is_told(evidence: Evidence) -> None:
    assert evidence.load_state
    next(row for row in evidence.load_state if row["final"])["state"] = "superseded"


def _nobody_has_the_batch(evidence: Evidence) -> None:
    assert evidence.load_state
    evidence.load_state.append({**evidence.load_state[0], "event_id": "1"})


def _both_miscount(evidence: Evidence) -> None:
    """Journal and load state agree, and are wrong."""
    assert evidence.load_state
    row = next(row for row in evidence.load_state if row["final"] and row["rows_loaded"])
    row["rows_loaded"] += 1
    for name, data in evidence.objects.items():
        if name.startswith("journal/Done/") and (record := orjson.loads(data))["EventID"] == row["event_id"]:
            evidence.objects[name] = orjson.dumps({**record, "Rows": row["rows_loaded"]})


def _person_left_it_out(evidence: Evidence) -> None:
    given = next(given for given in evidence.inputs if not given.bad)
    evidence.left_out.add((given.name, given.generation))


@pytest.mark.parametrize(
    ("falsify", "noticed"),
    [
        (_explain_forgets, "explain does not know"),
        (_explain_denies, r"are there, and explain says \['missing'\]"),
        (_explain_waits, "explain says that .* is under way"),
        (_explain_boasts, r"explain says that .* was loaded \("),
        (_rows_vanish, r"explain says that .* was loaded .*, and its rows are not there"),
        (_rows_vanish, "the load state counts .* rows"),
        (_row_doubles, "G2: row .* is there 2 times"),
        (_end_is_not_told, "does not have the end of batch"),
        (_other_end_is_told, "the load state says that batch .* is superseded"),
        (_nobody_has_the_batch, "the load state has batch 1, the journal has not"),
        (_both_miscount, "the load state counts"),
        (_person_left_it_out, "was left out of its table by a person, and its rows are there"),
        (_person_left_it_out, r"was left out of its table by a person, and explain says"),
    ],
)
def test_a_claim_that_is_not_so_is_noticed(truth: Evidence, falsify: Callable[[Evidence], None], noticed: str) -> None:
    evidence = deepcopy(truth)
    check(evidence)
    falsify(evidence)
    with pytest.raises(AssertionError, match=noticed):
        check(evidence)


def test_the_judge_counts_every_row_once(truth: Evidence) -> None:
    rows = sum(truth.rows.values(), Counter())
    loaded = [one for one in truth.inputs if not one.bad and (one.name, one.generation) not in truth.left_out]
    assert rows == Counter(number for given in loaded for number in given.ids)


@pytest.fixture(scope="module")
def overwritten(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Many names are written again, some of them after the batch of the generation before had ended."""
    folder: Path = tmp_path_factory.mktemp("overwritten")
    with quiet():
        return simulate(draw(14, replace(FEATURES, overwrites=0.8)), folder)


def _loses(evidence: Evidence, given: Input, fate: str) -> None:
    """Its rows are gone, and everybody says the same of it."""

    def falsified(data: bytes) -> bytes:
        if given.name.encode() not in data:
            return data
        record: dict[str, Any] = orjson.loads(data)
        for place, file in enumerate(record["Files"]):
            if file["URL"].endswith(f"/{given.name}") and int(file["Generation"]) == given.generation:
                record["Progress"]["Aside"][str(place)] = {"Fate": fate, "Why": "falsified"}
        return orjson.dumps(record)

    for rows in evidence.rows.values():
        for number in given.ids:
            del rows[number]
    for name, data in evidence.objects.items():
        if name.startswith("journal/Done/"):
            evidence.objects[name] = falsified(data)
    evidence.ends = [(at, falsified(data)) for at, data in evidence.ends]
    for one in evidence.explained[given.name]:
        if one["generation"] == given.generation:
            one["fate"] = fate


def _replaced(evidence: Evidence, *, after_its_end: bool) -> Input:
    """A generation that was loaded, and replaced after its batch had ended; or before."""
    for given in evidence.inputs:
        name, generation = f"/{given.name}".encode(), f"{given.generation}".encode()
        ended = min((at for at, data in evidence.ends if name in data and generation in data), default=inf)
        replaced = evidence.replaced.get((given.name, given.generation))
        there = any(rows[given.ids[0]] for rows in evidence.rows.values())
        if replaced and there and (ended < replaced) is after_its_end:
            return given
    raise AssertionError("there is none: choose another seed")


@pytest.mark.parametrize("fate", ["superseded", "missing", "failed", "refused"])
def test_what_was_replaced_after_its_batch_had_ended_has_no_excuse(overwritten: Evidence, fate: str) -> None:
    evidence = deepcopy(overwritten)
    check(evidence)
    given = _replaced(evidence, after_its_end=True)
    if fate == "refused":  # of one overwritten file among others a load's bytes tell what it read
        evidence.inputs = tuple(one for one in evidence.inputs if one.name == given.name)
    _loses(evidence, given, fate)
    with pytest.raises(AssertionError, match=rf"was there until .*, its batch ended as {fate} at .* rows are missing"):
        check(evidence)


def test_what_was_replaced_before_its_batch_had_ended_may_be_stood_for_by_the_newer(overwritten: Evidence) -> None:
    evidence = deepcopy(overwritten)
    given = _replaced(evidence, after_its_end=False)
    _loses(evidence, given, "superseded")
    check(evidence)


def test_the_end_of_a_batch_that_left_the_file_to_another_does_not_count(overwritten: Evidence) -> None:
    evidence = deepcopy(overwritten)
    given = _replaced(evidence, after_its_end=True)
    _loses(evidence, given, "ignored")
    check(evidence)
