"""``check_backbone`` passes an architecture that keeps its promises and names what another breaks."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from sightline.backbones import ImageOptions, load_backbone
from sightline.backbones.general import General
from sightline.backbones.images import option
from sightline.backbones.llava import Llava
from sightline.backbones.loading import backbone_class
from sightline.contract import check_backbone, tiny_tokenizer, write_checkpoint
from sightline.core.prefix import Encoded
from sightline.core.selection import PositionPolicy
from sightline.core.span import SlotPositions

SIZE = ((150, 100),)
PLAINLY: dict[str, Any] = {
    "dtype": torch.float32,
    "device": torch.device("cpu"),
    "attention": "sdpa",
    "options": ImageOptions(),
}


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


def test_own_towers_general_route_separators_and_axes_keep_promises(data: Path, zoo: Callable[[str], Path]) -> None:
    check_backbone(Llava, data / "tiny" / "llava", sizes=SIZE)
    check_backbone(General, data / "tiny" / "llava", sizes=SIZE)
    for kind in ("llava_next", "qwen2_5_vl"):  # tiles stitched together, a newline token behind every row; three axes
        check_backbone(backbone_class(kind), zoo(kind), sizes=SIZE)


def test_a_type_that_transformers_does_not_know_is_read_as_the_class_says(plain: Path) -> None:
    check_backbone(Plain, plain, sizes=SIZE)
    with_signals = type("WithSignals", (Plain,), {"class_token": True, "token_rows": rows(1, 17)})
    check_backbone(with_signals, plain, sizes=SIZE)
    loaded = Plain.load(str(plain), **PLAINLY)
    assert loaded.model.config.model_type == "plain_vl"
    with pytest.raises(Exception, match="plain_vl"):
        load_backbone(str(plain))


SIGNALS = tuple(f"vision.{kind}@-2" for kind in ("value", "cls_value", "key", "cls_key", "cls_attention", "received"))


def test_what_the_general_route_takes_down_is_what_the_towers_own_file_computes(data: Path) -> None:
    folder = str(data / "tiny" / "llava")
    own = load_backbone(folder, device="cpu")
    with_rows = {"class_token": True, "token_rows": lambda self, size: rows(1, own.token_count(size) + 1)(self, size)}
    taken = cast(Any, type("Taken", (General,), with_rows)).load(folder, **PLAINLY)
    image = Image.effect_noise((150, 100), 90).convert("RGB")
    first, second = (each.encode([each.preprocess(image)], SIGNALS)[0] for each in (own, taken))
    with torch.inference_mode():
        for name in SIGNALS:
            torch.testing.assert_close(taken.vision_signal(name, second), own.vision_signal(name, first))


@dataclass(frozen=True)
class Wordless(ImageOptions):
    edge: int | None = option(None, "Edge")


def other_features(self: Any, inputs: Any) -> Any:
    tokens, levels = Plain.features(self, inputs)
    return tokens * 1.01, levels


def shifted(self: Any, size: Any, inputs: Any) -> Any:
    cells, sourced, layout = Plain.cells(self, size, inputs)
    return np.where(np.arange(len(cells))[:, None] == 5, (cells + 0.02).clip(0, 1), cells), sourced, layout


def always(policy: PositionPolicy) -> Any:
    """Positions of one policy, whichever is asked for."""
    return lambda self, encoded, slots, start, _: Plain.visual_positions(self, encoded, slots, start, policy)


def blurred(self: Any, batch: Any, needs: frozenset[str]) -> list[Encoded]:
    """Whoever is encoded with others is changed by them."""
    found = Plain.vision(self, batch, needs)
    for each in found[1:]:
        each.tokens.add_(found[0].tokens.mean())
    return found


def rows(*ends: int) -> Any:
    return lambda self, size: torch.arange(*ends)[:, None]


def smeared(self: Any, size: Any) -> Tensor:
    """A quarter of every token's signal is that of its neighbour."""
    own = torch.arange(1, 17)
    return torch.stack([own, own, own, own.roll(-1)], dim=1)


def later(self: Any, name: str, encoded: Encoded) -> Tensor:
    raise NotImplementedError("later")


def of_no_row(self: Any, batch: Any, needs: frozenset[str]) -> list[Encoded]:
    """Separators that belong to a part of a row."""
    found = General.vision(self, batch, needs)
    for each in found:
        assert each.separators is not None
        each.separators.owners[0] = torch.tensor([1, 2])
    return found


def all_sourced(self: Any, size: Any, inputs: Any) -> Any:
    """Newline tokens taken for tokens of the image."""
    cells, sourced, _ = General.cells(self, size, inputs)
    count = len(sourced)
    return cells[torch.arange(count) % len(cells)], torch.ones(count, dtype=torch.bool), ((1, count),)


FORWARD = "differs from the model's own forward, largest logit difference"
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"features": other_features}, FORWARD),
    ({"cells": shifted}, r"token 5 is declared to come from .* 3\.\d pixels away"),
    ({"visual_positions": always("compact")}, "gives a kept token another position|preserve moves the text"),
    ({"visual_positions": always("preserve")}, "compact leaves the gaps"),
    ({"span_positions": lambda self, ids, _: SlotPositions(torch.arange(len(ids)).flip(0)[None], len(ids))}, FORWARD),
    ({"vision_signal": later}, "it serves vision.cls_attention@-1 and fails: NotImplementedError: later"),
    (
        {"class_token": True, "token_rows": smeared},
        "token 0 is declared to be made from rows .1, 1, 1, 2. of the vision tower and is made from .1.,",
    ),
    (
        {"class_token": False, "token_rows": rows(1, 17)},
        "class_token is False, and 1 rows of every sequence come from no pixel",
    ),
    ({"token_rows": rows(17)}, r"vision.received@-1 is \(17,\), not 16 along axis 0"),
    ({"token_rows": rows(16)}, "signals are read from rows that it is not made from"),  # the class token's is first
    ({"fixed_tokens": None, "fitting": lambda self, *_: self.options}, "for at most 8 tokens and makes 16"),
    ({"image_options": Wordless}, "image option edge needs a sentence"),
    (
        {"token_count": lambda self, size: Plain.token_count(self, size) + 1},
        "16 visual tokens, .*; token_count says 17",
    ),
    ({"vision": blurred}, "images alone and in a batch of two: tokens differ"),
]


@pytest.mark.parametrize(
    ("changes", "words"), BROKEN, ids=lambda value: value if isinstance(value, str) else "+".join(value)
)
def test_a_broken_promise_is_named(plain: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_backbone(type("Changed", (Plain,), changes), plain, sizes=((150, 100), (100, 150)))


def test_a_separator_that_is_misplaced_or_denied_is_named(zoo: Callable[[str], Path]) -> None:
    for change, words in (
        ({"vision": of_no_row}, "belongs to the tokens 1 to 2, which are no rows"),
        ({"cells": all_sourced}, "of its features have a source"),
    ):
        with pytest.raises(AssertionError, match=words):
            check_backbone(type("Changed", (General,), change), zoo("llava_next"), sizes=SIZE)
