"""Which process holds something, told so that others on the same machine can see whether it still lives."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

PROCESSES = Path("/proc")


@dataclass(frozen=True)
class Holder:
    """One process of one boot of one machine; a number that is given to another process later is not taken for it."""

    host: str
    boot: str
    """A digest of the boot and of the namespace of process ids: within one, the same number is the same process."""
    pid: int
    started: str
    """The process' start on the kernel's clock; "" where the system does not tell."""

    @property
    def token(self) -> str:
        """A short name for file names, of no other process anywhere."""
        return f"{self.boot[:8]}-{self.pid}-{self.started}"

    def lives(self) -> bool | None:
        """Whether the process is there; None for one of another machine, which cannot be asked."""
        if (self.host, self.boot) != (here().host, here().boot):
            return None
        if PROCESSES.is_dir():
            return _started(self.pid) == self.started
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # there, and somebody else's
            pass
        return True

    def as_record(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def here() -> Holder:
    """This process."""
    return _holder(os.getpid())


@cache
def _holder(pid: int) -> Holder:
    return Holder(socket.gethostname(), _boot(), pid, _started(pid) or "")


def holder_of(record: Any) -> Holder | None:
    """What ``as_record`` wrote; None for anything else."""
    try:
        return Holder(str(record["host"]), str(record["boot"]), int(record["pid"]), str(record["started"]))
    except (KeyError, TypeError, ValueError):
        return None


def of_a_dead_process(token: str) -> bool:
    """Whether a token names a process of this machine and boot that is no more."""
    boot, _, rest = token.partition("-")
    pid, _, started = rest.partition("-")
    if boot != here().boot[:8] or not pid.isdigit() or not PROCESSES.is_dir():
        return False
    return _started(int(pid)) != started


@cache
def _boot() -> str:
    """Containers share a kernel and may share a name, but not the numbers of their processes."""
    try:
        boot = (PROCESSES / "sys/kernel/random/boot_id").read_text(encoding="ascii")
        space = os.readlink(PROCESSES / "self/ns/pid")
    except OSError:
        boot, space = socket.gethostname(), ""
    return sha256(f"{boot}{space}".encode()).hexdigest()[:16]


def _started(pid: int) -> str | None:
    """The start of a living process; None when there is none, or only what its parent has not collected yet."""
    try:
        fields = (
            (PROCESSES / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return None
    state, started = fields[0], fields[19]
    return None if state in "ZX" else started
