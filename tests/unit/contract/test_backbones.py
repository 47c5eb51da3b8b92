"""``check_backbone`` passes an architecture that keeps its promises and names what another breaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from sightline.backbones import Backbone, ImageOptions, load_backbone
from sightline.backbones.general import General
from sightline.backbones.images import option
from sightline.backbones.llava import Llava
from sightline.backbones.loading import backbone_class
from sightline.backbones.prompting import Layout
from sightline.contract import check_backbone, tiny_tokenizer, write_checkpoint
from sightline.core.prefix import Encoded
from sightline.core.selection import PositionPolicy
from sightline.core.span import SlotPositions
from sightline.geometry.cells import Cells
from tests.zoo import build

SIZE = ((150, 100),)


@pytest.fixture(scope="module")
def separated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiles stitched together, a newline token behind every row."""
    return build("llava_next", tmp_path_factory.mktemp("zoo") / "llava_next")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One square picture, nothing between its tokens; a type that transformers does not know."""
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    words = tiny_tokenizer("<image>")
    sides = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**sides, image_size=56, patch_size=14),
        text_config=LlamaConfig(**sides, vocab_size=words.get_vocab_size()),
        image_token_index=words.token_to_id("<image>"),
        vision_feature_layer=-1,
    )
    return write_checkpoint(
        tmp_path_factory.mktemp("tiny") / "plain",
        LlavaForConditionalGeneration(config),
        words,
        processor={"processor_class": "LlavaProcessor", "patch_size": 14, "num_additional_image_tokens": 1,
                   "vision_feature_select_strategy": "default"},
        image_processor={"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 56},
                         "crop_size": {"height": 56, "width": 56}},
        model_type="plain_vl",
    )  # fmt: skip


class Plain(General):
    """Nothing to complain about. The others below break one promise each."""

    model_class = "LlavaForConditionalGeneration"


class WithSignals(Plain):
    class_token = True

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        return torch.arange(1, 17)[:, None]


def test_a_tower_of_its_own_and_the_general_route_keep_the_promises(data: Path) -> None:
    check_backbone(Llava, data / "tiny" / "llava", sizes=SIZE)
    check_backbone(General, data / "tiny" / "llava", sizes=SIZE)


def test_separators_and_three_axes_keep_the_promises(separated: Path, tmp_path: Path) -> None:
    check_backbone(backbone_class("llava_next"), separated, sizes=SIZE)
    check_backbone(backbone_class("qwen2_5_vl"), build("qwen2_5_vl", tmp_path), sizes=SIZE)


def test_a_type_that_transformers_does_not_know_is_read_as_the_class_says(plain: Path) -> None:
    check_backbone(Plain, plain, sizes=SIZE)
    check_backbone(WithSignals, plain, sizes=SIZE)
    loaded = Plain.load(
        str(plain), dtype=torch.float32, device=torch.device("cpu"), attention="sdpa", options=ImageOptions()
    )
    assert loaded.model.config.model_type == "plain_vl"
    with pytest.raises(Exception, match="plain_vl"):
        load_backbone(str(plain))


SIGNALS = tuple(f"vision.{kind}@-2" for kind in ("value", "cls_value", "key", "cls_key", "cls_attention", "received"))


def test_what_the_general_route_takes_down_is_what_the_towers_own_file_computes(data: Path) -> None:
    folder = str(data / "tiny" / "llava")
    own = load_backbone(folder, device="cpu")

    class Taken(General):
        class_token = True

        def token_rows(self, size: tuple[int, int]) -> Tensor:
            return torch.arange(1, own.token_count(size) + 1)[:, None]

    taken = Taken.load(
        folder, dtype=torch.float32, device=torch.device("cpu"), attention="sdpa", options=ImageOptions()
    )
    image = Image.effect_noise((150, 100), 90).convert("RGB")
    first, second = (each.encode([each.preprocess(image)], SIGNALS)[0] for each in (own, taken))
    with torch.inference_mode():
        for name in SIGNALS:
            torch.testing.assert_close(taken.vision_signal(name, second), own.vision_signal(name, first))


class OtherFeatures(Plain):
    def features(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        tokens, levels = super().features(inputs)
        return tokens * 1.01, levels


class Shifted(Plain):
    def cells(self, size: tuple[int, int], inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        cells, sourced, layout = super().cells(size, inputs)
        return cells + 0.02, sourced, layout


class Renumbered(Plain):
    def visual_positions(
        self, encoded: Encoded, slots: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        return super().visual_positions(encoded, slots, start, "compact")


class NeverCompact(Plain):
    def visual_positions(
        self, encoded: Encoded, slots: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        return super().visual_positions(encoded, slots, start, "preserve")


class Backwards(Plain):
    def span_positions(self, ids: tuple[int, ...], inputs: Mapping[str, Tensor]) -> SlotPositions:
        return SlotPositions(torch.arange(len(ids)).flip(0)[None], len(ids))


class Promising(Plain):
    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        raise NotImplementedError("later")


class Smeared(Plain):
    """A quarter of every token's signal is that of its neighbour."""

    class_token = True

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        own = torch.arange(1, 17)
        return torch.stack([own, own, own, own.roll(-1)], dim=1)


class Unled(Plain):
    """The right rows, of a tower whose class token nobody mentions."""

    class_token = False

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        return torch.arange(1, 17)[:, None]


class OneRowTooMany(Plain):
    def token_rows(self, size: tuple[int, int]) -> Tensor:
        return torch.arange(17)[:, None]


class FromTheClassToken(Plain):
    """The tower's first row is the class token's: every token is read one place too early."""

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        return torch.arange(16)[:, None]


class Generous(Plain):
    fixed_tokens = None

    def fitting(self, size: tuple[int, int], k: int) -> ImageOptions:
        return self.options


@dataclass(frozen=True)
class Wordless(ImageOptions):
    edge: int | None = option(None, "Edge")


class Terse(Plain):
    image_options = Wordless


class OneMore(Plain):
    def token_count(self, size: tuple[int, int]) -> int:
        return super().token_count(size) + 1


class Blurred(Plain):
    """Whoever is encoded with others is changed by them."""

    def vision(self, batch: Any, needs: frozenset[str]) -> list[Encoded]:
        found = super().vision(batch, needs)
        for each in found[1:]:
            each.tokens.add_(found[0].tokens.mean())
        return found


@pytest.mark.parametrize(("kind", "words"), [
    (OtherFeatures, "logits differ from the model's own by"),
    (Shifted, "pixels away"),
    (Renumbered, "preserve gives a kept token another position|preserve moves the text"),
    (NeverCompact, "compact leaves the gaps"),
    (Backwards, "logits differ from the model's own by"),
        (Promising, "it serves vision.cls_attention@-1 and fails: NotImplementedError: later"),
        (Smeared, "token 0 is declared to be made from rows .1, 1, 1, 2. of the vision tower and is made from .1.,"),
        (Unled, "class_token is False, and 1 rows of every sequence come from no pixel"),
    (OneRowTooMany, r"vision.received@-1 is \(17,\), not 16 along axis 0"),
    (FromTheClassToken, "signals are read from rows that it is not made from"),
    (Generous, "asked for at most 8 tokens and makes 16"),
    (Terse, "image option edge needs a sentence"),
    (OneMore, "token_count says 17, the tower makes 16"),
    (Blurred, "when encoded with others"),
])  # fmt: skip
def test_a_broken_promise_is_named(plain: Path, kind: type[Backbone], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_backbone(kind, plain, sizes=((150, 100), (100, 150)))


class OfNoRow(General):
    """Separators that belong to a part of a row."""

    def vision(self, batch: Any, needs: frozenset[str]) -> list[Encoded]:
        found = super().vision(batch, needs)
        for each in found:
            assert each.separators is not None
            each.separators.owners[0] = torch.tensor([1, 2])
        return found


class AllSourced(General):
    """Newline tokens taken for tokens of the image."""

    def cells(self, size: tuple[int, int], inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        cells, sourced, _ = super().cells(size, inputs)
        count = len(sourced)
        return cells[torch.arange(count) % len(cells)], torch.ones(count, dtype=torch.bool), ((1, count),)


@pytest.mark.parametrize(("kind", "words"), [
    (OfNoRow, "belongs to the tokens 1 to 2, which are no rows"),
    (AllSourced, "of its features have a source"),
])  # fmt: skip
def test_a_separator_that_is_misplaced_or_denied_is_named(separated: Path, kind: type[Backbone], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_backbone(kind, separated, sizes=SIZE)
