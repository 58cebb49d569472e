"""The rule that is pinned in a batch's record, as its typed self."""

from functools import lru_cache

import orjson

from ingestd.batch.record import Record
from ingestd.rules.rule import stored_spec
from ingestd.rules.schema import RuleSpec


def rule_of(record: Record) -> RuleSpec:
    return _parsed(orjson.dumps(record.rule))


@lru_cache(maxsize=256)
def _parsed(rule: bytes) -> RuleSpec:
    return stored_spec(orjson.loads(rule))
