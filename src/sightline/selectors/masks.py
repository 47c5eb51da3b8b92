from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import torch

from sightline.core.selection import Budget, Parity, Role, Selection, Selector, TokenView
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS


@SELECTORS.register("masks")
@dataclass(frozen=True)
class Masks(Selector):
    """Replays masks from a file: keeps for each probe exactly the tokens listed there.

    ``file`` is JSON lines, gzipped if its name ends in ``.gz``; a line has the probe's id under ``sample_id`` or
    ``id`` and the kept indices under ``field``. A file with several masks per probe tells them apart by
    ``variant``. The budget is what the file says, whatever the arm asks for.
    """

    file: str
    field: str = "kept_indices"
    variant: str = ""

    name: ClassVar[str] = "masks"
    parity: ClassVar[Parity] = "own"
    role: ClassVar[Role] = "replay"
    needs_budget: ClassVar[bool] = False

    def count(self, probe_id: str, n: int, budget: Budget) -> int:
        """How many indices the file lists."""
        return len(self.indices(probe_id, n))

    def select(self, view: TokenView, k: int) -> Selection:
        kept = self.indices(view.probe_id, view.cells.shape[0])
        if len(kept) != k:
            raise SightlineError(f"masks: {self.file} keeps {len(kept)} tokens for probe '{view.probe_id}', not {k}")
        return Selection(torch.tensor(kept, dtype=torch.long))

    def digest(self) -> str:
        """SHA-256 of the file."""
        try:
            return sha256(Path(self.file).read_bytes()).hexdigest()
        except OSError as error:
            raise SightlineError(f"masks: cannot read {self.file}: {error.strerror or error}") from None

    def indices(self, probe_id: str, n: int) -> tuple[int, ...]:
        """Ascending distinct indices, checked against the number of visual tokens."""
        path = Path(self.file)
        masks = read_masks(self.file, self.field, self.variant, path.stat().st_mtime_ns if path.is_file() else 0)
        if probe_id not in masks:
            raise SightlineError(f"masks: {self.file} has no mask for probe '{probe_id}'; add a line or drop the probe")
        kept = masks[probe_id]
        if not kept:
            raise SightlineError(f"masks: {self.file} keeps no token for probe '{probe_id}'; list at least one index")
        if kept[0] < 0 or kept[-1] >= n:
            outside = kept[0] if kept[0] < 0 else kept[-1]
            raise SightlineError(
                f"masks: {self.file} lists token {outside} for probe '{probe_id}', whose image has {n} visual tokens; "
                "the masks were made for another model or resolution"
            )
        return kept


@lru_cache(maxsize=8)
def read_masks(file: str, field: str, variant: str, written: int) -> dict[str, tuple[int, ...]]:
    """Probe id -> ascending distinct indices. ``written`` is when: a file that has changed is read again."""
    masks: dict[str, tuple[int, ...]] = {}
    for number, row in _rows(Path(file)):
        if variant and row.get("variant") != variant:
            continue
        probe_id = row.get("sample_id", row.get("id"))
        indices = row.get(field)
        if not isinstance(probe_id, str) or not isinstance(indices, list):
            raise SightlineError(f"masks: {file}:{number} needs a string 'sample_id' or 'id' and a list '{field}'")
        if not all(type(index) is int for index in indices):
            raise SightlineError(f"masks: {file}:{number} has something other than integers in '{field}'")
        if probe_id in masks:
            raise SightlineError(
                f"masks: {file}:{number} is a second mask for probe '{probe_id}'; choose one with variant=NAME"
            )
        masks[probe_id] = tuple(sorted(set(indices)))
    return masks


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise SightlineError(f"masks: {path}:{number} is not a JSON object")
                    yield number, row
    except (OSError, UnicodeDecodeError) as error:
        raise SightlineError(f"masks: cannot read {path}: {error}") from None
    except json.JSONDecodeError as error:
        raise SightlineError(f"masks: {path} is not JSON lines: {error}") from None
