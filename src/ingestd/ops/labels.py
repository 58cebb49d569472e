"""Label values that users name (rules, tables), bounded: a thousand rules must not become a million series."""

OTHER = "other"


class BoundedLabel:
    """The first `limit` names are themselves; every later one is `other`."""

    def __init__(self, limit: int = 200) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(name)
        return name
