"""One stream, one format: libraries' own log lines come out as the daemon's do."""

import json
import logging
import subprocess
import sys

import pytest
import structlog

from ingestd import __version__
from ingestd.ops.logging import configure


def test_a_librarys_warning_is_a_json_line_in_cloud_loggings_fields(capfd: pytest.CaptureFixture[str]) -> None:
    configure("json")
    logging.getLogger("urllib3.connectionpool").warning("Connection pool is full: %s", "127.0.0.1")
    line = json.loads(capfd.readouterr().err)
    assert line["severity"] == "WARNING"
    assert line["message"] == "Connection pool is full: 127.0.0.1"
    assert line["logger"] == "urllib3.connectionpool"
    assert line["time"].endswith("Z")


def test_an_exception_nobody_caught_in_a_library_keeps_its_traceback_on_one_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    configure("json")
    try:
        int("odd")
    except ValueError:
        logging.getLogger("asyncio").exception("Task exception was never retrieved")
    line = json.loads(capfd.readouterr().err)
    assert line["severity"] == "ERROR"
    assert "invalid literal" in line["stack_trace"]


def test_a_terminals_format_is_readable_text() -> None:
    code = (
        "import logging; from ingestd.ops.logging import configure; configure('console'); "
        "import structlog; structlog.get_logger().info('batch.done', rows=2); logging.getLogger('lib').error('oh')"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.splitlines()
    assert "batch.done" in said[0]
    assert "rows=2" in said[0]
    assert "oh" in said[1]
    assert not said[0].startswith("{")


def test_an_error_has_what_error_reporting_asks_for_and_a_warning_has_not(capfd: pytest.CaptureFixture[str]) -> None:
    configure("json")
    log = structlog.get_logger()
    log.warning("call.retried")
    try:
        int("odd")
    except ValueError:
        log.exception("batch.broke", event_id="1")
    warning, error = map(json.loads, capfd.readouterr().err.splitlines())
    assert "@type" not in warning
    assert error["@type"].endswith("clouderrorreporting.v1beta1.ReportedErrorEvent")
    assert error["serviceContext"] == {"service": "ingestd", "version": __version__}
    assert error["stack_trace"].startswith("Traceback (most recent call last)")
    assert (error["message"], error["severity"]) == ("batch.broke", "ERROR")
