"""The checks for selectors, metrics and formats of other packages find what breaks a promise."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from sightline import SELECTORS, LayerSelector, LayerState, Selection, Selector, TokenView
from sightline.contract import check_format, check_metric, check_selector
from sightline.probes.formats import FORMATS, Format
from sightline.probes.regions import ImageRegions, Ingest, IngestCounts, Word
from sightline.statistics.metrics import METRICS, Metric
from tests.heads import made


def test_everything_of_sightline_keeps_the_promises(data: Path) -> None:
    for name in SELECTORS:
        if name != "masks":
            check_selector(made(name))
    for name in METRICS:
        # A number of tokens is no share: there is text.
        counts = {"text_tokens": [7.0, 11.0, 13.0]} if name == "tokens_per_text_token" else {}
        check_metric(METRICS.get(name), **counts)
    check_format(FORMATS.get("textocr")(), data / "mini_textocr" / "TextOCR_mini_val.json")


@dataclass(frozen=True)
class First(Selector):
    """Keeps the first tokens: nothing to complain about. The others below break one promise each."""

    name: ClassVar[str] = "first"

    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(k))


def changed(kind: type[Any], name: str, value: Any, **facts: Any) -> Any:
    """One of a kind that differs in a method or a fact."""
    return type("Changed", (kind,), {name: value, **facts})()


def emptied(k: int, n: int) -> Selection:
    mix = torch.eye(k, n)
    mix[-1] = 0.0
    return Selection(torch.arange(k), mix)


def other_each_time(view: TokenView, k: int, asked: Iterator[int] = count(1)) -> Selection:  # noqa: B008
    return Selection((torch.arange(k) + next(asked)) % len(view.tokens))


def merged(view: TokenView, k: int, merge_at: Any = "tokens") -> Selection:
    return Selection(torch.arange(k), torch.eye(k, len(view.tokens)), merge_at=merge_at)


def after(_: object, k: int) -> Selection:
    return Selection(torch.arange(k))


def last(view: TokenView, k: int) -> Selection:
    return Selection(torch.arange(len(view.tokens) - k, len(view.tokens)))


BROKEN: list[tuple[Callable[[TokenView, int], Selection], dict[str, Any], str]] = [
    (lambda view, k: Selection(torch.arange(k + 1)), {}, "returned 2 tokens where the budget is 1"),
    (lambda view, k: Selection(torch.zeros(k, dtype=torch.int64)), {}, "chose a token twice"),
    (other_each_time, {}, "chooses other tokens when asked again"),
    (merged, {}, "merges and does not say so"),
    (partial(merged, merge_at="vision"), {"merges": True}, "merges states of the tower and does not say so"),
    (lambda view, k: emptied(k, len(view.tokens)), {"merges": True}, "first has an .* that nothing"),
    (after, {"merges": None}, "does not say whether it merges"),
    (
        lambda view, k: Selection(torch.arange(k) + int(view.boxes.sum() > 2 and k < len(view.tokens))),
        {},
        "reads boxes and does",
    ),
    (lambda view, k: after(view.boxes[0], k), {"reads_boxes": True}, "fails on a view without boxes: IndexError"),
    (lambda view, k: after(view.query.argmax(), k), {}, "fails on an empty query: IndexError"),
    (lambda view, k: after(torch.from_numpy(view.tokens.numpy()), k), {}, "fails on half precision: TypeError"),
    (lambda view, k: after(view.tokens[0].zero_(), k), {}, "writes into the view"),
    (after, {"select_many": lambda self, views, k: [last(v, k) for v in views]}, "from several views in one call"),
]
"""How one chooses that breaks a promise, what it says about itself, and what is said about it."""


@dataclass(frozen=True)
class Stops(LayerSelector):
    """Keeps the first tokens after layer 3."""

    name: ClassVar[str] = "stops"

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {3: k}

    def cut(self, state: LayerState, k: int) -> Selection:
        return Selection(torch.arange(k))


SCHEDULES: list[tuple[Callable[[Any, int, int, int], dict[int, int]], str]] = [
    (lambda self, n, k, layers: {3: n}, "the last count of its schedule is not the budget 1"),
    (lambda self, n, k, layers: {1: 1, 2: n, 3: k}, "its schedule does not fall"),
    (lambda self, n, k, layers: {layers: k}, "cuts after a layer that 32 layers have not"),
]


def test_a_selector_that_breaks_a_promise_is_named() -> None:
    check_selector(First())
    for select, facts, sentence in BROKEN:
        with pytest.raises(AssertionError, match=sentence):
            check_selector(changed(First, "select", lambda self, view, k, select=select: select(view, k), **facts))


def test_a_schedule_that_cannot_work_is_named() -> None:
    check_selector(Stops())
    for schedule, sentence in SCHEDULES:
        with pytest.raises(AssertionError, match=sentence):
            check_selector(changed(Stops, "schedule", schedule))


GOOD = Metric("good", "Good", "mean coverage", "higher", "all probes", ("ecr",), lambda rows: rows.columns["ecr"])


METRICAL: list[tuple[dict[str, Any], str]] = [
    ({"definition": ""}, "needs a label and a definition"),
    ({"over": "everybody"}, "there is no population 'everybody'"),
    ({"needs": ()}, "reads the column 'ecr', which its needs do not name"),
    ({"value": lambda rows: rows.columns["ecr"].mean()}, r"gives \(\) values for 48 probes"),
    ({"value": lambda rows: np.log(rows.columns["ecr"])}, r"not finite .* check_metric\(good, COLUMN="),
    ({"share": True}, "a share with values other than 0 and 1"),
    ({"value": lambda rows: rows.columns["ecr"] - rows.columns["ecr"].mean()}, "changes with the probes beside it"),
]


def test_a_metric_that_breaks_a_promise_is_named() -> None:
    check_metric(GOOD)
    for changes, sentence in METRICAL:
        with np.errstate(divide="ignore"), pytest.raises(AssertionError, match=sentence):
            check_metric(replace(GOOD, **changes))


def test_a_column_that_is_no_share_can_be_given() -> None:
    check_metric(replace(GOOD, needs=("rank",), value=lambda rows: 1.0 / rows.columns["rank"]), rank=[1, 2, 3])


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


GOOD_FILE = "EXIT\t0.1\t0.2\t0.3\t0.4\nOPEN\t0.5\t0.5\t0.6\t0.6\n"


def fragile(lines: Lines, path: Path, images: Path | None) -> Ingest:
    for line in path.read_text(encoding="utf-8").splitlines():
        line.split("\t")[4]
    return Lines.read(lines, path, images)


def test_a_format_that_breaks_a_promise_is_named(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text(GOOD_FILE, encoding="utf-8")
    check_format(Lines(), file)
    rows: list[tuple[tuple[str, Any], str, str]] = [
        (("more", 1), GOOD_FILE, r"counts \(1, 3\) images and boxes where its records hold \(1, 2\)"),
        (("image", "../a.jpg"), GOOD_FILE, r"\.\."),
        (("recognises", classmethod(lambda cls, start: False)), GOOD_FILE, "does not recognise words.txt"),
        (("read", fragile), GOOD_FILE, "ends in the middle with IndexError"),
        (("more", 0), "EXIT\t0.1\t0.2\t1.3\t0.4\n", "which is none within the image"),
        (("more", 0), "EXIT\t0.3\t0.2\t0.1\t0.4\n", "which is none within the image"),
    ]
    for change, text, sentence in rows:
        file.write_text(text, encoding="utf-8")
        with pytest.raises(AssertionError, match=sentence):
            check_format(changed(Lines, *change), file)
