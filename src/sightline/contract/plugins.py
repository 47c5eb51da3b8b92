"""What Sightline relies on in formats, metrics and selectors of other packages, as checks for their tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import torch
from torch import Tensor

from sightline.core.selection import (
    PUBLISHED_BLOCKS,
    Budget,
    LayerSelector,
    LayerState,
    Selection,
    Selector,
    TokenView,
    TwoStages,
    of_image,
)
from sightline.core.selection_rules import check_selection, in_native_order, lineage_mask
from sightline.cost.selection import Inputs
from sightline.errors import SightlineError
from sightline.probes.data_rows import start_of
from sightline.probes.fetched_images import check_image_name
from sightline.probes.formats.base import START, Format
from sightline.probes.regions import ImageRegions, is_storable
from sightline.statistics.arm_rows import ArmRows, FloatArray
from sightline.statistics.metrics import POPULATIONS, AnswerKind, Direction, Metric, point, why_not

# How a broken promise is said.


def promise(kept: bool, sentence: str) -> None:
    """Raises where a promise is not kept. Not ``assert``: that is silent under ``python -O``."""
    if not kept:
        raise AssertionError(sentence)


@contextmanager
def as_promises() -> Iterator[None]:
    """What the framework itself refuses during a run is a broken promise too."""
    try:
        yield
    except SightlineError as refused:
        raise AssertionError(str(refused)) from refused


# The promises of an annotation format, on a file of it.


def check_format(reader: Format, path: Path | str, images: Path | str | None = None) -> None:
    """Raises an ``AssertionError`` unless the format reads ``path``, a good file of it, as probe building relies on.

    It recognises the file; it reads the same twice; every box has an area and lies within the image, every text can be
    stored, every image has a name below the image folder and an identifier of its own; the counts are those of the
    records; of a file that ends in the middle it either makes sense or says in one sentence what is wrong.
    """
    path, folder = Path(path), None if images is None else Path(images)
    name = reader.name
    promise(bool(name) and "\n" not in reader.description, f"{name}: a format needs a name and a line of description")
    for file in reader.files(path):
        promise(reader.recognises(start_of(file, START)), f"{name} does not recognise {file.name}")
    with as_promises():
        ingest = reader.read(path, folder)
        promise(reader.read(path, folder) == ingest, f"{name} reads {path.name} otherwise the second time")
    promise(bool(ingest.records or ingest.probes), f"{name} finds nothing in {path.name}")
    for record in ingest.records:
        _check_record(record, name)
    ids = [record.record_id for record in ingest.records]
    promise(len(set(ids)) == len(ids), f"{name} gives two images one identifier")
    found = (len(ingest.records), sum(len(record.words) for record in ingest.records))
    counted = (ingest.counts.images, ingest.counts.boxes)
    promise(found == counted, f"{name} counts {counted} images and boxes where its records hold {found}")
    if path.is_file():
        _check_cut_off(reader, path, folder)


def _check_record(record: ImageRegions, name: str) -> None:
    with as_promises():
        check_image_name(record.image)
    for word in record.words:
        x1, y1, x2, y2 = word.box
        inside = 0.0 <= x1 < x2 <= 1.0 and 0.0 <= y1 < y2 <= 1.0
        promise(
            inside, f"{name}: {word.text!r} of {record.image} has the box {word.box}, which is none within the image"
        )
        promise(is_storable(word.text), f"{name}: a text of {record.image} cannot be stored as UTF-8")


def _check_cut_off(reader: Format, path: Path, images: Path | None) -> None:
    """The beginning of a file, as a download that broke off leaves it."""
    whole = path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        begun = Path(folder) / path.name
        for quarters in (1, 2, 3):
            begun.write_bytes(whole[: len(whole) * quarters // 4])
            try:
                reader.read(begun, images)
            except SightlineError:
                continue
            except Exception as error:
                raise AssertionError(
                    f"{reader.name} answers a file that ends in the middle with {type(error).__name__} ({error}); "
                    "raise a SightlineError that says what is wrong"
                ) from error


# The promises of a metric, on drawn rows.

PROBES = 48
"""Drawn rows; two probes to an image."""


def check_metric(metric: Metric, **columns: Sequence[float]) -> None:
    """Raises an ``AssertionError`` unless the metric keeps what tables, intervals and the gate rely on.

    It reads nothing but what ``needs`` names; it has one finite value for each probe of its population, 0 or 1 where it
    calls itself binary or a share; a probe's value depends on no other probe, which is what lets images be resampled.

    Columns are drawn between 0 and 1, both included, as coverage is; give values of those that are something else,
    repeated as often as needed: ``check_metric(mean_rank, rank=[1, 2, 3])``.
    """
    promise(bool(metric.label and metric.definition), f"{metric.name} needs a label and a definition: tables show them")
    promise(metric.better in get_args(Direction), f"{metric.name}: better is {metric.better!r}")
    promise(metric.answers in get_args(AnswerKind), f"{metric.name}: answers is {metric.answers!r}")
    promise(metric.over in POPULATIONS, f"{metric.name}: there is no population '{metric.over}'")
    rows = _drawn(metric, columns)
    with as_promises():
        reason = why_not(metric, rows)
        promise(not reason, f"{metric.name} has no value on drawn rows: {reason}")
        values = _values(metric, rows)
        concerned = POPULATIONS[metric.over](rows)
        own = values[concerned]
        hint = f"; if a column of it is no share, give values: check_metric({metric.name}, COLUMN=[1, 2, 3])"
        promise(bool(np.isfinite(own).all()), f"{metric.name} is not finite on every probe of its population{hint}")
        if metric.binary or metric.share:
            promise(bool(np.isin(own, (0.0, 1.0)).all()), f"{metric.name} is a share with values other than 0 and 1")
        half = np.arange(PROBES) % 4 < 2
        apart = _values(metric, _some(rows, half))
        same = np.array_equal(apart[concerned[half]], values[half & concerned])
        promise(same, f"{metric.name}: a probe's value changes with the probes beside it")
        promise(np.isfinite(point(metric, rows)), f"{metric.name} is not finite")


def _drawn(metric: Metric, columns: dict[str, Sequence[float]]) -> ArmRows:
    """Rows that have exactly what the metric says it needs."""
    source = np.random.default_rng(17)
    values: dict[str, Any] = {}
    for name in metric.columns:
        drawn = source.uniform(0.0, 1.0, PROBES)
        shares = np.where(drawn < 0.2, 0.0, np.where(drawn > 0.8, 1.0, drawn))
        values[name] = np.rint(drawn) if metric.binary else shares
    values |= {name: np.resize(np.asarray(given, dtype=np.float64), PROBES) for name, given in columns.items()}
    return ArmRows.of(
        np.arange(PROBES) % 2 == 0,
        source.normal(0.0, 1.0, PROBES),
        np.arange(PROBES) // 2,
        has_regions=np.arange(PROBES) % 6 != 5,
        **values,
    )


def _values(metric: Metric, rows: ArmRows) -> FloatArray:
    """(n,) one value per probe."""
    try:
        values = np.asarray(metric.value(rows), dtype=np.float64)
    except KeyError as missing:
        raise AssertionError(f"{metric.name} reads the column {missing}, which its needs do not name") from missing
    count = len(rows.labels)
    promise(values.shape == (count,), f"{metric.name} gives {values.shape} values for {count} probes")
    return values


def _some(rows: ArmRows, chosen: np.ndarray) -> ArmRows:
    assert rows.margins is not None
    columns: dict[str, Any] = {name: values[chosen] for name, values in rows.columns.items()}
    images = rows.image_ids[rows.image_index[chosen]]
    return ArmRows.of(
        rows.labels[chosen], rows.margins[chosen], images, has_regions=rows.has_regions[chosen], **columns
    )


# The promises of a pruning method, on drawn inputs instead of a model's.

SIZES = (64, 60)
"""Visual tokens: a square raster, and one that is none."""
BUDGETS = (Budget.tokens(1), Budget.ratio(0.3), Budget.ratio(1.0))
LAYERS = 32
ELSEWHERE = ((0.6, 0.05, 0.95, 0.3),)
"""Other boxes than those of the drawn inputs."""


def check_selector(selector: Selector | LayerSelector) -> None:
    """Raises an ``AssertionError`` unless the method keeps what an audit relies on.

    It keeps K distinct tokens, for a budget of one token, of 30 % and of all; every anchor is in its lineage; it merges
    if and only if it says so; the same view leads to the same choice; it writes into nothing that it is shown; it takes
    half precision, no boxes and an empty query; the choice depends on boxes only if it says so; several views in one
    call are chosen from as each alone. One that prunes between layers: its schedule falls to K, and so on for each cut.
    """
    promise(isinstance(selector.name, str) and bool(selector.name), "a method needs a name")
    promise(selector.merges is not None, f"{selector.name} does not say whether it merges: set merges on its class")
    promise(selector.reads_boxes is not None, f"{selector.name} does not say whether it reads boxes: set reads_boxes")
    if selector.resizes:
        return  # it chooses among no tokens
    other = None if selector.form else selector.other_form(PUBLISHED_BLOCKS)
    if other is not None:
        promise(bool(other.form), f"{selector.name}: its other form does not say where it was published (form)")
        promise(other.merges == selector.merges, f"{selector.name}: its other form merges otherwise than it says")
        check_selector(cast(Any, other))
    for n in SIZES:
        for budget in BUDGETS:
            k = selector.count("", n, budget)
            with as_promises(), torch.inference_mode():
                if isinstance(selector, TwoStages):
                    _check_before(selector, n, k)  # type: ignore[arg-type]
                if isinstance(selector, LayerSelector) or selector.inside:
                    _check_inside(selector, n, k)  # type: ignore[arg-type]
                else:
                    _check_before(selector, n, k)


def _check_before(selector: Selector, n: int, k: int) -> None:
    name = selector.name
    view = Inputs(n, torch.device("cpu"), seed=n + k).view(of_image(selector.needs))
    before = _copies(view)
    chosen = selector.select(view, k)
    check_selection(chosen, n, k, name)
    _check_lineage(chosen, n, name, merges=bool(selector.merges))
    in_tower = chosen.mix is not None and chosen.merge_at == "vision"
    promise(
        selector.merges_vision or not in_tower, f"{name} merges states of the tower and does not say so (merges_vision)"
    )
    promise(_same_tensors(before, _copies(view)), f"{name} writes into the view that other methods see too")
    promise(_same(chosen, selector.select(view, k)), f"{name} chooses other tokens when asked again")
    moved = replace(view, boxes=torch.tensor(ELSEWHERE, dtype=torch.float64))
    if not selector.reads_boxes:
        promise(_same(chosen, selector.select(moved, k)), f"{name} reads boxes and does not say so (reads_boxes)")
    for what, other in _unusual(view).items():
        try:
            check_selection(selector.select(other, k), n, k, name)
        except Exception as error:
            raise AssertionError(f"{name} fails on {what}: {type(error).__name__}: {error}") from error
    together = selector.select_many([view, moved], k)
    alone = [selector.select(each, k) for each in (view, moved)]
    promise(
        len(together) == 2 and all(map(_same, together, alone)),
        f"{name} chooses otherwise from several views in one call (select_many) than from each alone",
    )


def _unusual(view: TokenView) -> dict[str, TokenView]:
    """Views that an audit may show, by what is unusual about them."""
    half = {name: signal.bfloat16() for name, signal in view.signals.items()}
    return {
        "half precision": replace(view, tokens=view.tokens.bfloat16(), query=view.query.bfloat16(), signals=half),
        "a view without boxes": replace(view, boxes=view.boxes[:0]),
        "an empty query": replace(view, query=view.query[:0]),
    }


def _check_inside(selector: LayerSelector, n: int, k: int) -> None:
    name = selector.name
    schedule = selector.schedule(n, k, LAYERS)
    counts = [schedule[layer] for layer in sorted(schedule)]
    if selector.budget_counts == "kept":
        promise(
            bool(counts) and counts[-1] == k, f"{name}: the last count of its schedule is not the budget {k}: {counts}"
        )
    promise(counts == sorted(counts, reverse=True) and counts[0] <= n, f"{name}: its schedule does not fall: {counts}")
    promise(all(0 <= layer < LAYERS for layer in schedule), f"{name} cuts after a layer that {LAYERS} layers have not")
    needs = selector.needs - of_image(selector.needs) if isinstance(selector, TwoStages) else selector.needs
    state = replace(Inputs(n, torch.device("cpu"), seed=n + k).state(needs), layer=min(schedule), budget=k)
    before = _copies(state)
    first = next((count for count in counts if count < n), n)  # a layer past which all continue is none to choose at
    chosen = selector.cut(state, first)
    check_selection(chosen, n, len(chosen.anchors) if selector.varies else first, name)
    promise(len(chosen.anchors) <= first, f"{name} lets more tokens continue than its schedule allows")
    _check_lineage(chosen, n, name, merges=bool(selector.merges))
    promise(_same_tensors(before, _copies(state)), f"{name} writes into the state that it is shown")
    again = selector.cut(replace(state, memory={}), first)
    promise(_same(chosen, again), f"{name} chooses other tokens when asked again")


def _check_lineage(chosen: Selection, n: int, name: str, *, merges: bool) -> None:
    ordered = in_native_order(chosen)
    placed = ordered.anchors[ordered.anchors >= 0].cpu()
    promise(bool(lineage_mask(ordered, n)[placed].all()), f"{name} has an anchor that nothing of flows into its output")
    promise(merges or chosen.mix is None, f"{name} merges and does not say so (merges)")
    if chosen.mix is not None:
        promise(bool(torch.isfinite(chosen.mix).all()), f"{name} mixes with weights that are not finite")
        promise(bool((chosen.mix != 0).any(dim=1).all()), f"{name} has an output that nothing flows into")


def _copies(shown: TokenView | LayerState) -> dict[str, Tensor]:
    """Every tensor of a view or a state, copied."""
    values: dict[str, Any] = {field.name: getattr(shown, field.name) for field in fields(shown)}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    return {name: value.clone() for name, value in (tensors | dict(shown.signals)).items()}


def _same_tensors(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def _same(first: Selection, second: Selection) -> bool:
    """Whether two selections keep the same tokens, in native order, from the same sources."""
    one, other = in_native_order(first), in_native_order(second)
    if (one.mix is None) != (other.mix is None) or not torch.equal(one.anchors, other.anchors):
        return False
    return one.mix is None or other.mix is None or torch.equal(one.mix != 0, other.mix != 0)
