"""Everything that is fuzzed."""

from tests.fuzz.subjects.annotations import Annotations, Decisions, Instances, Lists, Locks, ProbeFiles
from tests.fuzz.subjects.base import Subject
from tests.fuzz.subjects.documents import Documents
from tests.fuzz.subjects.run_folders import Reports, RunFolders
from tests.fuzz.subjects.served import Annotated, LabelStudio, Viewed
from tests.fuzz.subjects.small_files import (
    Checkpoints,
    Configs,
    CostCards,
    Detections,
    LoadedCheckpoints,
    MaskFiles,
    Pictures,
    RiskFiles,
)
from tests.fuzz.subjects.surroundings import Readers, Writers
from tests.fuzz.subjects.words import Arms, GateRules, ImageOptions, Thresholds

SUBJECTS: tuple[type[Subject], ...] = (
    Annotations, Instances, Decisions, ProbeFiles, Locks, Lists, Arms, GateRules, Thresholds, ImageOptions, MaskFiles,
    Configs, CostCards, RiskFiles, Detections, Pictures, Checkpoints, LoadedCheckpoints, RunFolders, Reports,
    LabelStudio, Viewed, Annotated, Readers, Writers, Documents,
)  # fmt: skip
