"""The probes of a run: looked up by name, read when first asked for, and again when their file has changed."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sightline.core.probe import ORIGINAL
from sightline.store.folder import PROBES


@dataclass
class ProbeBook:
    """``probes.jsonl`` of one run folder: where each record stands, and the few texts that are searched."""

    folder: Path
    _stamp: tuple[int, int] | None = field(init=False, default=None)
    _places: dict[tuple[str, str], int] = field(init=False, default_factory=dict)
    _texts: dict[str, dict[str, str]] = field(init=False, default_factory=dict)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def _read(self) -> None:
        file = self.folder / PROBES
        seen = file.stat()
        with self._lock:
            if self._stamp == (seen.st_mtime_ns, seen.st_size):
                return
            self._places.clear()
            self._texts.clear()
            at = 0
            with open(file, "rb") as lines:
                for line in lines:
                    if line.strip() and "id" in (record := json.loads(line)):
                        name, view = str(record["id"]), str(record.get("view", ORIGINAL))
                        self._places.setdefault((name, view), at)
                        if view == ORIGINAL or name not in self._texts:
                            self._places[name, ""] = at
                            self._texts[name] = {
                                key: str(record.get(key) or "") for key in ("question", "target_text", "source_text")
                            }
                    at += len(line)
            self._stamp = (seen.st_mtime_ns, seen.st_size)

    def record(self, probe: str, view: str) -> dict[str, Any]:
        """The probe's record about a view; about one that an intervention made, that about the original."""
        self._read()
        place = self._places.get((probe, view), self._places.get((probe, "")))
        if place is None:
            return {}
        with open(self.folder / PROBES, "rb") as lines:
            lines.seek(place)
            return dict(json.loads(lines.readline()))

    def text(self, probe: str, key: str) -> str:
        if self._stamp is None:
            self._read()
        return self._texts.get(probe, {}).get(key, "")
