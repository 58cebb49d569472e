"""Running the cases on an engine: what it answers otherwise than Google."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.googlesql.cases import Case, differences
from tests.googlesql.engines import Compiled, Engine, FailedError, RefusedError, text

_TOGETHER = 100  # expressions of one query: more take longer to plan than they save


@dataclass(frozen=True, slots=True)
class Answer:
    """`type` is empty where the expression was refused, `value` where it was refused or failed; `why` says so."""

    type: str
    value: str | None
    why: str = ""


def same(case: Case, answer: Answer) -> bool:
    """Whether the engine does what the case says; what has to fail may be refused beforehand."""
    if case.value is None:
        return answer.value is None and (not case.refused or not answer.type)
    if answer.value is None or answer.type != case.type:
        return False
    return answer.value == case.value or (case.type == "FLOAT64" and _near(case.value, answer.value))


def _near(one: str, two: str) -> bool:
    """Functions of FLOAT64 differ in their last digits from one library to the next."""
    if "NULL" in (one, two):
        return False
    return math.isclose(float(one), float(two), rel_tol=1e-14)


def ask(engine: Engine, expressions: Sequence[str]) -> dict[str, Answer]:
    """Each expression's answer; as many as possible are computed by one query."""
    answers: dict[str, Answer] = {}
    compiled: list[tuple[str, Compiled]] = []
    for expression in expressions:
        try:
            compiled.append((expression, engine.compile(expression)))
        except RefusedError as error:
            answers[expression] = Answer("", None, str(error))
    for start in range(0, len(compiled), _TOGETHER):
        batch = compiled[start : start + _TOGETHER]
        for (expression, item), value in zip(batch, engine.answers([item for _, item in batch]), strict=True):
            failed = isinstance(value, FailedError)
            answers[expression] = Answer(
                str(item.type), None if failed else text(value, item.type), str(value) if failed else ""
            )
    return answers


def unexplained(engine: str, cases: Sequence[Case], answers: Mapping[str, Answer]) -> list[str]:
    """Where the engine differs from Google without a reason, and reasons that nothing needs any more."""
    known = differences()
    found = []
    for case in cases:
        answer = answers[case.expression]
        reason = known.get((engine, case.expression))
        wanted = f"{case.type or 'refused'} {case.value or ''}"
        got = f"{answer.type or 'refused'} {answer.value or answer.why[:120]}"
        if reason is None and not same(case, answer):
            found.append(f"{case.expression}: {wanted.strip()}, not {got.strip()}")
        elif reason is not None and manner(case, answer) != reason.how:
            found.append(f"{case.expression}: listed as {reason.how}, but is {manner(case, answer) or 'the same'}")
    return found


def manner(case: Case, answer: Answer) -> str:
    """How the engine differs from the case."""
    if same(case, answer):
        return ""
    if case.refused:
        return "accepts"
    if answer.value is None:
        return "fails" if answer.type else "refuses"
    return "differs"
