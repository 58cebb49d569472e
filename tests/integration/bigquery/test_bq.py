"""The `bq` command works against the local BigQuery as it is."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.integration.bigquery.local import LocalBigQuery
from tests.support.google import PROJECT

pytestmark = [
    pytest.mark.sdk,
    pytest.mark.skipif(shutil.which("bq") is None, reason="the Cloud SDK's bq is not installed"),
]


def bq_shell(local: LocalBigQuery, home: Path, *commands: str) -> list[str]:
    """What each command prints. One process for all: bq takes seconds to start."""
    flags = [f"--api={local.endpoint}", f"--project_id={PROJECT}", "--headless=true"]
    flags.append("--oauth_access_token=local")  # no one checks it; without one, bq looks for an account to log in with
    environment = {**os.environ, "CLOUDSDK_CONFIG": str(home), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
    script = "\n".join((*commands, "exit", ""))
    ran = subprocess.run(
        ["bq", *flags, "shell"],
        input=script,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        timeout=120,
        check=True,
    )
    _, *answers = ran.stdout.split(f"{PROJECT}> ")
    assert len(answers) == len(commands) + 1, ran.stdout
    return answers[:-1]


def test_bq_makes_loads_queries_copies_and_removes_tables(local: LocalBigQuery, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("1,a\n2,b\n")
    local.put("gs://bq/more.json", '{"id": 3, "name": "c"}\n')
    made, posted, loaded, shown, head, queried, copied, listed, _, missing, jobs = bq_shell(
        local,
        tmp_path,
        "mk bqd",
        f"load bqd.t {file} id:integer,name:string",
        "load --source_format=NEWLINE_DELIMITED_JSON bqd.t gs://bq/more.json",
        "show bqd.t",
        "head bqd.t",
        "query --nouse_legacy_sql 'SELECT name, id + 1 AS next FROM bqd.t WHERE id = 3'",
        "cp bqd.t bqd.u",
        "ls bqd",
        "rm -f -t bqd.u",
        "show bqd.u",
        "ls -j -n 5",
    )
    assert "successfully created" in made
    assert "DONE" in posted
    assert "DONE" in loaded
    assert "id: integer" in shown
    assert [line.split() for line in head.splitlines() if line.startswith("|")][1:] == [
        ["|", "1", "|", "a", "|"],
        ["|", "2", "|", "b", "|"],
        ["|", "3", "|", "c", "|"],
    ]
    assert ["|", "c", "|", "4", "|"] in [line.split() for line in queried.splitlines()]
    assert "successfully copied" in copied
    assert {"t", "u"} <= set(listed.split())
    assert f"Not found: Table {PROJECT}:bqd.u" in missing
    assert "copy" in jobs
    assert "load" in jobs
