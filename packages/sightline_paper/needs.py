"""What tables ask for, rows of one model on one probe set under some arms; and with which options a study answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sightline.arms.arm import parse_arm
from sightline.errors import SightlineError
from sightline.statistics.bootstrap import DRAWS
from sightline.statistics.paired import EXAMPLE_DRAWS


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


def needs_clip(arm: str) -> bool:
    return any(name.startswith("clip.") for name in parse_arm(arm).selector.needs)


@dataclass(frozen=True)
class StudyOptions:
    """How a study is run; what is None is as the paper has it."""

    demo: bool = False
    """The embedded reader and tiny random models on drawn pages, in minutes on a CPU: shows that everything runs."""
    profile: str = "paper"
    limit: int | None = None
    """Images per probe set instead of 500; of open questions, instead of all."""
    lite: bool = False
    """The 500-question parts of TextVQA and DocVQA instead of full validation."""
    clip: str | None = None
    decisions: Path | None = None
    """A reviewed screening.csv of text replacements."""
    valid: Path | None = None
    """Image ids, one per line, that people found valid."""
    annotations: Path | None = None
    """Rows of regions that people drew for open questions."""
    second_annotations: Path | None = None
    """The same questions by a second person."""
    draws: int = DRAWS
    example_draws: int = EXAMPLE_DRAWS
    """Of intervals over open questions."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """Further options of ``sightline run``: device, dtype, execution, batch_tokens, ..."""

    @property
    def judgements(self) -> dict[str, Path | None]:
        """Files that people filled in, by option."""
        return {name: getattr(self, name) for name in ("decisions", "valid", "annotations", "second_annotations")}


def with_recorded(options: StudyOptions, recorded: Mapping[str, Any]) -> StudyOptions:
    """Options with what an earlier command named: its tables are measured again beside each new one."""
    for name, path in options.judgements.items():
        if path is not None and not path.is_file():
            raise SightlineError(f"--{name.replace('_', '-')}: there is no file {path}")
    files: dict[str, Any] = {
        name: Path(recorded[name])
        for name, path in options.judgements.items()
        if path is None and recorded.get(name) is not None
    }
    return replace(options, clip=options.clip or recorded.get("clip"), **files)
