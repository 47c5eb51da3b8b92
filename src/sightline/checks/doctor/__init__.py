"""``sightline doctor``: is what is audited the model itself? All checks on one checkpoint, and facts beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from sightline.backbones import Backbone, load_backbone
from sightline.backbones.loading import Served, methods_that_run, served_by
from sightline.checks.doctor.cells import cell_count, cells_by_ramps, check_bright_word, signal_rows
from sightline.checks.doctor.checks import (
    image_batches,
    language_batches,
    one_token_answers,
    own_logits,
    own_prompt,
    policies_agree_unpruned,
    policies_order_pruned,
    prefix_is_shorter,
    stage_facts,
)
from sightline.checks.doctor.examination import (
    PROBE,
    Check,
    Examination,
    ExaminedPage,
    LitTokens,
    PageLayout,
    drawn_image,
)
from sightline.checks.doctor.methods import each_method
from sightline.device.work import is_out_of_memory
from sightline.errors import SightlineError, named_line
from sightline.probes.images import open_image

__all__ = ["PROBE", "Check", "Examination", "drawn_image", "examine", "examined"]

SEPARATORS = "kept with the row or tile that they belong to, dropped when nothing of it is kept; no budget counts them"


def examine(
    model: str,
    image: Path | None = None,
    *,
    dtype: str = "float32",
    device: str = "auto",
    attention: str = "sdpa",
    image_options: Mapping[str, Any] | None = None,
    methods: bool = True,
) -> Examination:
    """Every check, in words. A failed one says what differs and by how much; without cells those about them are left.

    Without ``methods`` none is run: which are served is then told by what they need alone.
    """
    opened = open_image(image.parent, image.name) if image else drawn_image()
    backbone = load_backbone(model, dtype=dtype, device=device, attention=attention, options=image_options)
    return examined(backbone, opened, Path(model).name, methods=methods)


def examined(backbone: Backbone, image: Image.Image, name: str, *, methods: bool = True) -> Examination:
    """A loaded model and any image; ``name`` is what the checkpoint is called."""
    page = encoded_page(backbone, image, name)
    listed = methods_that_run(Served.by(backbone))
    lit: list[LitTokens | None] = []

    def bright_word(page: ExaminedPage) -> Check:
        check, seen = check_bright_word(page)
        lit.append(seen)
        return check

    def run_methods(page: ExaminedPage) -> Check:
        check, ran = each_method(page, listed, made["signal_rows"])
        listed.update(ran)
        return check

    checks: dict[str, Callable[[ExaminedPage], Check | None]] = {
        "cell_count": cell_count,
        "cells_by_ramps": cells_by_ramps,
        "bright_word": bright_word,
        "own_prompt": own_prompt,
        "own_logits": own_logits,
        "positions_unpruned": policies_agree_unpruned,
        "positions_pruned": policies_order_pruned,
        "shorter_prefix": prefix_is_shorter,
        "language_batches": language_batches,
        "image_batches": image_batches,
        "answer_lengths": one_token_answers,
    }
    if methods:
        checks |= {"signal_rows": signal_rows, "methods": run_methods}
    made: dict[str, Check | None] = {}
    for called, check in checks.items():
        if backbone.no_cells is not None and called in OF_CELLS:
            words = f"{called.replace('_', ' ')}: not applicable to a model without cells"
            made[called] = Check(True, words, name=called, applies=False)
        else:
            made[called] = run_check(called, check, page)
    ramps = made["cells_by_ramps"]
    known = {**facts(page, name, None if ramps is None else ramps.measured.get("seconds")), "selectors": listed}
    seen = PageLayout(image, page.encoded.cells, page.encoded.layout, lit[0] if lit else None)
    checks_made = tuple(check for check in made.values() if check is not None)
    return Examination(checks_made, known, seen if page.encoded.placed else None)


OF_CELLS = ("cell_count", "cells_by_ramps", "bright_word", "positions_pruned", "shorter_prefix", "signal_rows")
"""Checks of cells, and of pruning by them."""


def encoded_page(backbone: Backbone, image: Image.Image, name: str) -> ExaminedPage:
    """Refuses, by type and reason, a model whose image does not become tokens with cells."""
    try:
        page = ExaminedPage.of(backbone, image)
        page.prompt  # noqa: B018
    except Exception as error:  # the code of a type that nobody has tried yet
        if is_out_of_memory(error):
            raise
        reason = (
            str(error) if isinstance(error, SightlineError) else f"its own code fails on a page ({named_line(error)})"
        )
        raise SightlineError(f"{name} is a '{backbone.model.config.model_type}' model: {reason}") from error
    return page


def run_check(name: str, check: Callable[[ExaminedPage], Check | None], page: ExaminedPage) -> Check | None:
    """A check that cannot be carried out has failed; None: it does not concern this model."""
    try:
        made = check(page)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return Check(False, f"{name.replace('_', ' ')}: could not be tried ({named_line(error)})", name=name)
    return None if made is None else replace(made, name=name)


def fact_or(otherwise: Any, fact: Callable[[], Any]) -> Any:
    """A fact, unless the model fails on the way to it: some check has said so."""
    try:
        return fact()
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return otherwise


def facts(page: ExaminedPage, name: str, finding_cells: float | None) -> dict[str, Any]:
    """What is neither right nor wrong; docs/doctor.md names the keys."""
    backbone, encoded = page.backbone, page.encoded
    separators = encoded.slots - encoded.n
    return {
        "model": name,
        "model_type": str(backbone.model.config.model_type),
        "served_by": served_by(backbone),
        "dtype": str(backbone.language.dtype).removeprefix("torch."),
        "device": str(backbone.language.device),
        "image": {
            "size": list(page.image.size),
            "tokens": encoded.n,
            "slots": encoded.slots,
            "layout": [list(block) for block in encoded.layout] if encoded.placed else [],
            "deepstack_levels": len(encoded.deepstack),
            "no_cells": backbone.no_cells,
        },
        "positions": {"axes": backbone.axes, "usual": backbone.paper_positions},
        "separators": {
            "count": separators,
            "policy": SEPARATORS,
            "staying": fact_or({}, lambda: {arm: page.prefix(arm).separators for arm in page.pruned if separators}),
        },
        "stages": fact_or([], lambda: stage_facts(page, finding_cells)),
    }
