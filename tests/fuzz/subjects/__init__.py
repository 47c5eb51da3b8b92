"""Everything that is fuzzed."""

from __future__ import annotations

from tests.fuzz.subjects.annotations import Annotations, Decisions, Instances
from tests.fuzz.subjects.base import Subject
from tests.fuzz.subjects.checkpoints import Checkpoints, LoadedCheckpoints
from tests.fuzz.subjects.pictures import Pictures
from tests.fuzz.subjects.probe_files import Lists, Locks, ProbeFiles
from tests.fuzz.subjects.run_folders import Reports, RunFolders
from tests.fuzz.subjects.served import Annotated, LabelStudio, Viewed
from tests.fuzz.subjects.small_files import Configs, CostCards, Detections, MaskFiles, RiskFiles
from tests.fuzz.subjects.surroundings import Readers, Writers
from tests.fuzz.subjects.words import Arms, GateRules, ImageOptions, Thresholds

SUBJECTS: tuple[type[Subject], ...] = (
    Annotations, Instances, Decisions, ProbeFiles, Locks, Lists, Arms, GateRules, Thresholds, ImageOptions, MaskFiles,
    Configs, CostCards, RiskFiles, Detections, Pictures, Checkpoints, LoadedCheckpoints, RunFolders, Reports,
    LabelStudio, Viewed, Annotated, Readers, Writers,
)  # fmt: skip
