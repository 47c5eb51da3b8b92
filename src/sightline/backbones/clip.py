"""CLIP text and image embeddings for methods that compare the question with the image in CLIP's own space."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path

import torch
from torch import Tensor

from sightline.backbones.base import read_config, weight_files, whole_model
from sightline.backbones.loading import checkpoint_folder, first_words
from sightline.errors import SightlineError

TEXTS = 8192
"""Questions whose embeddings are remembered."""


def clip_trouble(source: str, model: str) -> str:
    """Why a CLIP checkpoint cannot serve a model's vision tower, from both descriptions alone; nothing where it can."""
    try:
        folder = checkpoint_folder(source)
        weight_files(folder, source)
        configs = [read_config(each) for each in (folder, checkpoint_folder(model))]
    except SightlineError as error:
        return str(error)
    wanted, given = ((config.get("vision_config") or {}).get("hidden_size") for config in configs)
    return "" if None in (wanted, given) or wanted == given else _other_width(wanted, given)


def _other_width(wanted: int | None, given: int | None) -> str:
    return f"the CLIP checkpoint projects {wanted}-wide states, the vision tower gives {given}"


class ClipSpace:
    """The text tower and the visual projection of a CLIP checkpoint, in float32.

    The image is not encoded again: the backbone's own CLIP tower already has its states, which only need this
    checkpoint's projection. Its width must therefore match the backbone's tower.
    """

    def __init__(self, source: str, device: torch.device) -> None:
        from transformers import AutoTokenizer, CLIPModel

        self.folder = checkpoint_folder(source)
        weight_files(self.folder, source)
        try:
            self.model = whole_model(CLIPModel, self.folder, dtype=torch.float32).to(device).eval()
            self.tokenizer = AutoTokenizer.from_pretrained(self.folder)
        except SightlineError:
            raise
        except Exception as error:  # every library that reads a file of the checkpoint has errors of its own
            raise SightlineError(f"cannot load CLIP from {Path(source).name}: {first_words(error)}") from error

    @torch.inference_mode()
    def text(self, question: str) -> Tensor:
        """(T, P) projected text embeddings, one row per block of the tower's length; a short question has one block."""
        return self._remembered(question)

    @cached_property
    def _remembered(self) -> Callable[[str], Tensor]:
        return lru_cache(TEXTS)(self._embedded)

    def _embedded(self, question: str) -> Tensor:
        length = int(self.model.config.text_config.max_position_embeddings)
        ids = torch.tensor(self.tokenizer(question).input_ids, device=self.model.device)
        blocks = torch.zeros(-(-len(ids) // length), length, dtype=torch.long, device=ids.device)
        mask = torch.zeros_like(blocks)
        blocks.view(-1)[: len(ids)] = ids
        mask.view(-1)[: len(ids)] = 1
        if len(blocks) == 1:
            blocks, mask = ids[None], mask[:, : len(ids)]
        return self._features(input_ids=blocks, attention_mask=mask)

    def _features(self, **inputs: Tensor) -> Tensor:
        features = self.model.get_text_features(**inputs)
        return features if isinstance(features, Tensor) else features.pooler_output

    @torch.inference_mode()
    def image(self, states: Tensor) -> Tensor:
        """(N, P) projection of (N, C) patch states that went through the tower's final layer norm."""
        wanted = int(self.model.config.vision_config.hidden_size)
        if states.shape[1] != wanted:
            raise SightlineError(_other_width(wanted, states.shape[1]))
        projected: Tensor = self.model.visual_projection(states.float())
        return projected
