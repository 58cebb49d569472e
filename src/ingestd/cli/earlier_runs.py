"""What became of files that were taken as duplicates: an earlier run had them, and may not have loaded them.

Only the ledger can tell. A file counts as loaded when a batch says that its rows are there, and in no other case.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ingestd.ledger.known import Candidate, Standing
from ingestd.ledger.parts import explainer, known_files
from ingestd.rules.matching import Match
from ingestd.rules.rule import Rule

if TYPE_CHECKING:
    from ingestd.app import App
    from ingestd.gcp.connect import Clients
    from ingestd.model.objects import ObjectInfo

_EXPLAINED = 20  # each takes a few listings; of the others it is said how they stand

_WHY = {
    Standing.PENDING: "it is still under way in a batch of another run; run the same command again to hear its end",
    Standing.FAILED: "an earlier run could not load it",
    Standing.SET_ASIDE: "an earlier run set it aside as bad",
    Standing.REFUSED: "an earlier run refused it",
    Standing.PASSED_OVER: "it was replaced or deleted, or a rule's own move put it there",
    Standing.UNKNOWN: "nobody has taken it: no record of it is left; run the same command again",
}
_OVER = (Standing.FAILED, Standing.SET_ASIDE)  # their end is known, and another run changes nothing about it


class EarlierRuns:
    def __init__(self, app: "App", clients: "Clients", rule: Rule) -> None:
        self._rule = rule
        parts = (app.settings, clients.store, clients.warehouse, app.clock)
        self._known = known_files(*parts, "load")
        self._explainer = explainer(*parts, load_state=False)

    async def not_loaded(self, objects: "Sequence[ObjectInfo]") -> list[tuple[str, str]]:
        """Those whose rows are not there, each with the reason."""
        standings = await self._known.look_up([Candidate(info, self._rule) for info in objects])
        bad = [(one, how) for one, how in zip(objects, standings, strict=True) if how is not Standing.LOADED]
        return [
            (info.ref.url, await self._why(info, how) if index < _EXPLAINED else _WHY[how])
            for index, (info, how) in enumerate(bad)
        ]

    async def _why(self, info: "ObjectInfo", how: Standing) -> str:
        told = _WHY[how]
        if how not in _OVER:
            return told
        explained = await self._explainer.explain(info.ref, Match(self._rule))
        mine = [one for one in explained.history if one.generation == info.generation]
        reasons = [(one.unloaded.why if one.unloaded else "") or one.error for one in mine]
        reason = next((reason for reason in reversed(reasons) if reason), "")
        return f"{told}: {reason}; upload it again to have it tried again" if reason else told
