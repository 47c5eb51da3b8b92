"""Several folders that together are one run: shards, or arms, computed in places that do not share a disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from sightline.core.row import TIME_COLUMNS
from sightline.errors import SightlineError
from sightline.places import Place, is_remote, place
from sightline.store.folder import MANIFEST, RunFolder
from sightline.store.marks import table_digest
from sightline.store.shard_files import ShardFile, ShardPiece
from sightline.store.soundness import BEFORE, SEVERAL_MACHINES, settings_difference, with_all_values

if TYPE_CHECKING:
    RunPlace: TypeAlias = Place | str | Sequence[Place | str]
else:
    RunPlace = object
    """A run folder, a folder of run folders that are one run in parts, or such folders one by one; paths or URLs."""


def is_several(where: RunPlace) -> TypeGuard[Sequence[Place | str]]:
    """Whether folders are named one by one."""
    return isinstance(where, Sequence) and not isinstance(where, str)


def part_folders(where: RunPlace) -> list[RunFolder]:
    """The folders of a run. One without a manifest that holds run folders is a run in parts."""
    if is_several(where):
        if not where:
            raise SightlineError("no run folder given: name at least one")
        return [folder for one in where for folder in part_folders(one)]
    whole = RunFolder(place(where))
    if whole.exists:
        return [whole]
    if is_remote(whole.path):
        parts = [RunFolder(file.parent) for file in whole.files.matching(f"*/{MANIFEST}")]
    else:
        parts = [folder for folder in map(RunFolder, sorted(whole.files.within(""))) if folder.exists]
    return parts or [whole]


def joined_manifest(folders: Sequence[RunFolder]) -> dict[str, Any]:
    """One manifest of all parts; parts that do not belong together are refused with what differs."""
    manifests = [folder.manifest() for folder in folders]
    first = manifests[0]
    if len(folders) == 1:
        return first
    for folder, other in zip(folders[1:], manifests[1:], strict=True):
        _refuse_unfitting(folders[0], {**BEFORE, **first}, folder, {**BEFORE, **other})
    arms = dict.fromkeys(arm for manifest in manifests for arm in manifest["arms"])
    merged: dict[str, dict[str, Any]] = {"set_aside": {}, "bad_images": {}, "inputs": {}, "imports": {}}
    for manifest in manifests:
        for field, entries in merged.items():
            entries |= manifest.get(field, {})
    all_values: dict[str, Any] = dict(first)
    for manifest in manifests[1:]:
        all_values |= {"mixed": with_all_values(all_values, manifest).get("mixed", {})}
    controls = dict.fromkeys(arm for manifest in manifests for arm in manifest.get("matched_controls", ()))
    return {
        **first,
        **({"mixed": all_values["mixed"]} if all_values["mixed"] else {}),
        **{field: entries for field, entries in merged.items() if entries or field in first},
        "arms": list(arms),
        "matched_controls": list(controls),
        "setup_ms": sum(manifest.get("setup_ms", 0.0) for manifest in manifests),
        "marked": all(manifest.get("marked") for manifest in manifests),
        "part": None,
    }


def _refuse_unfitting(one: RunFolder, manifest: dict[str, Any], other: RunFolder, others: dict[str, Any]) -> None:
    said = {**others, "shards": others.get("shards")}
    found = settings_difference(manifest, said, without=SEVERAL_MACHINES)
    difference = None if found is None else found[1]
    if difference is None and manifest.get("shards") != others.get("shards"):
        difference = f"with {manifest.get('shards')} shards, the other has {others.get('shards')}"
    if difference is not None:
        words = difference.replace("this command has", "the other has")
        raise SightlineError(f"{one.path} and {other.path} are not one run: the first is {words}")
    for arm, digest in manifest.get("inputs", {}).items():
        if others.get("inputs", {}).get(arm, digest) != digest:
            raise SightlineError(
                f"{one.path} and {other.path} are not one run: their rows of {arm} were made from other content of its "
                "file"
            )


def refuse_conflicts(folders: Sequence[RunFolder], arms: Sequence[str]) -> None:
    """Refuses a shard of an arm that two parts hold with different rows; timings may differ."""
    for arm in arms:
        holders: dict[int, tuple[RunFolder, ShardFile]] = {}
        for folder in folders:
            for file in folder.files_of_rows(arm):
                for shard in file.shards:
                    before = holders.setdefault(shard, (folder, file))
                    if before[0] is not folder and _values(*before, arm, shard) != _values(folder, file, arm, shard):
                        raise SightlineError(
                            f"{before[1].path} and {file.path} hold different rows of the same probes; "
                            "leave one of the two folders out"
                        )


def _values(folder: RunFolder, file: ShardFile, arm: str, shard: int) -> str:
    """The digest of a shard's rows, as the file says it or, where it does not, computed."""
    _, mark = folder.owner(arm).opened(file)
    if mark is not None:
        return next(held.values for held in mark.shards if held.shard == shard)
    return table_digest(folder.owner(arm).read(ShardPiece(file, shard, shard)), without=TIME_COLUMNS)
