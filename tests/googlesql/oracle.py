"""`make oracle`: both front ends beside Google's own analyzer, and the table of cases beside Google's own values.

Three questions. Does Google's reference implementation still answer what the cases say? Do both front ends agree with
its analyzer on cases that nobody wrote: the known ones with other values in them? And does the local BigQuery compute
the same for those? What is refused by name is counted, not held against an engine; a type, a value or an acceptance
that differs is, unless `differences.txt` has it. With `--spark` Spark computes as well, which takes minutes.

    python -m tests.googlesql.oracle --python VENV/bin/python [--seed 7] [--made 2000] [--spark] [--fill]

`--fill` writes Google's answers into the tables, for lines that have an expression alone.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.googlesql.cases import HERE, Case, cases, differences, forms, patterns
from tests.googlesql.compare import Answer, ask, manner, same
from tests.googlesql.engines import RefusedError, Spark, local_bigquery

# One of each type, and what is special about some.
_POOL = (
    "0", "1", "-7", "9223372036854775807", "2.5", "-0.5", "1e300", "CAST('nan' AS FLOAT64)", "NUMERIC '1.5'",
    "NUMERIC '-0.000000001'", "BIGNUMERIC '2.5'", "TRUE", "'abc'", "''", "'é😀'", "'2024-02-29'", "'12'",
    "b'\\xff\\x00'",
    "DATE '2024-02-29'", "DATE '0001-01-01'", "TIME '12:34:56.789'", "DATETIME '2024-02-29 23:59:59.999999'",
    "TIMESTAMP '2024-02-29 23:59:59.999999+00'", "TIMESTAMP '1969-12-31 23:59:59.5+00'", "[1, 2]", "['a', NULL]",
    "STRUCT(1 AS a)", "JSON '{\"a\": 1}'", "NULL", "CAST(NULL AS STRING)", "CAST(NULL AS INT64)",
)  # fmt: skip
_MARKED = re.compile("«(.*?)»")


def reference(python: str, folder: str, expressions: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What Google says to each; the package is asked in a process of its own environment."""
    asked = "\n".join(map(json.dumps, expressions)) + "\n"
    script = str(HERE / "reference.py")
    answer = subprocess.run([python, script, folder], input=asked, capture_output=True, text=True, check=False)
    lines = answer.stdout.splitlines()
    if answer.returncode or len(lines) != len(expressions):
        sys.exit(f"the reference implementation ended early:\n{answer.stderr[-2000:]}")
    return dict(zip(expressions, map(json.loads, lines), strict=True))


def as_case(page: str, expression: str, said: Mapping[str, Any]) -> Case:
    return Case(page, expression, said.get("type", ""), said.get("value"))


def made(seed: int, count: int) -> list[str]:
    """Known expressions with other values in them."""
    chance = random.Random(seed)
    written = [
        line.split(" ⇒ ")[0]
        for path in sorted((HERE / "cases").glob("*.txt"))
        for line in path.read_text().splitlines()
        if "«" in line
    ]
    found: dict[str, None] = {}
    while len(found) < count:
        text = chance.choice(written)
        chosen = chance.randrange(len(_MARKED.findall(text)))
        places = iter(range(99))

        def other(match: re.Match[str], chosen: int = chosen, places: Iterator[int] = places) -> str:
            return f"«{chance.choice(_POOL)}»" if next(places) == chosen else match[0]

        found[chance.choice(forms(_MARKED.sub(other, text)))] = None
    return list(found)


def table(told: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Cases that Google answers otherwise by now."""
    known = differences()
    wrong = []
    for case in cases():
        google = as_case(case.page, case.expression, told[case.expression])
        answer = Answer(google.type, google.value, "")
        if not same(case, answer) and ("reference", case.expression) not in known:
            wrong.append(
                f"{case.expression}: the table has {case.type} {case.value}, Google {google.type} {google.value}"
            )
    return wrong


def front_ends(told: Mapping[str, Mapping[str, Any]], expressions: Sequence[str], counted: Counter[str]) -> list[str]:
    """What the two front ends say otherwise about expressions that nobody wrote."""
    wrong = []
    spark = Spark()
    with local_bigquery() as engine:
        local = ask(engine, expressions)
    for expression in expressions:
        google = as_case("made", expression, told[expression])
        how = manner(google, local[expression])
        counted[f"local BigQuery {how or 'agrees'}"] += 1
        if how in ("differs", "accepts", "fails") and not _is_listed("bigquery", how, expression):
            wrong.append(_told("local BigQuery", how, google, local[expression]))
        answer = _translated(spark, expression, google)
        how = manner(google, answer)
        counted[f"Spark {how or 'agrees'}"] += 1
        if how in ("differs", "accepts") and not _is_listed("spark", how, expression):
            wrong.append(_told("Spark", how, google, answer))
    return wrong


def _is_listed(engine: str, how: str, expression: str) -> bool:
    return any(
        item.engine == engine and item.how == how and re.search(item.expression, expression) for item in patterns()
    )


def _translated(spark: Spark, expression: str, google: Case) -> Answer:
    """Spark's type; its value is taken for right here."""
    try:
        return Answer(str(spark.compile(expression).type), google.value)
    except RefusedError as error:
        return Answer("", None, str(error))


def _told(engine: str, how: str, google: Case, answer: Answer) -> str:
    wanted = f"{google.type or 'refused'} {google.value if google.value is not None else ''}".strip()
    got = f"{answer.type or 'refused'} {answer.value if answer.value is not None else answer.why[:100]}".strip()
    return f"{engine} {how}: {google.expression}\n    Google: {wanted}\n    here:   {got}"


@contextmanager
def _session() -> Iterator[Any]:
    from ingestd.settings import Spark as Settings
    from ingestd.spark.start import open_engine

    with tempfile.TemporaryDirectory() as folder:
        opened = open_engine(Settings(master="local[2]", heap=1536 * 1024**2, scratch=Path(folder)))
        try:
            yield opened.session.newSession()
        finally:
            opened.close()


def computed(told: Mapping[str, Mapping[str, Any]], expressions: Sequence[str], counted: Counter[str]) -> list[str]:
    """What Spark computes otherwise, of the table's constants as well."""
    known = differences()
    wrong = []
    with _session() as session:
        answers = ask(Spark(session), expressions)
    for expression in expressions:
        google = as_case("made", expression, told[expression])
        how = manner(google, answers[expression])
        counted[f"Spark, computed: {how or 'agrees'}"] += 1
        listed = ("spark", expression) in known or _is_listed("spark", how, expression)
        if how in ("differs", "accepts", "fails") and not listed:
            wrong.append(_told("Spark", how, google, answers[expression]))
    return wrong


def fill(python: str, folder: str) -> None:
    """Google's answers behind the expressions that have none yet."""
    for path in sorted((HERE / "cases").glob("*.txt")):
        lines = path.read_text().splitlines()
        new = [line for line in lines if line and not line.startswith("## ") and " ⇒ " not in line]
        if not new:
            continue
        told = reference(python, folder, list(dict.fromkeys(form for line in new for form in forms(line))))
        path.write_text("".join(f"{_filled(line, told) if line in new else line}\n" for line in lines))


def _filled(line: str, told: Mapping[str, Mapping[str, Any]]) -> str:
    answers = {form: as_case("", form, told[form]) for form in forms(line)}
    shown = {form: _shown(case) for form, case in answers.items()}
    if len(set(shown.values())) == 1:
        return f"{line} ⇒ {next(iter(shown.values()))}"
    if {"refused"} < set(shown.values()) and all(case.value is None for case in answers.values()):
        return f"{line} ⇒ {next(text for text in shown.values() if text != 'refused')}"
    return "\n".join(f"{form} ⇒ {text}" for form, text in shown.items())


def _shown(case: Case) -> str:
    return "refused" if case.refused else f"{case.type} ⇒ {'error' if case.value is None else case.value}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Both front ends beside Google's own analyzer.")
    parser.add_argument("--python", required=True, help="of the environment that has the package zetasql")
    parser.add_argument("--folder", default="", help="where the compiled module is kept (beside that Python, else)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--made", type=int, default=2000, help="expressions to make up")
    parser.add_argument("--spark", action="store_true", help="compute on Spark as well")
    parser.add_argument("--fill", action="store_true", help="write Google's answers into the tables")
    options = parser.parse_args()
    folder = options.folder or str(Path(options.python).parent.parent)
    if options.fill:
        fill(options.python, folder)
        return
    written = [case.expression for case in cases()]
    invented = made(options.seed, options.made)
    told = reference(options.python, folder, list(dict.fromkeys([*written, *invented])))
    counted: Counter[str] = Counter()
    wrong = table(told) + front_ends(told, invented, counted)
    if options.spark:
        wrong += computed(told, list(dict.fromkeys([*written, *invented])), counted)
    print("\n".join(wrong))
    print(f"{len(written)} cases and {len(invented)} made expressions: {len(wrong)} unlisted differences")
    print(", ".join(f"{name} {number}" for name, number in sorted(counted.items())))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
