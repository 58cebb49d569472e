"""What went wrong in Spark, as one of the four kinds: mapped here once.

- The session is gone (dead JVM, broken gateway or channel): `SessionLost`, a `Transient`: another session may do it.
- The statement or the data under it is wrong (analysis, cast, arithmetic): `BadInput`. Trying again changes nothing.
- No room on disk: `Throttled`, since room comes back when others finish.
- Spark's Python workers have not what the daemon has: `Fatal`, until somebody installs it there.
- Anything else (lost executors, memory, failed fetches, cancelled jobs): `Transient`, bounded by the batch's attempts.
"""

import errno
import re
from typing import Any

from ingestd.model.errors import BadInput, Fatal, IngestError, Throttled, Transient


class SessionLost(Transient):
    """The session died or was given up under the call."""


# SQLSTATE classes of statements and values that are wrong: cardinality, data, syntax and access rules, not
# supported, raised by the statement itself.
_WRONG = ("21", "22", "42", "0A", "P0")
_WRONG_NAMES = (
    "AnalysisException",
    "ParseException",
    "ArithmeticException",
    "ArrayIndexOutOfBoundsException",
    "DateTimeException",
    "NumberFormatException",
    "SparkUpgradeException",
    "UnsupportedOperationException",
)
_GONE = ("ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError", "EOFError", "Py4JNetworkError")
_STOPPED = ("SparkContext was shut down", "stopped SparkContext", "SparkContext is stopped", "has been stopped")
_ANOTHER = ("No active Spark session found",)  # what PySpark says when its server is not the one it was
_GRPC_GONE = ("UNAVAILABLE", "INVALID_HANDLE.SESSION", "SESSION_CLOSED", "SESSION_NOT_FOUND", "SESSION_CHANGED")
_NO_ROOM = ("No space left on device", "Disk quota exceeded")
_OTHER_PYTHON = ("ModuleNotFoundError: No module named", "[PYTHON_VERSION_MISMATCH]")
_PYTHON_STACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n)*")
_CHANNEL = re.compile(r'<_\w+ of RPC that terminated with:\s*status = StatusCode\.(\w+)\s*details = "(.*)"')
_CAUSE = re.compile(r"^\s*Caused by: (.+)$", re.MULTILINE)
_STACKS = ("\n\tat ", "\nDriver stacktrace", "\nJVM stacktrace")
_LONGEST = 2000


def translate(error: BaseException) -> IngestError:
    """The failure of a call as the daemon speaks of it."""
    if isinstance(error, IngestError):
        return error
    text = explain(error)
    name = type(error).__name__
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Throttled(f"no room for Spark's files: {text}")
    from_spark = _from_spark(error)
    if name in _GONE or _silent(error, text) or (from_spark and _hides_silence(error)):
        return SessionLost(f"the Spark session is gone: {text}")
    if from_spark and _wrong(error, name):
        return BadInput(text)  # before anything that goes by words: this text quotes the data
    if from_spark and any(sign in text for sign in (*_STOPPED, *_GRPC_GONE, *_ANOTHER)):
        return SessionLost(f"the Spark session is gone: {text}")
    if any(sign in text for sign in _NO_ROOM):
        return Throttled(f"no room for Spark's files: {text}")
    if from_spark and any(sign in text for sign in _OTHER_PYTHON):
        return Fatal(f"Spark's Python workers need this version of ingestd, on this version of Python: {text}")
    if isinstance(error, ImportError):
        return Fatal(f"what Spark needs is not installed beside the daemon: {text}")
    if from_spark:
        return Transient(f"Spark: {text}")
    return Fatal(f"{name}: {text}")


def _silent(error: BaseException, text: str) -> bool:
    """Whether nobody is there who could have answered."""
    if isinstance(error, ConnectionError | EOFError) or type(error).__name__ == "Py4JNetworkError":
        return True
    if type(error).__name__ == "Py4JError":
        return True  # no exception came from Java, so Java did not answer
    # PySpark's own view of a session that was taken down meanwhile
    return isinstance(error, AttributeError | AssertionError) and "_jsc" in text


def _hides_silence(error: BaseException) -> bool:
    """Whether PySpark complains of an answer (a schema it cannot parse, say) that never came."""
    inner = error.__cause__ or error.__context__
    for _ in range(8):
        if inner is None:
            return False
        if _silent(inner, explain(inner)):
            return True
        inner = inner.__cause__ or inner.__context__
    return False


def explain(error: BaseException) -> str:
    """What the message says, without the stacks of Java and of Spark's Python workers."""
    text = getattr(error, "_desc", None) or getattr(error, "_message", None)
    if not text:
        try:
            text = str(error)
        except Exception:  # noqa: BLE001 - PySpark asks the JVM for parts of the text, which may be gone
            text = type(error).__name__
    causes = _CAUSE.findall(getattr(error, "_stackTrace", None) or text)
    for mark in _STACKS:
        text = text.partition(mark)[0]
    text = _PYTHON_STACK.sub("", text)
    if causes and causes[-1] not in text:  # the first of all, which the message of the last seldom tells
        text = f"{text} ({causes[-1]})"
    if channel := _CHANNEL.search(text):  # gRPC says the same twice, at length
        text = f"{channel[1]}: {channel[2]}"
    return " ".join(text.split())[:_LONGEST] or type(error).__name__


def _from_spark(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j", "grpc")


def _wrong(error: BaseException, name: str) -> bool:
    if name in _WRONG_NAMES:
        return True
    state = _sql_state(error)
    return state is not None and state[:2] in _WRONG


def _sql_state(error: Any) -> str | None:
    """The SQLSTATE of the error or of what caused it: a failed stage only wraps what went wrong in it."""
    for _ in range(8):
        try:
            state = error.getSqlState()
        except Exception:  # noqa: BLE001 - not every error has one, and asking may need a JVM that is gone
            state = None
        if state and state[:2] != "XX":
            return str(state)
        error = getattr(error, "_cause", None) or getattr(error, "__cause__", None)
        if error is None:
            return None
    return None
