"""The promises of an architecture: an image of noise and a question about it, on the path that every audit takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.answering.materialise import materialise
from sightline.backbones.base import Backbone
from sightline.backbones.batches import token_places
from sightline.backbones.found_rows import find_rows
from sightline.backbones.general import General
from sightline.checks.doctor.cells import ALLOWED, cell_count, cell_words, empty, signal_rows, worst_cell
from sightline.checks.doctor.checks import (
    image_batches,
    language_batches,
    own_logits,
    policies_agree_unpruned,
    prefix_is_shorter,
)
from sightline.checks.doctor.examination import Check, ExaminedPage
from sightline.contract.plugins import as_promises, promise
from sightline.core.prefix import Prefix
from sightline.core.selection import BLOCK_KINDS, TOKEN_AXIS, PositionPolicy, Selection
from sightline.errors import SightlineError


@dataclass(frozen=True)
class NoisePage(ExaminedPage):
    """An image of noise, of which any tokens can be kept."""

    @staticmethod
    def sized(backbone: Backbone, size: tuple[int, int]) -> NoisePage:
        width, height = size
        noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
        image = Image.fromarray(noise)
        return NoisePage(backbone, image, backbone.encode([backbone.preprocess(image)])[0])

    @property
    def name(self) -> str:
        return f"{type(self.backbone).__name__}, an image of {self.image.width} x {self.image.height}"

    def keeping(self, anchors: Tensor, policy: PositionPolicy = "preserve") -> Prefix:
        """With these (K,) of the N tokens."""
        return materialise(self.backbone, self.encoded, self.prompt, Selection(anchors), policy)

    @property
    def everything(self) -> Tensor:
        return torch.arange(self.encoded.n)

    @property
    def some(self) -> list[Tensor]:
        """Tokens to keep: the first alone, the last alone, every third."""
        n = self.encoded.n
        return [torch.tensor([0]), torch.tensor([n - 1]), torch.arange(0, n, 3)]


# The promises of an architecture about the signals of its vision tower.

SIGNALS = (*(f"{kind}@-1" for kind in BLOCK_KINDS), "vision.hidden@-2", "vision.cls@-2", "vision.hidden_mean@0:1")
"""Every signal of a vision tower, at layers that the smallest one has."""


def check_signals(page: NoisePage) -> None:
    """Whatever is served can be computed, has a value per token, and changes no token."""
    backbone = page.backbone
    served = [name for name in SIGNALS if backbone.serves(name) is None]
    encoded = backbone.encode([backbone.preprocess(page.image)], served)[0]
    promise(torch.equal(encoded.tokens, page.encoded.tokens), f"{page.name}: tokens change when signals are asked for")
    for name in served:
        kind = name.split("@")[0]
        try:
            with torch.inference_mode():
                signal = backbone.vision_signal(name, encoded)
        except Exception as error:
            raise AssertionError(f"{page.name}: it serves {name} and fails: {type(error).__name__}: {error}") from error
        promise(bool(torch.isfinite(signal).all()), f"{page.name}: {name} is not finite")
        axis = TOKEN_AXIS.get(kind)
        promise(
            axis is None or (signal.dim() > axis and signal.shape[axis] == encoded.n),
            f"{page.name}: {name} is {tuple(signal.shape)}, not {encoded.n} along axis {axis}",
        )
        if kind in ("vision.cls_attention", "vision.received"):
            promise(bool((signal >= 0).all()), f"{page.name}: {name} is negative somewhere")


def check_token_rows(page: NoisePage) -> None:
    """Rows that a class declares are those that are found, with the same weights, and so is its class token."""
    backbone, size = page.backbone, page.image.size
    if not isinstance(backbone, General) or not backbone.declares_rows:
        return
    found = find_rows(
        size,
        backbone.image_inputs,
        lambda given: backbone.features(given)[0],
        backbone.tower_module,
        backbone.vision_blocks,
        backbone.pixels,
    )
    ours = backbone.token_rows(size), backbone.token_weights(size)
    theirs = found.of(backbone.plan(size).sourced.numpy())
    count = 1 + max(int(rows.max()) for rows, _ in (ours, theirs))

    def parts(rows: Tensor, weights: Tensor | None) -> Tensor:
        """(N, R) how much of each token comes from each row."""
        given = torch.full(rows.shape, 1 / rows.shape[1]) if weights is None else weights.float()
        return torch.zeros(len(rows), count).scatter_add_(1, rows, given)

    apart = (parts(*ours) - parts(*theirs)).abs().amax(dim=1)
    worst = int(apart.argmax())
    promise(
        bool(apart[worst] <= ROWS_APART),
        f"{page.name}: token {worst} is declared to be made from rows {ours[0][worst].tolist()} of the vision tower "
        f"and is made from {theirs[0][worst].tolist()}, or in other parts",
    )
    promise(
        backbone.class_token == (found.class_row == 0),
        f"{page.name}: class_token is {backbone.class_token}, and {found.leads} rows of every sequence come from no "
        "pixel",
    )


ROWS_APART = 1e-4
"""Largest difference of the part that a row has in a token, which gradients tell."""


# The promises of an architecture, on a checkpoint of it: a tiny one with random weights will do.

SIZES = ((320, 224), (210, 300))
"""(width, height): one wider than high, one higher than wide, so that a crop or a tiling shows."""


def check_backbone(
    kind: type[Backbone], folder: Path | str, *, sizes: Sequence[tuple[int, int]] = SIZES, **options: Any
) -> None:
    """Raises an ``AssertionError`` unless the architecture keeps what an audit relies on, on the checkpoint ``folder``.

    Unpruned, it gives the model's own logits; declared cells are those that ramps find, within one pixel of the image;
    both position policies agree unpruned, ``preserve`` moves no kept token and ``compact`` closes gaps; a pruned prefix
    is as much shorter as tokens and separators were dropped; every separator belongs to rows, a tile or the whole
    image and stays while one of their tokens does; images and prefixes give the same alone and in a batch; signals
    that it serves are finite, have a value per token, and are read from the rows that are found, where the token's cell
    is seen; ``fitting`` gives no more tokens than it was asked for.

    ``sizes`` are (width, height) of the images that it is tried on, ``options`` its image options. The model runs in
    float32 on the CPU.
    """
    _check_facts(kind)
    with as_promises():
        backbone = kind.load(
            str(folder),
            dtype=torch.float32,
            device=torch.device("cpu"),
            attention="sdpa",
            options=kind.image_options.of(options, kind.__name__),
        )
        for page in [NoisePage.sized(backbone, size) for size in sizes]:
            for check in CHECKS:
                found = check(page)
                if found is not None:
                    promise(found.passed, f"{page.name}: {found.words}")


def _check_facts(kind: type[Backbone]) -> None:
    for option, sentence in kind.image_options.described().items():
        promise(sentence.endswith("."), f"{kind.__name__}: image option {option} needs a sentence: `option(None, ...)`")
    promise(
        kind.fixed_tokens is None or bool(kind.fixed_tokens),
        f"{kind.__name__}: fixed_tokens is None, or says why the number of tokens is fixed",
    )


def _check_cells(page: NoisePage) -> None:
    found, size = page.found, page.image.size
    promise(found is not None, f"{page.name}: its model has no get_image_features, so that cells cannot be found")
    assert found is not None
    cells, declared = found.cells[found.sourced], np.clip(page.encoded.cells, 0.0, 1.0)
    promise(
        len(cells) == len(declared),
        f"{page.name}: it declares {len(declared)} tokens with a cell, {len(cells)} of its features have a source",
    )
    if isinstance(page.backbone, General):
        same = np.array_equal(page.backbone.plan(size).sourced.numpy(), found.sourced)
        promise(same, f"{page.name}: it takes other features for separators than those that come from no pixel")
    blind = empty(declared)[empty(cells)]
    promise(bool(blind.all()), f"{page.name}: a token that sees padding alone has a cell of some area")
    worst, away = worst_cell(found, declared, size)
    promise(
        away <= ALLOWED,
        f"{page.name}: token {worst} is declared to come from {cell_words(declared[worst])} and comes from "
        f"{cell_words(cells[worst])}: {away:.1f} pixels away (allowed {ALLOWED:.0f})",
    )


def _check_positions(page: NoisePage) -> None:
    full = page.keeping(page.everything)
    for anchors in page.some:
        kept, closed = page.keeping(anchors), page.keeping(anchors, "compact")
        same_ids = torch.equal(
            kept.positions[:, kept.start + token_places(kept)],
            full.positions[:, full.start + token_places(full)[anchors]],
        )
        promise(same_ids, f"{page.name}: preserve gives a kept token another position than it has unpruned")
        text_behind = torch.equal(
            kept.positions[:, kept.start + kept.span :], full.positions[:, full.start + full.span :]
        )
        promise(text_behind, f"{page.name}: preserve moves the text behind the image")
        if len(anchors) == 1 < full.k and not page.backbone.language.beside:
            nearer = bool(closed.positions[:, -1].max() < full.positions[:, -1].max())
            promise(nearer, f"{page.name}: compact leaves the gaps of tokens that were dropped")


def _check_separators(page: NoisePage) -> None:
    separators, n = page.encoded.separators, page.encoded.n
    if separators is None:
        return
    wide = [columns for high, columns in page.encoded.layout for _ in range(high)]
    edges = {0, *accumulate(wide)}
    for first, behind in separators.owners.tolist():
        promise(
            first < behind and {first, behind} <= edges,
            f"{page.name}: a separator belongs to the tokens {first} to {behind}, which are no rows of its layout",
        )
    promise(
        page.keeping(page.everything).separators == len(separators.slots),
        f"{page.name}: a separator is dropped although every token is kept",
    )
    for anchors in page.some:
        begin, behind = separators.owners[:, :1], separators.owners[:, 1:]
        staying = int(((begin <= anchors) & (anchors < behind)).any(dim=1).sum())
        found = page.keeping(anchors).separators
        promise(
            found == staying,
            f"{page.name}: {found} separators stay of {len(anchors)} of {n} tokens whose rows and tiles have {staying}",
        )


def _check_smaller(page: NoisePage) -> None:
    backbone, size, n = page.backbone, page.image.size, page.encoded.n
    if type(backbone).fixed_tokens is not None or n == 1:
        return
    k = max(1, n // 2)
    try:
        chosen = backbone.fitting(size, k)
    except SightlineError:  # no size of the image makes so few
        return
    made = backbone.under(chosen).token_count(size)
    promise(0 < made <= k, f"{page.name}: fitting was asked for at most {k} tokens and makes {made}")


CHECKS: tuple[Callable[[NoisePage], Check | None], ...] = (
    cell_count, own_logits, _check_cells, policies_agree_unpruned, prefix_is_shorter, _check_positions,
    _check_separators, check_signals, signal_rows, check_token_rows, _check_smaller, language_batches, image_batches,
)  # fmt: skip
"""The doctor's own, and what only a class can promise: what it declares is what is found, and holds for any tokens."""


# A checkpoint small enough for a test: random weights, a tokenizer of bytes, the files that a published one has.

WORDS = ("yes", "no", " yes", " no")
"""What is one token each; everything else is spelled out in bytes."""
END = "</s>"
"""Ends an answer, and pads."""


def tiny_tokenizer(*special: str) -> Any:
    """A ``tokenizers.Tokenizer`` of bytes in which each of the ``special`` tokens is a token of its own.

    A configuration takes its ``get_vocab_size()`` and, for the image, its ``token_to_id("<image>")``.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    ids = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        spelled = word.replace(" ", "Ġ")
        for end in range(2, len(spelled) + 1):
            if spelled[:end] not in ids:
                ids[spelled[:end]] = len(ids)
                merges.append((spelled[: end - 1], spelled[end - 1]))
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (END, *special)])
    return tokenizer


def write_checkpoint(
    folder: Path | str,
    model: Any,
    tokenizer: Any,
    *,
    processor: Mapping[str, Any],
    image_processor: Mapping[str, Any],
    chat_template: str | None = None,
    model_type: str | None = None,
    seed: int = 7,
) -> Path:
    """Writes the checkpoint that ``load_backbone`` reads.

    Parameters
    ----------
    model: of transformers, made from a configuration; its weights are drawn anew.
    tokenizer: as made by ``tiny_tokenizer``.
    processor, image_processor: ``processor_config.json`` and ``preprocessor_config.json``; the first names the
        ``processor_class``, the second the ``image_processor_type``.
    model_type: what ``config.json`` calls the type where it is not the one that transformers has for the model.
    """
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder = Path(folder)
    _draw(model, seed)
    model.save_pretrained(folder)
    texts = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, chat_template=chat_template
    )
    texts.save_pretrained(folder)
    _write(folder / "processor_config.json", processor)
    _write(folder / "preprocessor_config.json", image_processor)
    if model_type is not None:
        config = folder / "config.json"
        _write(config, {**json.loads(config.read_text(encoding="utf-8")), "model_type": model_type})
    return folder


@torch.no_grad()
def _draw(model: torch.nn.Module, seed: int) -> None:
    """Matrices that keep the variance of what they read: the usual 0.02 leaves a narrow model nearly blind."""
    random = torch.Generator().manual_seed(seed)
    for _, weight in sorted(model.named_parameters()):
        drawn = torch.randn(weight.shape, generator=random)
        if weight.dim() >= 2:
            weight.copy_(drawn / weight[0].numel() ** 0.5)
        else:
            weight.add_(drawn * 0.05)


def _write(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2), encoding="utf-8")
