"""The folder a local cloud lives in."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ingestd.localcloud.statefolder import Endpoints, Ports, StateFolderError, held, settle

ENDPOINTS = Endpoints.on(Ports(storage=4443, pubsub=8085, bigquery=9050, pubsub_rest=8086), "play")


def test_endpoints_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    ENDPOINTS.save(tmp_path)
    assert Endpoints.load(tmp_path) == ENDPOINTS
    assert ENDPOINTS.ports == Ports(4443, 8085, 9050, 8086)


def test_env_sh_sets_what_googles_clients_read(tmp_path: Path) -> None:
    Endpoints.on(ENDPOINTS.ports, "it's mine").save(tmp_path)
    script = f'. {tmp_path}/env.sh && echo "$STORAGE_EMULATOR_HOST $PUBSUB_EMULATOR_HOST $BIGQUERY_EMULATOR_HOST"'
    script += ' && echo "$GOOGLE_CLOUD_PROJECT"'
    shown = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert shown == ["http://127.0.0.1:4443 127.0.0.1:8085 http://127.0.0.1:9050", "it's mine"]


def test_a_folder_without_a_cloud_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(StateFolderError, match="start one with `ingestd cloud`"):
        Endpoints.load(tmp_path)


def test_a_damaged_endpoints_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "endpoints.json").write_text('{"storage": 1')
    with pytest.raises(StateFolderError, match=r"endpoints\.json is not an endpoints file"):
        Endpoints.load(tmp_path)


def test_a_held_folder_refuses_a_second_holder_and_names_the_first(tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(StateFolderError, match=f"process {os.getpid()}"), held(tmp_path):
        pytest.fail("the folder was held twice")
    with held(tmp_path):
        pass


def test_a_killed_holder_leaves_the_folder_free(tmp_path: Path) -> None:
    code = "import sys, time, pathlib; from ingestd.localcloud.statefolder import held\n"
    code += "with held(pathlib.Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        process.kill()
        with held(tmp_path):  # waits out the moment the kernel needs
            pass


def test_endpoints_of_an_earlier_run_are_gone_while_the_next_one_starts(tmp_path: Path) -> None:
    """Whoever waits for the file waits for services that answer."""
    ENDPOINTS.save(tmp_path)
    with held(tmp_path):
        assert not (tmp_path / "endpoints.json").exists()


def test_an_unusable_folder_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateFolderError, match="cannot use the state folder"), held(tmp_path / "file"):
        pytest.fail("a file was held as a folder")


def test_ports_of_the_last_run_are_kept_when_free(tmp_path: Path) -> None:
    with socket.socket() as busy, socket.socket() as probe:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        probe.bind(("127.0.0.1", 0))
        taken, free = busy.getsockname()[1], probe.getsockname()[1]
        probe.close()
        Endpoints.on(Ports(storage=free, pubsub=taken, bigquery=free, pubsub_rest=free), "play").save(tmp_path)
        chosen = settle(Ports(bigquery=12345), tmp_path)
    assert chosen.storage == free
    assert chosen.pubsub == 0  # somebody else has it
    assert chosen.bigquery == 12345  # asked for


def test_a_port_asked_for_is_not_given_to_another_service(tmp_path: Path) -> None:
    Endpoints.on(Ports(storage=40001, pubsub=40002, bigquery=40003, pubsub_rest=40004), "play").save(tmp_path)
    assert settle(Ports(bigquery=40001), tmp_path).storage == 0
