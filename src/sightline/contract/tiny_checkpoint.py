"""A checkpoint small enough for a test: random weights, a tokenizer of bytes, the files that a published one has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

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
