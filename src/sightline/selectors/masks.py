"""Masks from a file, made by something else and replayed probe by probe."""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from sightline.core.selection import Budget, Parity, Role, Selection, Selector, TokenView
from sightline.errors import SightlineError
from sightline.places.listing import file_errors, open_file, read_whole
from sightline.selectors import SELECTORS

# Files of masks to be replayed: one probe per line, kept tokens or groups of tokens that are merged.

NO_CELL = -1
"""Anchor of an output that stands for no token of the image (a class token)."""


@dataclass(frozen=True)
class Mask:
    """One line of a file."""

    place: str
    """File and line, for messages."""
    anchors: tuple[int, ...]
    """The token that each output stands for; ascending for a deletion."""
    groups: tuple[tuple[tuple[int, ...], tuple[float, ...]], ...] | None = None
    """Of a merge, per output, its source tokens and their weights; source N is the class token. None: a deletion."""
    merge_at: Literal["tokens", "vision"] = "tokens"
    native_order: bool = True
    n_tokens: int | None = None
    """How many visual tokens the image had where the mask was made, if the line says so."""
    layout: tuple[tuple[int, int], ...] | None = None

    def refuse_other(self, n: int, layout: Sequence[tuple[int, int]] | None, probe_id: str) -> None:
        """Refuses an image with n tokens in these blocks if the mask was made for another."""
        if self.n_tokens is not None and self.n_tokens != n:
            raise SightlineError(
                f"masks: {self.place} was made for {self.n_tokens} tokens, this model makes {n} of the image of "
                f"probe '{probe_id}'; replay masks on the model and image options that they were made with"
            )
        if self.layout is not None and layout is not None and self.layout != tuple(layout):
            raise SightlineError(
                f"masks: {self.place} was made for a layout of {_blocks(self.layout)}, this model makes "
                f"{_blocks(layout)} of the image of probe '{probe_id}'"
            )
        if not self.anchors:
            raise SightlineError(f"masks: {self.place} keeps no token for probe '{probe_id}'; list at least one index")
        lowest = NO_CELL if self.groups is not None else 0
        used = [*self.anchors, *(source - 1 for sources, _ in self.groups or () for source in sources)]
        if min(used) < lowest or max(used) >= n:
            outside = min(used) if min(used) < lowest else max(used)
            raise SightlineError(
                f"masks: {self.place} lists token {outside} for probe '{probe_id}', whose image has {n} visual tokens; "
                "the masks were made for another model or resolution"
            )


def _blocks(layout: Sequence[tuple[int, int]]) -> str:
    return " + ".join(f"{rows} x {columns}" for rows, columns in layout)


@lru_cache(maxsize=8)
def read_masks(file: str, field: str, variant: str, written: int) -> dict[str, Mask]:
    """Masks by probe id. ``written`` is when: a file that has changed is read again."""
    masks: dict[str, Mask] = {}
    for number, row in _rows(Path(file)):
        if variant and row.get("variant") != variant:
            continue
        place = f"{file}:{number}"
        probe_id = row.get("sample_id", row.get("id"))
        if not isinstance(probe_id, str):
            raise SightlineError(f"masks: {place} needs a string 'sample_id' or 'id' and a list '{field}'")
        if probe_id in masks:
            raise SightlineError(
                f"masks: {place} is a second mask for probe '{probe_id}'; choose one with variant=NAME"
            )
        masks[probe_id] = _mask(row, field, place)
    return masks


def _mask(row: dict[str, Any], field: str, place: str) -> Mask:
    n_tokens, layout = row.get("n_tokens"), row.get("layout")
    if n_tokens is not None and not _is_count(n_tokens):
        raise SightlineError(f"masks: {place}: 'n_tokens' must be a positive whole number")
    if layout is not None:
        if not (isinstance(layout, list) and all(_is_block(block) for block in layout)):
            raise SightlineError(f"masks: {place}: 'layout' must be a list of [rows, columns]")
        layout = tuple((rows, columns) for rows, columns in layout)
    if "groups" in row:
        anchors, groups = _groups(row["groups"], place)
        at = row.get("merge_at", "tokens")
        if at not in ("tokens", "vision"):
            raise SightlineError(f"masks: {place}: 'merge_at' must be tokens or vision")
        return Mask(place, anchors, groups, at, row.get("native_order", True) is not False, n_tokens, layout)
    indices = row.get(field)
    if not isinstance(indices, list):
        raise SightlineError(f"masks: {place} needs a string 'sample_id' or 'id' and a list '{field}'")
    if not all(type(index) is int for index in indices):
        raise SightlineError(f"masks: {place} has something other than integers in '{field}'")
    return Mask(place, tuple(sorted(set(indices))), n_tokens=n_tokens, layout=layout)


def _groups(given: Any, place: str) -> tuple[tuple[int, ...], tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]]:
    """Anchors, and sources with weights, of ``[[anchor, [sources], [weights]], ...]``."""
    anchors, groups = [], []
    if not (isinstance(given, list) and all(map(_is_group, given))):
        raise SightlineError(f"masks: {place}: a group is [anchor, [source, ...], [weight, ...]]")
    for anchor, sources, weights in given:
        anchors.append(anchor)
        groups.append((tuple(sources), tuple(float(weight) for weight in weights)))
    return tuple(anchors), tuple(groups)


def _is_group(group: Any) -> bool:
    if not (isinstance(group, list) and len(group) == 3):
        return False
    anchor, sources, weights = group
    return (
        type(anchor) is int
        and isinstance(sources, list)
        and isinstance(weights, list)
        and len(sources) == len(weights) == len(set(map(str, sources))) > 0
        and all(type(source) is int and source >= 0 for source in sources)
        and all(type(weight) in (int, float) and math.isfinite(weight) for weight in weights)
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_block(block: Any) -> bool:
    return isinstance(block, list) and len(block) == 2 and all(map(_is_count, block))


def _unpacked(raw: io.BufferedReader, path: Path) -> Any:
    return gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    try:
        with (
            file_errors(f"masks: cannot read {path}"),
            open_file(path) as raw,
            io.TextIOWrapper(_unpacked(raw, path), encoding="utf-8") as lines,
        ):
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise SightlineError(f"masks: {path}:{number} is not a JSON object")
                    yield number, row
    except (UnicodeDecodeError, EOFError, zlib.error) as error:
        raise SightlineError(f"masks: cannot read {path}: {error}") from None
    except (ValueError, RecursionError) as error:  # also a path that no file can have
        raise SightlineError(f"masks: {path} is not JSON lines: {error} in line {number}") from None


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
    apart by ``variant``. The budget is what the file says; an arm names none.
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
    needs_file: ClassVar[str] = "file"

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
            kept = f"{len(mask.anchors)} token{'s' if len(mask.anchors) != 1 else ''}"
            raise SightlineError(f"masks: {mask.place} keeps {kept} for probe '{view.probe_id}', not {k}")
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
        with file_errors(f"masks: cannot read {self.file}"):
            return sha256(read_whole(Path(self.file))).hexdigest()

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
