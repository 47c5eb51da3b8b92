"""Locks: a file beside a probe set that remembers its content; a changed set is refused and the change named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes.dialects import own_row
from sightline.probes.json_lines import open_text, write_text
from sightline.probes.probe_file import ProbeSet, canonical, probe_key

HEADER = "sightline_lock"
_SHOWN = 3
"""How many changed probes a message names."""


@dataclass(frozen=True)
class Lock:
    digest: str
    fields: Mapping[str, Mapping[str, str]]
    """Probe key -> field -> first 16 hex digits of the SHA-256 of the field's canonical JSON, in file order."""
    images: Mapping[str, str]
    """Image name -> digest of its bytes; empty if images were not locked."""


def lock_path(path: str | Path) -> Path:
    return Path(f"{path}.lock.json")


def lock_probes(
    path: str | Path, probes: ProbeSet, *, images: Mapping[str, str] | None = None, replace: bool = False
) -> Path:
    """Writes ``<path>.lock.json``. A lock on other content gives way only to ``replace``."""
    target = lock_path(path)
    if target.exists() and not replace and read_lock(target).digest != probes.digest:
        raise SightlineError(f"{target} locks other content; pass --replace to lock the new content instead")
    yes = sum(probe.label == "yes" for probe in probes.probes)
    lock = {
        HEADER: 1,
        "digest": probes.digest,
        "counts": {"probes": len(probes), "yes": yes, "no": len(probes) - yes, "images": len(probes.image_ids)},
        "probes": _fields(probes.probes),
        "images": dict(images or {}),
    }
    write_text(target, json.dumps(lock, ensure_ascii=False, indent=1) + "\n")
    return target


def read_lock(path: str | Path) -> Lock:
    with open_text(path) as stream:
        try:
            lock = json.load(stream)
            if lock[HEADER] != 1:
                raise SightlineError(f"{path}: lock version {lock[HEADER]!r}; this Sightline reads version 1")
            fields = {str(key): dict(digests) for key, digests in dict(lock["probes"]).items()}
            return Lock(str(lock["digest"]), fields, dict(lock.get("images", {})))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise SightlineError(f"{path}: not a probe lock") from None


def verify_lock(path: str | Path, probes: ProbeSet, *, images: Mapping[str, str] | None = None) -> Lock:
    """Compares a set, and image digests where both sides have them, with its lock; differences are refused by name."""
    lock = read_lock(lock_path(path))
    differences = _differences(lock.fields, _fields(probes.probes))
    if not differences and lock.digest != probes.digest:
        differences = ["the same probes in another order"]
    changed = [name for name, digest in (images or {}).items() if lock.images.get(name, digest) != digest]
    if changed:
        differences.append(f"{len(changed)} images with other bytes ({_some(changed)})")
    if differences:
        raise SightlineError(f"{path} differs from its lock: {'; '.join(differences)}")
    return lock


def _differences(locked: Mapping[str, Mapping[str, str]], found: Mapping[str, Mapping[str, str]]) -> list[str]:
    added = [key for key in found if key not in locked]
    removed = [key for key in locked if key not in found]
    changed = []
    for key in found:
        if key in locked and found[key] != locked[key]:
            names = {*found[key], *locked[key]}
            differing = sorted(name for name in names if found[key].get(name) != locked[key].get(name))
            changed.append(f"{key}: {', '.join(differing)}")
    lists = {"changed": changed, "added": added, "removed": removed}
    return [f"{len(keys)} {what} ({_some(keys)})" for what, keys in lists.items() if keys]


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return "; ".join(names[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _fields(probes: tuple[Probe, ...]) -> dict[str, dict[str, str]]:
    return {probe_key(probe): {name: _short(value) for name, value in own_row(probe).items()} for probe in probes}


def _short(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]
