"""The checks for selectors, metrics and formats of other packages find what breaks a promise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from sightline.contract import check_format, check_metric, check_selector
from sightline.core.selection import LayerSelector, LayerState, Selection, Selector, TokenView
from sightline.probes.formats import FORMATS, Format
from sightline.probes.regions import ImageRegions, Ingest, IngestCounts, Word
from sightline.selectors import SELECTORS
from sightline.statistics.metrics import METRICS, Metric

# ``check_selector`` passes what keeps its promises and names what does not.


@pytest.mark.parametrize("name", [name for name in SELECTORS if name != "masks"])
def test_every_method_of_sightline_keeps_the_promises(name: str) -> None:
    kind: Any = SELECTORS.get(name)
    check_selector(kind())


@dataclass(frozen=True)
class First(Selector):
    """Keeps the first tokens: nothing to complain about. The others below break one promise each."""

    name: ClassVar[str] = "first"

    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(k))


class OneTooMany(First):
    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(k + 1))


class Twice(First):
    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.zeros(k, dtype=torch.int64))


class Forgetful(First):
    asked: ClassVar[int] = 0

    def select(self, view: TokenView, k: int) -> Selection:
        Forgetful.asked += 1
        return Selection((torch.arange(k) + Forgetful.asked) % len(view.tokens))


class SecretMerge(First):
    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(k), torch.eye(k, len(view.tokens)))


class InTheTower(First):
    merges: ClassVar[bool] = True

    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(k), torch.eye(k, len(view.tokens)), merge_at="vision")


class Empty(First):
    merges: ClassVar[bool] = True

    def select(self, view: TokenView, k: int) -> Selection:
        mix = torch.eye(k, len(view.tokens))
        mix[-1] = 0.0
        return Selection(torch.arange(k), mix)


class Silent(First):
    merges: ClassVar[bool | None] = None


class SecretBoxes(First):
    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(k) + int(view.boxes.sum() > 2.0 and k < len(view.tokens)))


class NeedsBoxes(First):
    reads_boxes: ClassVar[bool] = True

    def select(self, view: TokenView, k: int) -> Selection:
        view.boxes[0]
        return Selection(torch.arange(k))


class NeedsQuery(First):
    def select(self, view: TokenView, k: int) -> Selection:
        view.query.argmax()
        return Selection(torch.arange(k))


class FullPrecision(First):
    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.from_numpy(view.tokens.numpy()).norm(dim=1).topk(k).indices)


class Scribbles(First):
    def select(self, view: TokenView, k: int) -> Selection:
        view.tokens[0] = 0.0
        return Selection(torch.arange(k))


class OtherTogether(First):
    def select_many(self, views: Any, k: int) -> list[Selection]:
        return [Selection(torch.arange(len(view.tokens) - k, len(view.tokens))) for view in views]


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (OneTooMany, "returned 2 tokens where the budget is 1"),
        (Twice, "chose a token twice"),
        (Forgetful, "chooses other tokens when asked again"),
        (SecretMerge, "merges and does not say so"),
        (InTheTower, "merges states of the tower and does not say so"),
        (Empty, "first has an (anchor that nothing of flows into its output|output that nothing flows into)"),
        (Silent, "does not say whether it merges"),
        (SecretBoxes, "reads boxes and does not say so"),
        (NeedsBoxes, "fails on a view without boxes: IndexError"),
        (NeedsQuery, "fails on an empty query: IndexError"),
        (FullPrecision, "fails on half precision: TypeError"),
        (Scribbles, "writes into the view"),
        (OtherTogether, "from several views in one call"),
    ],
)
def test_a_broken_promise_is_named(broken: type[First], sentence: str) -> None:
    check_selector(First())
    with pytest.raises(AssertionError, match=sentence):
        check_selector(broken())


@dataclass(frozen=True)
class Stops(LayerSelector):
    """Keeps the first tokens after layer 3."""

    name: ClassVar[str] = "stops"

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {3: k}

    def cut(self, state: LayerState, k: int) -> Selection:
        return Selection(torch.arange(k))


class MissesTheBudget(Stops):
    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {3: n}


class Rises(Stops):
    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {1: 1, 2: n, 3: k}


class TooDeep(Stops):
    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {layers: k}


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (MissesTheBudget, "the last count of its schedule is not the budget 1"),
        (Rises, "its schedule does not fall"),
        (TooDeep, "cuts after a layer that 32 layers have not"),
    ],
)
def test_a_schedule_that_cannot_work_is_named(broken: type[Stops], sentence: str) -> None:
    check_selector(Stops())
    with pytest.raises(AssertionError, match=sentence):
        check_selector(broken())


# ``check_metric`` and ``check_format`` pass what keeps its promises and name what does not.


@pytest.mark.parametrize("name", list(METRICS))
def test_every_metric_of_sightline_keeps_the_promises(name: str) -> None:
    counts = {"text_tokens": [7.0, 11.0, 13.0]} if name == "tokens_per_text_token" else {}  # no share: there is text
    check_metric(METRICS.get(name), **counts)


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
