"""`ingestd settings --from-bqtail` reads a configuration where bqtail keeps it: in a bucket."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from ingestd.cli.main import app

pytestmark = pytest.mark.usefixtures("emulators")


def test_a_configuration_in_a_bucket_is_converted(storage_client: Any, unique: str) -> None:
    bucket = storage_client.create_bucket(f"{unique}-config")
    content = json.dumps({"ProjectID": "p", "RulesURL": f"gs://{bucket.name}/BqTail/Rules/"})
    bucket.blob("BqTail/config.json").upload_from_string(content)
    run = CliRunner().invoke(app, ["settings", "--from-bqtail", f"gs://{bucket.name}/BqTail/config.json"])
    assert run.exit_code == 0, run.output
    assert run.stdout.splitlines()[1:] == ["project: p", "rules:", f"  url: gs://{bucket.name}/BqTail/Rules/"]
