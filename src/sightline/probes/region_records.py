"""Region records: the words of one image, each with its box. What every ingest yields and every builder reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.core.probe import Box, Probe

if TYPE_CHECKING:
    from sightline.probes.packed_images import PackedImages


def is_storable(text: str) -> bool:
    """Whether UTF-8 can hold the text. JSON escapes can smuggle in half of a surrogate pair, which it cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Word:
    """A transcription and the box it stands in. ``text`` is empty for a box nobody transcribed."""

    text: str
    box: Box


@dataclass(frozen=True)
class ImageRegions:
    """All usable boxes of one image, in annotation order."""

    image_id: str
    image: str
    """File name relative to the image root."""
    words: tuple[Word, ...]
    width: int | float | None = None
    height: int | float | None = None
    split: str = ""
    dataset: str = ""
    box_source: str = ""
    id_prefix: str = ""
    """Put before the image id in probe ids (``textocr-`` for TextOCR)."""

    @property
    def record_id(self) -> str:
        return f"{self.id_prefix}{self.image_id}"

    @property
    def texts(self) -> list[str]:
        """Transcriptions, without the empty ones."""
        return [word.text for word in self.words if word.text]


@dataclass
class IngestCounts:
    """What reading annotations kept, changed and dropped; nothing disappears without being counted."""

    images: int = 0
    images_same_as_another: int = 0
    images_without_boxes: int = 0
    boxes: int = 0
    boxes_without_text: int = 0
    clipped_boxes: int = 0
    dropped_missing: int = 0
    dropped_malformed: int = 0
    dropped_small: int = 0
    dropped_no_area: int = 0
    files_left_out: int = 0
    captions_without_relation: int = 0
    questions_without_both_boxes: int = 0
    questions: int = 0
    regions: int = 0
    questions_without_image: int = 0
    questions_without_text: int = 0
    questions_without_answers: int = 0

    def notes(self) -> list[str]:
        """One phrase per counter that is not zero."""
        return [f"{getattr(self, f.name)} {f.name.replace('_', ' ')}" for f in fields(self) if getattr(self, f.name)]


@dataclass(frozen=True)
class Ingest:
    """Region records in file order, and the counts of what happened on the way."""

    records: tuple[ImageRegions, ...]
    counts: IngestCounts
    source: Mapping[str, Any] = field(default_factory=dict)
    """Where they come from, for the header of a probe file: names and digests, no folders."""
    images: Path | None = None
    """The folder that image names are relative to, where the format found the images by itself."""
    probes: tuple[Probe, ...] = ()
    """Questions that the file itself asks. Where there are any, none are built from the words."""
    kinds: tuple[str, ...] = ()
    """The order in which the questions' kinds are drawn from; kinds that are not named here follow by name."""
    packed: PackedImages | None = field(default=None, compare=False)
    """Images that lie inside the files, to be unpacked once it is known which of them are needed."""
