import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sightline import AuditConfig, audit, load_run
from tests.faults.killing import difference
from tests.integration.conftest import config, facts, make_config, mini_probes

__all__ = ["config", "mini_probes"]

ARMS = ["full", "center:0.3", "full+blank"]
"""Two tasks for each image."""
Equal = Callable[[AuditConfig], bool]
"""Whether a run has the rows of an undisturbed one."""


SMALL: dict[str, Any] = {"arms": ARMS, "limit": 4, "shard_images": 1}


@pytest.fixture
def small(config: Any) -> AuditConfig:
    """Four images, a shard each, under three arms."""
    settings: AuditConfig = config("llava", **SMALL)
    return settings


@pytest.fixture(scope="session")
def undisturbed(data: Path, mini_probes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of ``small`` that nothing happened to; tests read it, or take copies."""
    return audit(make_config(data, mini_probes, tmp_path_factory.mktemp("undisturbed") / "run", "llava", **SMALL)).path


@pytest.fixture
def equals_undisturbed(undisturbed: Path) -> Equal:
    """Whether a run folder of ``small`` has the rows of a run that nothing happened to: all, once, the same."""
    wanted = facts(load_run(undisturbed).frame())

    def compare(settings: AuditConfig) -> bool:
        found = load_run(settings.out)
        assert found.missing == 0
        assert difference(wanted, facts(found.frame())) == {"lost": 0, "changed": 0, "doubled": 0}
        return True

    return compare


class Disk:
    """A file system in memory that can be made small, large and read-only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mount("tmpfs", "size=64m", "-t", "tmpfs")

    def _mount(self, what: str, options: str, *more: str) -> None:
        done = subprocess.run(["mount", *more, "-o", options, what, str(self.path)], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"needs the right to mount a small file system ({done.stderr.decode().strip()})")

    def resize(self, kilobytes: int) -> None:
        self._mount("tmpfs", f"remount,rw,size={kilobytes}k")

    def make_read_only(self) -> None:
        self._mount("tmpfs", "remount,ro")

    @property
    def used(self) -> int:
        """Kilobytes"""
        return int(subprocess.check_output(["df", "--output=used", "-k", str(self.path)]).split()[-1])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    place = tmp_path / "disk"
    place.mkdir()
    made = Disk(place)
    yield made
    subprocess.run(["umount", "--lazy", str(place)], check=True)
