"""``check_metric`` and ``check_format`` pass what keeps its promises and name what does not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from sightline.contract import check_format, check_metric
from sightline.probes.formats import FORMATS, Format
from sightline.probes.regions import ImageRegions, Ingest, IngestCounts, Word
from sightline.statistics.metrics import METRICS, Metric


@pytest.mark.parametrize("name", list(METRICS))
def test_every_metric_of_sightline_keeps_the_promises(name: str) -> None:
    check_metric(METRICS.get(name))


GOOD = Metric("good", "Good", "mean coverage", "higher", "all probes", ("ecr",), lambda rows: rows.columns["ecr"])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"definition": ""}, "needs a label and a definition"),
        ({"over": "everybody"}, "there is no population 'everybody'"),
        ({"needs": ()}, "reads the column 'ecr', which its needs do not name"),
        ({"value": lambda rows: rows.columns["ecr"].mean()}, r"gives \(\) values for 48 probes"),
        ({"value": lambda rows: np.log(rows.columns["ecr"])}, r"not finite .* check_metric\(good, COLUMN="),
        ({"share": True}, "a share with values other than 0 and 1"),
        ({"value": lambda rows: rows.columns["ecr"] - rows.columns["ecr"].mean()}, "changes with the probes beside it"),
    ],
)
def test_a_metric_that_breaks_a_promise_is_named(changes: dict[str, Any], sentence: str) -> None:
    check_metric(GOOD)
    with np.errstate(divide="ignore"), pytest.raises(AssertionError, match=sentence):
        check_metric(replace(GOOD, **changes))


def test_a_column_that_is_no_share_can_be_given() -> None:
    ranks = replace(GOOD, needs=("rank",), value=lambda rows: 1.0 / rows.columns["rank"])
    check_metric(ranks, rank=[1, 2, 3])


def test_a_format_of_sightline_keeps_the_promises(data: Path) -> None:
    check_format(FORMATS.get("textocr")(), data / "mini_textocr" / "TextOCR_mini_val.json")


@dataclass(frozen=True)
class Lines(Format):
    """One word a line, all in one image: text, x1, y1, x2, y2 with tabs between."""

    name: ClassVar[str] = "lines"
    description: ClassVar[str] = "a word and its box per line"
    image: ClassVar[str] = "a.jpg"
    more: ClassVar[int] = 0

    @classmethod
    def recognises(cls, start: str) -> bool:
        return "\t" in start

    def read(self, path: Path, images: Path | None) -> Ingest:
        words = []
        for line in path.read_text(encoding="utf-8").splitlines():
            text, *box = line.split("\t")
            if len(box) == 4:
                words.append(Word(text, (float(box[0]), float(box[1]), float(box[2]), float(box[3]))))
        record = ImageRegions("a", self.image, tuple(words))
        return Ingest((record,), IngestCounts(images=1, boxes=len(words) + self.more))


class Miscounts(Lines):
    more: ClassVar[int] = 1


class Climbs(Lines):
    image: ClassVar[str] = "../a.jpg"


class Blind(Lines):
    @classmethod
    def recognises(cls, start: str) -> bool:
        return False


class Fragile(Lines):
    def read(self, path: Path, images: Path | None) -> Ingest:
        for line in path.read_text(encoding="utf-8").splitlines():
            line.split("\t")[4]
        return super().read(path, images)


GOOD_FILE = "EXIT\t0.1\t0.2\t0.3\t0.4\nOPEN\t0.5\t0.5\t0.6\t0.6\n"


@pytest.mark.parametrize(
    ("broken", "text", "sentence"),
    [
        (Miscounts, GOOD_FILE, r"counts \(1, 3\) images and boxes where its records hold \(1, 2\)"),
        (Climbs, GOOD_FILE, r"\.\."),
        (Blind, GOOD_FILE, "does not recognise words.txt"),
        (Fragile, GOOD_FILE, "ends in the middle with IndexError"),
        (Lines, "EXIT\t0.1\t0.2\t1.3\t0.4\n", "which is none within the image"),
        (Lines, "EXIT\t0.3\t0.2\t0.1\t0.4\n", "which is none within the image"),
    ],
)
def test_a_format_that_breaks_a_promise_is_named(tmp_path: Path, broken: type[Lines], text: str, sentence: str) -> None:
    file = tmp_path / "words.txt"
    file.write_text(GOOD_FILE, encoding="utf-8")
    check_format(Lines(), file)
    file.write_text(text, encoding="utf-8")
    with pytest.raises(AssertionError, match=sentence):
        check_format(broken(), file)
