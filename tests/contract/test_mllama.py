"""Rows of cross-attention that an arm drops, held against the plain way: no row leaves, masks hide those that do.

The plain way is the unmodified model, image in, logits out, whose cross-attention is handed other masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from sightline.answering.materialise import SelectStep
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms import parse_arm
from sightline.backbones.base import model_inputs
from sightline.backbones.general import General
from sightline.backbones.loading import Served
from sightline.backbones.mllama import Mllama
from sightline.checks.doctor import drawn_image, examined
from sightline.contract import check_backbone
from sightline.core.prefix import Prefix
from sightline.core.selection import Budget
from sightline.cost.benchmarks.answers import Answers
from sightline.cost.benchmarks.load import Load
from sightline.cost.machine import language_flops
from sightline.cost.one_sample import OneAnswer, loss_of
from tests.answers import score_arm
from tests.contract.cast import probe
from tests.refusals import Refused
from tests.unit.backbones.named import QUESTION, architecture, photograph, prefix_of

SIZES = {(100, 100): (1, 1), (90, 140): (2, 1), (500, 100): (1, 4), (200, 130): (2, 2)}
"""(width, height) of images, and rows and columns of tiles that they become; four fit."""
PATCHES, TILES = 64, 4
KEPT = {
    "all": lambda n: range(n),
    "some of every tile": lambda n: range(0, n, 3),
    "one": lambda n: [n - 1],
    "one tile": lambda n: range(n - PATCHES, n),
    "none": lambda n: [],
}
TOLERANCE = 2e-5


class Stage:
    """A checkpoint with one encoded image of every size."""

    def __init__(self, folder: Path, attention: str = "sdpa") -> None:
        backbone = architecture("mllama", lambda _: folder, attention=attention)
        assert isinstance(backbone, Mllama)
        self.backbone = backbone
        self.images = {size: photograph(*size) for size in SIZES}
        self.encoded = {size: backbone.encode([backbone.preprocess(image)])[0] for size, image in self.images.items()}
        self.prompt = backbone.prompt(QUESTION, "EXIT")

    def prefix(self, size: tuple[int, int], kept: Sequence[int], prompt: Any = None) -> Prefix:
        return prefix_of(self.backbone, self.encoded[size], prompt or self.prompt, torch.tensor(kept, dtype=torch.long))

    @torch.inference_mode()
    def plainly(self, size: tuple[int, int], kept: Sequence[int], ids: Sequence[int]) -> Tensor:
        """(S, V) logits of a prompt of these ids, the first of them those before the image."""
        head = len(self.prompt.head)
        inputs = model_inputs(self.backbone, self.images[size], tuple(ids), head)
        if not len(kept):  # the model's own way without an image
            inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        with hidden(self.backbone.model, dropped_rows(kept, SIZES[size])):
            logits: Tensor = self.backbone.model(**inputs, use_cache=False).logits[0]
        return logits


def dropped_rows(kept: Sequence[int], tiles: tuple[int, int]) -> Tensor:
    """(R,) bool: patches that are not kept, and class tokens of tiles of which none is; no row of a missing tile."""
    stays = torch.zeros(TILES, 1 + PATCHES, dtype=torch.bool)
    stays[tiles[0] * tiles[1] :] = True
    for token in kept:
        stays[token // PATCHES, 0] = stays[token // PATCHES, 1 + token % PATCHES] = True
    return ~stays.flatten()


@contextmanager
def hidden(model: Any, dropped: Tensor) -> Iterator[None]:
    """While open, no token of the text looks at these rows."""

    def hide(module: Any, given: Any, named: dict[str, Any]) -> Any:
        blocked = torch.finfo(torch.float32).min
        return given, {**named, "attention_mask": named["attention_mask"].masked_fill(dropped, blocked)}

    with ExitStack() as stack:
        for layer in model.model.language_model.layers:
            if hasattr(layer, "cross_attn"):
                stack.callback(layer.cross_attn.register_forward_pre_hook(hide, with_kwargs=True).remove)
        yield


@pytest.fixture(scope="module")
def stage(zoo: Callable[[str], Path]) -> Stage:
    return Stage(zoo("mllama"))


def losses(stage: Stage, size: tuple[int, int], kept: Sequence[int], prompt: Any) -> list[Tensor]:
    """Of every answer, read off the unmodified model."""
    found = []
    for answer, scored in zip(prompt.continuations, prompt.scored, strict=True):
        logits = stage.plainly(size, kept, [*prompt.head, *prompt.shared, *answer])
        said = logits[-len(scored) - 1 : -1].log_softmax(-1)
        found.append(-said[torch.arange(len(scored)), torch.tensor(scored)].mean())
    return found


def test_it_keeps_the_promises_of_an_architecture(stage: Stage, zoo: Callable[[str], Path]) -> None:
    check_backbone(Mllama, zoo("mllama"))
    found = examined(stage.backbone, drawn_image().resize((320, 160)), "mllama")
    assert [check.words for check in found if not check.passed] == []
    assert [check.name for check in found if not check.applies] == ["positions_pruned"]


def test_a_tile_has_its_cells_and_separators(stage: Stage) -> None:
    """Class tokens and tiles that are not there are no visual tokens; a tile's class token goes with it."""
    for size, (tall, wide) in SIZES.items():
        image, tiles = stage.encoded[size], tall * wide
        assert image.layout == ((8, 8),) * tiles
        assert (image.n, image.slots) == (tiles * PATCHES, TILES * (PATCHES + 1))
        found = stage.backbone.found_cells(size)
        assert found.sourced.sum() == image.n
        assert abs((found.cells[found.sourced] - image.cells) * [*size, *size]).max() < 1
        assert image.separators is not None
        owners = image.separators.owners.tolist()
        assert owners[:tiles] == [[PATCHES * tile, PATCHES * (tile + 1)] for tile in range(tiles)]
        assert all(own == [0, image.n] for own in owners[tiles:])


def test_signals_are_read_from_the_rows_of_patches(stage: Stage) -> None:
    """Tiles lie one behind the other in the tower, each with a class token before and padding behind its patches."""
    backbone, image, heard = stage.backbone, stage.images[90, 140], list[Tensor]()
    last = backbone.vision_blocks[-1]
    hook = last.register_forward_hook(lambda block, given, made: heard.append(made))
    (encoded,) = backbone.encode([backbone.preprocess(image)], ["vision.hidden@-1", "vision.received@-1"])
    hook.remove()
    own = heard[0].unflatten(1, (TILES, -1))[0, :2, 1 : 1 + PATCHES].flatten(0, 1)
    assert torch.equal(backbone.vision_signal("vision.hidden@-1", encoded), own)
    assert backbone.vision_signal("vision.received@-1", encoded).shape == (encoded.n,)
    assert "the class token nobody says" in (backbone.serves("vision.cls_attention@-1") or "")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_dropped_rows_say_what_masked_rows_say(zoo: Callable[[str], Path], attention: str) -> None:
    here, largest = Stage(zoo("mllama"), attention), 0.0
    ids = [*here.prompt.head, *here.prompt.tail]
    for size, (name, keeps) in product(SIZES, KEPT.items()):
        kept = list(keeps(here.encoded[size].n))
        found = here.backbone.language.prefix_logits(here.prefix(size, kept))
        difference = float((found - here.plainly(size, kept, ids)).abs().max())
        assert difference <= TOLERANCE, (size, name)
        largest = max(largest, difference)
        if len(kept) < here.encoded[size].n:
            whole = here.plainly(size, range(here.encoded[size].n), ids)
            assert (found[-1] - whole[-1]).abs().max() > 100 * TOLERANCE, "the rest is missed"
    print(f"{attention}: largest difference {largest:.1e} over {len(SIZES) * len(KEPT)} prefixes")


def test_the_prompt_and_what_it_is_shown_are_the_processors(stage: Stage) -> None:
    """Of a text without the first token as well, which the processor gives one."""
    backbone, image = stage.backbone, stage.images[90, 140]
    for text in (backbone.render(QUESTION, None), f"<s>{backbone.render(QUESTION, None)}", "<|image|>What is this?"):
        head, tail = backbone._around_image(text)
        theirs = backbone.processor(text=[text], images=[image], return_tensors="pt")
        ours = model_inputs(backbone, image, (*head, *tail), len(head))
        assert theirs.keys() == ours.keys()
        assert all(torch.equal(ours[name], value) for name, value in theirs.items())


def test_scores_are_those_of_the_unmodified_model(stage: Stage) -> None:
    """Alone, and side by side with images of other sizes, one of which lost every row."""
    language, asked = stage.backbone.language, probe("one", QUESTION, "EXIT", ())
    prompt = YesNo().prompt(stage.backbone, asked)
    cases = [(size, list(keeps(stage.encoded[size].n))) for size, keeps in zip(SIZES, KEPT.values(), strict=False)]
    cases.append(((90, 140), []))
    prefixes = [stage.prefix(size, kept, prompt) for size, kept in cases]
    for (size, kept), prefix, together in zip(cases, prefixes, language.score(prefixes), strict=True):
        expected = losses(stage, size, kept, prompt)
        for loss, found, alone in zip(expected, together, language.score([prefix])[0], strict=True):
            assert abs(found.loss - loss) < TOLERANCE
            assert abs(alone.loss - loss) < TOLERANCE


def test_answers_are_those_of_the_unmodified_model(stage: Stage) -> None:
    """Token by token: its own forward over image, question and the answer so far, nothing remembered."""
    for size, kept in product(((100, 100), (90, 140)), KEPT.values()):
        keeps = list(kept(stage.encoded[size].n))
        ids = [*stage.prompt.head, *stage.prompt.tail]
        for token in stage.backbone.language.generate(stage.prefix(size, keeps), 4, frozenset()):
            assert token == int(stage.plainly(size, keeps, ids)[-1].argmax())
            ids.append(token)


def test_lengths_count_text_and_rows(stage: Stage) -> None:
    backbone, images = stage.backbone, list(stage.encoded.values())
    probes = [probe(str(i), QUESTION, "EXIT", ()) for i in range(len(images))]
    step, arm = SelectStep(backbone), parse_arm("target:0.3/tile")
    text = len(stage.prompt.head) + len(stage.prompt.tail)
    for image, scored in zip(images, score_arm(step, arm, probes, images, "compact", 16384), strict=True):
        tiles = len(image.layout)
        assert scored.k == tiles * arm.budget.resolve(PATCHES)
        assert scored.sequence_full == text + TILES * (PATCHES + 1)
        assert scored.sequence_pruned == text + scored.k + tiles + (TILES - tiles) * (PATCHES + 1)
        assert [int(tile.sum()) for tile in scored.anchors.reshape(tiles, -1)] == [scored.k // tiles] * tiles


def test_a_smaller_image_has_fewer_tiles(stage: Stage, refused: Refused) -> None:
    backbone: General = stage.backbone
    for share, tiles in ((0.8, 3), (0.5, 2), (0.3, 1)):
        fit = backbone.fit((500, 100), Budget.ratio(share))
        fewer = backbone.under(fit.options)
        assert (fit.usual_n, fit.usual_slots) == (TILES * PATCHES, TILES * (PATCHES + 1))
        assert fewer.token_count((500, 100)) == tiles * PATCHES
        found = fewer.found_cells((500, 100))
        difference = abs(found.cells[found.sourced] - fewer.plan((500, 100)).cells) * [500, 100, 500, 100]
        assert difference.max() < 500 / fewer.shown_size((500, 100))[0]
    refused("makes 64 visual tokens on Mllama however small it is shown", backbone.fit, (500, 100), Budget.ratio(0.2))


def test_cost_is_that_of_its_own_forward_or_not_told(stage: Stage, refused: Refused) -> None:
    """Nobody counts its operations; one sample at a time has the loss that batches have; our loop is not measured."""
    backbone = stage.backbone
    prompt = OneAnswer(" yes").prompt(backbone, probe("one", QUESTION, "EXIT", ()))
    prefix = stage.prefix((90, 140), range(0, 128, 3), prompt)
    (expected,) = losses(stage, (90, 140), range(0, 128, 3), prompt)
    assert abs(loss_of(backbone, prefix, None) - expected) < TOLERANCE
    assert language_flops(backbone, len(prefix.embeds)) == 0
    asked, subject = cast(Any, None), cast(Any, SimpleNamespace(backbone=backbone))
    refused("answers one question at a time", lambda: next(iter(Answers().measure(asked, subject))))
    refused("answers one request at a time", lambda: next(iter(Load().measure(asked, subject))))


def test_what_cuts_between_layers_is_refused_before_anything_is_loaded(
    zoo: Callable[[str], Path], refused: Refused
) -> None:
    served = Served.by_description(zoo("mllama"))
    for name in ("fastv:0.3", "vtw:0.3", "duet_both:0.3"):
        refused(f"{name.partition(':')[0]} cannot run", served.refuse, parse_arm(name).selector, clip=True)
