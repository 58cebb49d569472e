"""Which keys hold a secret, going by their names, and what is shown in its place.

A name is a guess, made on the safe side: what is taken for a secret and is none is hidden, and nothing else happens.
"""

import re

STARS = "********"

_NAMES = re.compile(
    r"token|secret|passw|pwd|credential|private|authori[sz]ation|signature|cookie|webhook"
    r"|(?:api|access|account|auth|shared|storage|subscription|function|x)[-_. ]?keys?\b|^key$",
    re.IGNORECASE,
)
_FILES = ("_file", ".file", "keyfile", "tokenfile")


def names_a_secret(key: str) -> bool:
    """Whether what stands under this key is secret; the name of a file that holds it is not."""
    return bool(_NAMES.search(key)) and not key.lower().endswith(_FILES)
