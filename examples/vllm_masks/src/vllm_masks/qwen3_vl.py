"""Qwen3-VL of vLLM with fewer image tokens: three places know that some cells are left out.

The processor writes a placeholder per kept cell and lets the cells travel with the image; the model drops the rows of
all others behind its vision tower, DeepStack levels included, as they lie side by side; positions are those of the
unpruned prompt, so a kept cell has the row and column it came from and text goes on behind the whole grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from vllm.config import VllmConfig
from vllm.model_executor.models.qwen3_vl import (
    Qwen3VLDummyInputsBuilder,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMultiModalProcessor,
    Qwen3VLProcessingInfo,
)
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFeatureSpec, MultiModalFieldConfig
from vllm.multimodal.processing import PromptUpdate

from vllm_masks.cells import KEPT, cells_of, of_missing, unpruned


class MaskedInfo(Qwen3VLProcessingInfo):
    def get_hf_processor(self, **kwargs: object) -> Any:
        """The model's own processor knows nothing of kept cells."""
        return super().get_hf_processor(**{name: value for name, value in kwargs.items() if name != KEPT})


class MaskedProcessor(Qwen3VLMultiModalProcessor):
    """Which cells are kept is an argument of the request, so it is part of the hash by which vLLM's caches (processed
    images, encoder outputs, prefixes) know an image: two masks of one image never share an entry."""

    def _apply_hf_processor_main(self, mm_items: Any, hf_kwargs: Mapping[str, object]) -> Any:
        kwargs = dict(hf_kwargs)
        given: Any = kwargs.pop(KEPT, None)
        found = super()._apply_hf_processor_main(mm_items, kwargs)
        if "image_grid_thw" in found:
            merge = self.info.get_hf_config().vision_config.spatial_merge_size ** 2
            found[KEPT] = cells_of(given, [int(grid.prod()) // merge for grid in found["image_grid_thw"]])
        return found

    def _get_cache_missing_processor_kwargs(self, inputs: Any, mm_is_cached: Any) -> Mapping[str, object]:
        kwargs = dict(super()._get_cache_missing_processor_kwargs(inputs, mm_is_cached))
        if kwargs.get(KEPT) is not None:
            kwargs[KEPT] = of_missing(kwargs[KEPT], mm_is_cached.get("image", []))
        return kwargs

    def _get_mm_fields_config(self, hf_inputs: Any, hf_processor_mm_kwargs: Mapping[str, object]) -> Any:
        fields = super()._get_mm_fields_config(hf_inputs, hf_processor_mm_kwargs)
        return {**fields, KEPT: MultiModalFieldConfig.batched("image", keep_on_cpu=True)}

    def _get_prompt_updates(
        self, mm_items: Any, hf_processor_mm_kwargs: Mapping[str, Any], out_mm_kwargs: Any
    ) -> Sequence[PromptUpdate]:
        def placeholders(image: int) -> list[int]:
            return [self.info.get_hf_config().image_token_id] * len(out_mm_kwargs["image"][image][KEPT].data)

        updates = super()._get_prompt_updates(mm_items, hf_processor_mm_kwargs, out_mm_kwargs)
        return [replace(each, replacement=placeholders) if each.modality == "image" else each for each in updates]


@MULTIMODAL_REGISTRY.register_processor(MaskedProcessor, info=MaskedInfo, dummy_inputs=Qwen3VLDummyInputsBuilder)
class MaskedQwen3VL(Qwen3VLForConditionalGeneration):
    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "model") -> None:
        if vllm_config.compilation_config.cudagraph_mm_encoder:
            raise ValueError("kept_cells are dropped outside of encoder graphs: leave out cudagraph_mm_encoder")
        super().__init__(vllm_config=vllm_config, prefix=prefix)

    def embed_multimodal(self, **kwargs: object) -> Any:
        """Per image (K, D * levels): the rows of its kept cells."""
        kept: Any = kwargs.pop(KEPT, None)
        found = super().embed_multimodal(**kwargs)
        if kept is None or found is None:
            return found
        return tuple(rows[cells.to(rows.device)] for rows, cells in zip(found, kept, strict=True))

    def get_mrope_input_positions(
        self, input_tokens: list[int], mm_features: list[MultiModalFeatureSpec]
    ) -> tuple[Tensor, int]:
        """(3, L) positions: those of the unpruned prompt, without what was dropped."""
        features = sorted(mm_features, key=lambda each: each.mm_position.offset)
        merge, spans = self.config.vision_config.spatial_merge_size**2, []
        for each in features:
            length = each.mm_position.length
            cells, kept = length, torch.arange(length)
            if each.modality == "image":
                cells, kept = int(each.data["image_grid_thw"].data.prod()) // merge, each.data[KEPT].data
            spans.append((each.mm_position.offset, cells, kept))
        offsets, places = unpruned(spans, len(input_tokens))
        longer = [self.config.image_token_id] * (len(input_tokens) + sum(cells - len(kept) for _, cells, kept in spans))
        for place, token in zip(places.tolist(), input_tokens, strict=True):
            longer[place] = token
        moved = [
            replace(each, mm_position=replace(each.mm_position, offset=offset, length=cells))
            for each, offset, (_, cells, _) in zip(features, offsets, spans, strict=True)
        ]
        positions, delta = super().get_mrope_input_positions(longer, moved)
        return positions[:, places], delta + len(longer) - len(input_tokens)
