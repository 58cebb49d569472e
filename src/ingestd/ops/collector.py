"""Python's cyclic garbage collector, set for a process that holds many small values and makes few cycles.

Its defaults look at values that live whenever some hundred more were made than freed, and now and then at all of
them: the modules of the daemon and the files of its windows. What is there after the start stays for good and is not
looked at again; what comes later is looked at rarely. Values without cycles, which nearly all are, are freed at once by
their count, as ever.
"""

import gc

_YOUNG, _MIDDLE, _OLD = 50_000, 20, 20


def settle() -> None:
    """To be called once, when everything that stays has been built."""
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
