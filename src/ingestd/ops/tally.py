"""A counter for the hottest paths: plain integers, read by Prometheus only when it scrapes.

`prometheus_client.Counter.inc` takes a lock each time, which shows at tens of thousands of events per second. The
event loop is the only writer here, so a dict is enough.
"""

from collections.abc import Iterator, Sequence

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector


class Tally(Collector):
    def __init__(
        self, name: str, help_: str, label: str, values: Sequence[str], registry: CollectorRegistry = REGISTRY
    ) -> None:
        self._name = name
        self._help = help_
        self._label = label
        self.counts = dict.fromkeys(values, 0)
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._help, labels=[self._label])
        for value, count in self.counts.items():
            family.add_metric([value], count)
        yield family
