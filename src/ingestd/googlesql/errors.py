"""What is wrong with a text that should be GoogleSQL."""


class SqlError(ValueError):
    """Not GoogleSQL, or GoogleSQL without a meaning; says why, and where it is known also where."""


class UnexpectedToken(SqlError):  # noqa: N818 - reads as what was found
    """A word or sign that cannot stand there; `wanted` is what could, where that is one thing."""

    def __init__(self, message: str, pos: int, found: str, wanted: str) -> None:
        super().__init__(message)
        self.pos = pos
        self.found = found  # nothing at the end of the text
        self.wanted = wanted


class UnsupportedSql(SqlError):  # noqa: N818 - reads as what was found
    """GoogleSQL that is not read here; `feature` is its name."""

    def __init__(self, feature: str) -> None:
        super().__init__(f"{feature} is not supported")
        self.feature = feature
