"""A preparer of numbered rows: the semantics of the real one, on the simulated bucket, without Spark.

It reads the pinned generations, sets bad files aside (or bad rows, or fails), keeps one row per key, splits by
`MOD(id, n)`, writes NDJSON under the attempt's folder, and the manifest last, only if there is none. Every write may be
the last thing its daemon does, and `mishap` may strike at any of them.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import orjson

from ingestd.model.errors import BadInput, NotFound, PreconditionFailed, Transient
from ingestd.model.objects import ABSENT, ObjectRef
from ingestd.model.preparation import BadData, BadFile, Output, Prepared, PrepareRequest, Unmatched
from ingestd.ports import ObjectStore
from ingestd.spark.files import manifest

_CONDITION = re.compile(r"MOD\(id, (\d+)\) = (\d+)")
_ROWS_PER_FILE = 3
HOME = -1


class PlainPreparer:
    def __init__(self, store: ObjectStore, mishap: Callable[[], bool] = lambda: False, seconds: float = 0.0) -> None:
        self._store = store
        self._mishap = mishap
        self._seconds = seconds

    async def prepare(self, request: PrepareRequest) -> Prepared:
        if (known := await self._manifest(request)) is not None:
            return known
        await asyncio.sleep(self._seconds)
        bad: list[BadFile] = []
        rows: list[dict[str, Any]] = []
        rejected: list[bytes] = []
        counts: dict[int, int] = {}
        for index, file in enumerate(request.files):
            try:
                data, _ = await self._store.read(file.ref, generation=file.generation)
            except NotFound:
                bad.append(BadFile(index, "gone", missing=True))
                continue
            good, wrong = _lines(data)
            if wrong and request.bad_data is BadData.FAIL:
                raise BadInput(f"{file.ref}: line {wrong[0][0]}: {wrong[0][1]}", (file.ref.url,))
            if wrong:
                loaded = request.bad_data is BadData.QUARANTINE_ROWS
                line, why, _ = wrong[0]
                bad.append(BadFile(index, why, "Field: id" in why, line, "", len(wrong), loaded=loaded))
                if not loaded:
                    continue
                rejected += [text for _, _, text in wrong]
            rows += good
            counts[index] = len(good)
        kept = list({row["id"]: row for row in rows}.values()) if request.shaping.unique_columns else rows
        outputs, left_out = await self._outputs(request, kept)
        aside = await self._write(request, "rejected-0.json", rejected) if rejected else ""
        made = Prepared(
            attempt=request.attempt,
            format="NEWLINE_DELIMITED_JSON",
            schema=request.schema,
            outputs=outputs,
            bad=tuple(bad),
            rows_read=len(rows),
            rows_left_out={"duplicate": len(rows) - len(kept), "unmatched": left_out},
            rows_per_file=counts,
            rejected=(aside,) if aside else (),
        )
        self._trouble()
        try:
            await self._store.create(request.folder / manifest.NAME, manifest.encode(made), if_generation=ABSENT)
        except PreconditionFailed:
            known = await self._manifest(request)
            assert known is not None
            return known
        return made

    async def discard(self, folder: ObjectRef) -> None:
        async for info in self._store.list(folder / ""):
            await self._store.delete(info.ref)

    async def _outputs(self, request: PrepareRequest, rows: list[dict[str, Any]]) -> tuple[tuple[Output, ...], int]:
        shaping = request.shaping
        by_branch: dict[int, list[dict[str, Any]]] = {}
        left_out = 0
        for row in rows:
            branch = next((n for n, one in enumerate(shaping.branches) if _fits(one.condition, row["id"])), HOME)
            if shaping.branches and branch == HOME and shaping.unmatched is Unmatched.REFUSE:
                raise BadInput("a row fits no mapping of Schema.Split, and the rule refuses such rows")
            if shaping.branches and branch == HOME and shaping.unmatched is Unmatched.DROP:
                left_out += 1
            else:
                by_branch.setdefault(branch, []).append(row)
        outputs = []
        for branch, own in sorted(by_branch.items()):
            uris = []
            for first in range(0, len(own), _ROWS_PER_FILE):
                lines = [orjson.dumps(row) for row in own[first : first + _ROWS_PER_FILE]]
                uris.append(await self._write(request, f"{branch}-{first}.json", lines))
            outputs.append(Output(branch, tuple(uris), len(own), 0))
        return tuple(outputs), left_out

    async def _write(self, request: PrepareRequest, name: str, lines: list[bytes]) -> str:
        self._trouble()
        ref = request.folder / f"{request.attempt}-{name}"
        await self._store.create(ref, b"\n".join(lines))
        return ref.url

    async def _manifest(self, request: PrepareRequest) -> Prepared | None:
        try:
            data, _ = await self._store.read(request.folder / manifest.NAME)
        except NotFound:
            return None
        return manifest.decode(data)

    def _trouble(self) -> None:
        if self._mishap():
            raise Transient("the session is gone")


def _lines(data: bytes) -> tuple[list[dict[str, Any]], list[tuple[int, str, bytes]]]:
    good: list[dict[str, Any]] = []
    wrong: list[tuple[int, str, bytes]] = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            row = orjson.loads(line)
        except ValueError as error:
            wrong.append((number, str(error), line))
            continue
        if type(row.get("id")) is int:
            good.append(row)
        else:
            why = f"Could not convert value to integer. Field: id; Value: {row.get('id')}"
            wrong.append((number, why, line))
    return good, wrong


def _fits(condition: str, number: int) -> bool:
    match = _CONDITION.search(condition)
    assert match, f"not understood: {condition}"
    return number % int(match[1]) == int(match[2])
