"""Files of masks to be replayed: one probe per line, kept tokens or groups of tokens that are merged."""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from sightline.errors import SightlineError
from sightline.places import open_file

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
        with open_file(path) as raw, io.TextIOWrapper(_unpacked(raw, path), encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise SightlineError(f"masks: {path}:{number} is not a JSON object")
                    yield number, row
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SightlineError(f"masks: cannot read {path}: {reason}") from None
    except (ValueError, RecursionError) as error:  # also a path that no file can have
        raise SightlineError(f"masks: {path} is not JSON lines: {error} in line {number}") from None
