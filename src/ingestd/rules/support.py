"""Fields that are read and checked but not acted on yet.

One line per field; whoever makes a field work deletes its line. A rule that uses one is refused at load: half a rule
carried out is worse than none.
"""

from collections.abc import Iterator

from ingestd.rules.schema import Engine, RuleSpec

NOT_YET: dict[str, str] = {
    "Dest.SideInputs": "joining side inputs",
}
"""Rule field → what is missing."""

BIGQUERY_DOES = frozenset(field for field in NOT_YET if field.startswith("Dest."))
"""Those of them that work where the rule says `Engine: bigquery`."""

ACTIONS_NOT_YET: dict[str, str] = {}
"""Action → what is missing."""


def unsupported(spec: RuleSpec) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every field the rule uses that is not acted on yet: its key path and a message."""
    written = spec.model_dump(by_alias=True, exclude_defaults=True)
    for field, missing in NOT_YET.items():
        path = tuple(field.split("."))
        if spec.engine is Engine.BIGQUERY and field in BIGQUERY_DOES:
            continue
        if _given(written, path):
            yield path, _message(field, missing)
    for where, action in spec.actions():
        if action.name in ACTIONS_NOT_YET:
            yield tuple(where.split(".")), _message(f"action {action.name}", ACTIONS_NOT_YET[action.name])


def _given(written: object, path: tuple[str, ...]) -> bool:
    for key in path:
        if not isinstance(written, dict) or key not in written:
            return False
        written = written[key]
    return bool(written) or isinstance(written, dict)


def _message(field: str, missing: str) -> str:
    return f"{field} is not supported yet ({missing})"
