"""What a table asks for: rows of one model on one probe set under some arms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Need:
    """Rows that must exist before a table can be measured."""

    model: str
    """A key of ``MODELS``."""
    probes: str
    """A key of ``PROBE_SETS``."""
    arms: tuple[str, ...]
    box_source: str = "annotation"
    scorer: str = ""
    """What an answer is, where it is not what the probe set is usually asked for."""

    @property
    def run(self) -> tuple[str, str, str, str]:
        """What shares one run folder: everything but the arms, which amend one another."""
        return self.model, self.probes, self.box_source, self.scorer

    @property
    def folder(self) -> str:
        """``qwen-confirmation``, ``llava-development-easyocr``, ``qwen-ocrbench-verification``."""
        boxes = "" if self.box_source == "annotation" else self.box_source
        return "-".join(filter(None, (self.model, self.probes, boxes, self.scorer)))


def merged(needs: Iterable[Need]) -> list[Need]:
    """One need per run, with all arms that anybody asked for, in order of first mention."""
    found: dict[tuple[str, str, str, str], Need] = {}
    for need in needs:
        before = found.get(need.run)
        arms = (*before.arms, *need.arms) if before else need.arms
        found[need.run] = replace(need, arms=tuple(dict.fromkeys(arms)))
    return list(found.values())
