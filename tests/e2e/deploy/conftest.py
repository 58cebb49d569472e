"""ingestd as it is installed, and Prometheus' own tools."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.deploy.core_install import CoreInstall, core_install


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`prometheus` and `promtool`, from the machine or from the package, unpacked."""
    unpacked: list[Path] = []

    def find(name: str) -> Path:
        if found := shutil.which(name):
            return Path(found)
        if not unpacked:
            folder = tmp_path_factory.mktemp("prometheus")
            if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
                pytest.skip(f"{name} is not installed, and there is no apt to fetch it with")
            fetched = subprocess.run(
                ["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, check=False
            )
            packages = list(folder.glob("*.deb"))
            if fetched.returncode or not packages:
                pytest.skip(f"{name} is not installed, and apt cannot fetch it: run apt-get update first")
            subprocess.run(["dpkg", "-x", packages[0], folder], check=True)
            unpacked.append(folder / "usr/bin")
        return unpacked[0] / name

    return find


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> CoreInstall:
    """The wheel of these sources in a new environment, without extras."""
    return core_install(tmp_path_factory.mktemp("installed"))
