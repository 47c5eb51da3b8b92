from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import torch

from sightline.core.selection import Budget, Parity, Role, Selection, Selector, TokenView
from sightline.errors import SightlineError
from sightline.places import read_whole
from sightline.selectors import SELECTORS
from sightline.selectors.mask_file import Mask, read_masks

MERGED = "vision.hidden@-2"
"""What a merge on vision states is a mixture of."""


@SELECTORS.register("masks")
@dataclass(frozen=True)
class Masks(Selector):
    """Replays masks from a file: keeps for each probe exactly the tokens listed there, or merges those of its groups.

    ``file`` is JSON lines, gzipped if its name ends in ``.gz``; a line has the probe's id under ``sample_id`` or
    ``id`` and the kept indices under ``field``, or ``groups`` of tokens with their weights. Index 0 is the first token
    of the first block of the layout, and indices go on row by row. A line may say for how many tokens (``n_tokens``)
    and for which ``layout`` it was made, and is refused for others. A file with several masks per probe tells them
    apart by ``variant``. The budget is what the file says, whatever the arm asks for.
    """

    file: str
    field: str = "kept_indices"
    variant: str = ""

    name: ClassVar[str] = "masks"
    parity: ClassVar[Parity] = "own"
    role: ClassVar[Role] = "replay"
    merges: ClassVar[bool | None] = None
    """As the file says."""
    needs_budget: ClassVar[bool] = False

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({MERGED}) if self.merges_vision else frozenset()

    @property
    def merges_vision(self) -> bool:
        try:
            return any(mask.merge_at == "vision" for mask in self._masks.values())
        except (AttributeError, SightlineError):
            return False  # whoever lists methods names no file, and one that is wrong is refused by check_probes

    def check_probes(self, probe_ids: Iterable[str]) -> None:
        missing = [probe_id for probe_id in probe_ids if probe_id not in self._masks]
        if missing:
            others = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            raise SightlineError(
                f"masks: {self.file} has no mask for probe '{missing[0]}'{others}; add a line or drop the probe"
            )

    def count(self, probe_id: str, n: int, budget: Budget) -> int:
        """How many outputs the file lists."""
        return len(self._mask(probe_id, n).anchors)

    def select(self, view: TokenView, k: int) -> Selection:
        n = view.cells.shape[0]
        mask = self._mask(view.probe_id, n, view.layout)
        if len(mask.anchors) != k:
            raise SightlineError(
                f"masks: {mask.place} keeps {len(mask.anchors)} tokens for probe '{view.probe_id}', not {k}"
            )
        anchors = torch.tensor(mask.anchors, dtype=torch.long)
        if mask.groups is None:
            return Selection(anchors)
        mix = torch.zeros(k, n + 1, dtype=torch.float64)
        for row, (sources, weights) in zip(mix, mask.groups, strict=True):
            row[list(sources)] = torch.tensor(weights, dtype=torch.float64)
        if not mix[:, n].any():
            mix = mix[:, :n]  # no class token among the sources
        return Selection(anchors, mix, mask.merge_at, mask.native_order)

    def digest(self) -> str:
        """SHA-256 of the file."""
        try:
            return sha256(read_whole(Path(self.file))).hexdigest()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise SightlineError(f"masks: cannot read {self.file}: {reason}") from None

    def indices(self, probe_id: str, n: int) -> tuple[int, ...]:
        """The anchors of a probe's mask, checked against the number of visual tokens."""
        return self._mask(probe_id, n).anchors

    def _mask(self, probe_id: str, n: int, layout: Sequence[tuple[int, int]] | None = None) -> Mask:
        self.check_probes([probe_id])
        mask = self._masks[probe_id]
        mask.refuse_other(n, layout, probe_id)
        return mask

    @property
    def _masks(self) -> dict[str, Mask]:
        path = Path(self.file)
        try:
            written = path.stat().st_mtime_ns
        except (OSError, ValueError):
            written = 0  # the reader says what is wrong
        return read_masks(self.file, self.field, self.variant, written)
