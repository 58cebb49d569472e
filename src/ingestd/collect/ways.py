"""Which way a file takes to its batch: the one place that chooses.

| the file                                    | goes                                                          |
|---------------------------------------------|---------------------------------------------------------------|
| means something to the `_SUCCESS` convention| to `success`: no rule sees it                                 |
| its rule has a window                       | to `windows`, together with others                            |
| its table's budget of loads runs short      | to `windows`, for as long as that lasts (`windows.pacing`)    |
| any other that a rule wants                 | to `alone`: a batch of its own                                |
"""

from ingestd.collect.alone import Alone
from ingestd.collect.success.arrivals import SuccessArrivals
from ingestd.collect.windows.manager import Windows
from ingestd.intake.notifications import ObjectEvent
from ingestd.intake.receipts import Receipt
from ingestd.intake.router import Work
from ingestd.rules.rule import Rule


class Ways:
    """`ingestd.intake.router.Collector`, made of the three."""

    def __init__(self, alone: Alone, windows: Windows, success: SuccessArrivals | None) -> None:
        self._alone = alone
        self._windows = windows
        self._success = success

    def deliver(self, event: ObjectEvent, rule: Rule | None, receipt: Receipt) -> Work | None:
        if rule is None:
            assert self._success is not None, "files are taken without a rule only by convention"
            return self._success.deliver(event, rule, receipt)
        together = rule.spec.batch is not None or self._windows.paced(event, rule)
        return (self._windows if together else self._alone).deliver(event, rule, receipt)
