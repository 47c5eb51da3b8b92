"""A run of every architecture, and what no batch, order or resumption may change."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from sightline.answering.materialise import all_needs
from sightline.arms.arm import Arm, parse_arm
from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.core.selection import Budget, LayerSelector, LayerState, Selection, TwoStages
from sightline.selectors import SELECTORS
from tests.answers import score_arm
from tests.contract.cast import MODELS, arm_of, servable, stage
from tests.refusals import Refused

# All servable methods of an architecture in one audit: what ``sightline run`` writes for each of them.

IMAGES = 2


@pytest.mark.parametrize("model", MODELS)
def test_every_servable_method_writes_its_rows(data: Path, tmp_path: Path, model: str) -> None:
    methods = [name for name in servable(model) if name != "masks"]
    arms = [arm_of(name, "0.3").text for name in methods]
    config = AuditConfig(
        model=str(data / "tiny" / model), clip=str(data / "tiny" / "clip"), dtype="float32", device="cpu",
        probes=data / "golden_e2e/inputs/probes_dev.jsonl", images=data / "mini_textocr", image_prefix="mini_textocr",
        out=tmp_path / "run", arms=arms, limit=IMAGES, image_options=dict(MODELS[model]),
    )  # fmt: skip
    rows = audit(config).rows.to_pandas()
    assert rows.groupby("selector").size().nunique() == 1, "an arm has more rows than another"
    assert set(rows["selector"]) == set(methods)
    assert rows["image_id"].nunique() == IMAGES
    assert rows.groupby("selector")["probe_id"].nunique().min() >= IMAGES

    for column in ("ecr", "anchor_ecr", "center_recall", "patch_recall", "lpp", "geo_f1", "worst_region"):
        assert rows[column].notna().all(), column
        assert rows[column].between(0.0, 1.0).all(), column
    assert (rows["anchor_ecr"] <= rows["ecr"] + 1e-12).all(), "anchors cannot cover more than the lineage"

    pruned = rows[rows["selector"] != "full"]
    left = pruned["selector"].map(lambda name: SELECTORS.get(name).budget_counts == "kept")
    assert (pruned[left]["k_tokens"] == -(-pruned[left]["n_tokens"] * 3 // 10)).all()
    assert (pruned[~left]["keep"] == pruned[~left]["keep_layer_mean"]).all()
    assert (pruned[~left]["keep"] > 0.0).all()
    assert (pruned["sequence_full"] - pruned["sequence_pruned"] == pruned["n_tokens"] - pruned["k_tokens"]).all()
    for name, group in rows.groupby("selector"):
        inside = hasattr(SELECTORS.get(str(name)), "cut")
        assert group["k_layers"].notna().all() == inside, f"{name}: tokens per layer"
        if inside:
            for layers, n, k in zip(group["k_layers"], group["n_tokens"], group["k_tokens"], strict=True):
                assert layers[0] == n or issubclass(SELECTORS.get(str(name)), TwoStages)
                assert layers[-1] == k
    assert all(json.loads(text) is not None for text in rows["arguments"])


# What running selectors must never do: leave hooks behind, change the model, encode an image twice.

pytestmark = pytest.mark.xdist_group("contract-invariants")


def hooks(model: torch.nn.Module) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


@dataclass(frozen=True)
class Breaks(LayerSelector):
    """Raises in the middle of the language model."""

    name: ClassVar[str] = "breaks"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.attention", "lm.key"})

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {1: k}

    def cut(self, state: LayerState, k: int) -> Selection:
        raise ValueError("broken on purpose")


@pytest.mark.parametrize("model", MODELS)
def test_hooks_are_gone_after_an_exception(data: Path, model: str, refused: Refused) -> None:
    here = stage(data, model, "float32")
    before = hooks(here.backbone.model)
    broken = replace(here.pixels[0], data=here.pixels[0].data[..., :-1])
    needs = all_needs((arm_of(name, "0.3") for name in servable(model) if name != "masks"), here.backbone)
    with pytest.raises((RuntimeError, ValueError)):
        here.backbone.encode([broken], needs)
    assert hooks(here.backbone.model) == before

    breaks: Any = Breaks()
    arm = Arm(breaks, Budget.ratio(0.3), "breaks:0.3")
    refused("on purpose", score_arm, here.step, arm, here.probes, here.encoded, "preserve", 16384)
    assert hooks(here.backbone.model) == before


@pytest.mark.parametrize("model", MODELS)
def test_no_selector_changes_anything_or_has_the_image_encoded_again(data: Path, tmp_path: Path, model: str) -> None:
    """Bit for bit: the unpruned answer, the weights, and the images' tokens. The tower runs once for all methods."""
    here = stage(data, model, "float32")
    arms = [arm_of(name, "0.3", here.masks(tmp_path, "0.3") if name == "masks" else None) for name in servable(model)]
    calls: list[int] = []

    def reference() -> list[tuple[Any, ...]]:
        whole = score_arm(here.step, parse_arm("full"), here.probes, here.encoded, "preserve", 16384)
        return [(each.answer, each.anchors.tobytes(), each.lineage.tobytes(), each.k) for each in whole]

    before = reference()
    weights = {name: value.clone() for name, value in here.backbone.model.state_dict().items()}
    handle = here.backbone.vision_blocks[0].register_forward_hook(lambda *_: calls.append(1))
    (image,) = here.backbone.encode([here.pixels[0]], all_needs(arms, here.backbone))
    tokens = image.tokens.clone()
    for arm in arms:
        score_arm(here.step, arm, here.probes[:1], [image], "preserve", 16384)
    handle.remove()
    assert len(calls) == 1
    assert torch.equal(image.tokens, tokens), "a selector wrote into the image's tokens"
    assert reference() == before
    for name, value in here.backbone.model.state_dict().items():
        assert torch.equal(value, weights[name]), f"{name} changed"
    for item, seen in zip(here.pixels, here.encoded, strict=True):
        assert torch.equal(here.backbone.encode([item])[0].tokens, seen.tokens), "asking for signals changes the tokens"
