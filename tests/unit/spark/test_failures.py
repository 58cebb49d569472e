"""What a failed call to Spark is taken for."""

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkValueError
from pyspark.errors.exceptions.captured import UnknownException

from ingestd.model.errors import BadInput, Throttled, Transient
from ingestd.spark.session.failures import SessionLost, translate


def fails(error: Exception) -> None:
    raise error


def failed(inner: Exception) -> Exception:
    """What PySpark raises when it wraps a failed call into a complaint about the answer, as `DataFrame.schema` does."""
    try:
        try:
            fails(inner)
        except Exception as error:
            message = {"msg": f"Unable to parse datatype. {error}."}
            raise PySparkValueError(errorClass="CANNOT_PARSE_DATATYPE", messageParameters=message) from error
    except PySparkValueError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("inner", [Py4JError("An error occurred while calling o108.schema"), ConnectionResetError(104)])
def test_a_complaint_about_an_answer_that_never_came_is_a_lost_session(inner: Exception) -> None:
    assert isinstance(translate(failed(inner)), SessionLost)


def test_a_complaint_about_an_answer_that_came_is_not() -> None:
    failure = translate(failed(ValueError("no such type: INTEGRE")))
    assert not isinstance(failure, SessionLost)
    assert isinstance(failure, BadInput | Transient)
    assert "INTEGRE" in str(failure)


def test_what_went_wrong_while_something_else_was_handled_speaks_for_itself() -> None:
    """Our own errors may be raised where an earlier one was caught; only PySpark's wrap what they hide."""
    try:
        try:
            fails(ConnectionResetError(104))
        except ConnectionResetError:
            raise KeyError("a bug of ours")  # noqa: B904
    except KeyError as error:
        assert not isinstance(translate(error), SessionLost)


def test_the_first_cause_is_told_and_decides() -> None:
    """Spark's own message says that a task failed; why stands at the end of Java's stack."""

    def raised(cause: str) -> Exception:
        error = UnknownException.__new__(UnknownException)  # which otherwise asks the JVM
        error._desc = "[TASK_WRITE_FAILED] Task failed while writing rows."
        error._stackTrace = f"Failed\n\tat x.Y\nCaused by: FSError: x\n\tat x.Z\nCaused by: {cause}\n\t... 32 more"
        error._cause = error._origin = None
        return error

    full = translate(raised("IOException: No space left on device"))
    assert isinstance(full, Throttled)
    assert str(full).endswith("Task failed while writing rows. (IOException: No space left on device)")
    assert isinstance(translate(raised("IOException: Stream closed")), Transient)
