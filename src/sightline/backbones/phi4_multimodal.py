"""Phi-4-multimodal: crops laid side by side as one grid, the whole picture behind it, eyes that are a LoRA adapter."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from sightline.backbones.base import BACKBONES, as_dtype, read_settings
from sightline.backbones.general import General
from sightline.backbones.images import ImageOptions, option
from sightline.backbones.prompting import Layout, SpanPlan
from sightline.errors import SightlineError
from sightline.geometry.cells import Cells, Size, grid_cells, merged_patches, within_image

MERGE = 2
"""Patches along the edge of a token, whatever the configuration says."""


@dataclass(frozen=True)
class Phi4Options(ImageOptions):
    max_crops: int | None = option(None, "Most crops of an image, the whole picture not counted.", least=1)


@BACKBONES.register("phi4_multimodal")
class Phi4Multimodal(General):
    """The image fills a canvas of crops from its upper left corner; tokens that would see padding alone are left out.

    Every row of either grid ends with a separator, and one more stands between the two.
    """

    image_options = Phi4Options
    options: Phi4Options
    fixed_tokens = None
    adapter = "vision-lora"
    pixels = "image_pixel_values"
    _feature_arguments = frozenset({pixels, "image_sizes", "image_attention_mask"})

    @classmethod
    def load(cls, source: str, **settings: Any) -> General:
        backbone = super().load(source, **settings)
        merge_adapter(backbone.model, Path(source) / cls.adapter)
        # Patches see all others. Transformers calls them causal, and fused kernels then mask where nothing is padded.
        for block in backbone.vision_blocks:
            block.self_attn.is_causal = False
        return backbone

    def user_content(self, question: str) -> Any:
        """The published template takes texts, and the image is asked about on the line it stands on."""
        return super().user_content(question) if self._takes_parts else f"{self.placeholder}{question}"

    @property
    def tower_module(self) -> Any:
        return self.body.embed_tokens_extend.image_embed

    @property
    def vision_tower(self) -> Any:
        return self.tower_module.img_processor.encoder

    @property
    def crop(self) -> int:
        """Edge of a crop in pixels."""
        return int(self.model.config.vision_config.crop_size)

    @property
    def token_edge(self) -> int:
        """Of a token, in pixels of a crop."""
        return MERGE * int(self.model.config.vision_config.patch_size)

    @property
    def token_pixels(self) -> int:
        return self.token_edge**2

    @property
    def side(self) -> int:
        """Tokens along the edge of a crop."""
        return self.crop // self.token_edge

    def processor_arguments(self) -> dict[str, Any]:
        return {} if self.options.max_crops is None else {"dynamic_hd": self.options.max_crops}

    def features(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """What the model writes over the embeddings of as many placeholders."""
        given = self.feature_inputs(inputs)
        count = sum(down * (across + 1) + 1 + self.side * (self.side + 1) for down, across in self.grids(inputs))
        ids = torch.full((1, count), self.image_token_id, device=self.language.device)
        embeds = self.language.embed([self.image_token_id])[None].expand(1, count, -1)
        return self.tower_module(ids, embeds, **as_dtype(given, self.language.dtype))[0], ()

    def grids(self, inputs: Mapping[str, Tensor]) -> list[tuple[int, int]]:
        """(rows, columns) of tokens of every image's crops, by the patches shown of the first column and row."""
        found = []
        for (height, width), shown in zip(inputs["image_sizes"].tolist(), inputs["image_attention_mask"], strict=True):
            rows, columns = height // self.crop, width // self.crop
            crops = shown[1:, ::MERGE, ::MERGE].unflatten(0, (rows, columns))
            found.append((int(crops[:, 0, :, 0].sum()), int(crops[0, :, 0].sum())))
        return found

    def cells(self, size: Size, inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        ((height, width),), ((down, across),) = inputs["image_sizes"].tolist(), self.grids(inputs)
        shown = self._shown(size, (width, height))
        crops = grid_cells(down, across) * (np.array([across, down] * 2) * self.token_edge)
        whole = grid_cells(self.side, self.side) * np.array([width, height] * 2)
        rows = [*[across] * down, 0, *[self.side] * self.side]
        sourced = torch.cat([torch.arange(tokens + 1) < tokens for tokens in rows])
        cells = within_image(np.concatenate([crops, whole]) / np.array(shown * 2))
        return cells, sourced, ((down, across), (self.side, self.side))

    @staticmethod
    def _shown(size: Size, canvas: Size) -> Size:
        """The image on its canvas: one edge fills it, the other is rounded down."""
        wide, high = canvas[0] / size[0], canvas[1] / size[1]
        return (canvas[0], int(size[1] * wide)) if wide < high else (int(size[0] * high), canvas[1])

    def _worked_out(self, size: Size) -> SpanPlan:
        """What stands between the two grids stays for as long as any token does."""
        plan = super()._worked_out(size)
        rows, columns = plan.layout[0]
        owners = plan.owners.clone()
        owners[plan.between == rows * (columns + 1)] = torch.tensor([0, plan.n])
        return replace(plan, owners=owners)

    def token_rows(self, size: Size) -> Tensor:
        """The whole picture is the tower's first; no crop is all padding, so that the grid tells how many there are."""
        (down, across), _ = self.plan(size).layout
        whole = merged_patches(self.side, self.side, MERGE)
        (row, within), (column, beside) = (np.divmod(each, self.side) for each in np.indices((down, across)))
        crop = 1 + row * math.ceil(across / self.side) + column
        crops = crop[..., None] * whole.size + whole[within * self.side + beside]
        return torch.from_numpy(np.concatenate([crops.reshape(-1, MERGE**2), whole]))

    def shown_size(self, size: Size) -> Size:
        ((height, width),) = self.written_for(size)[1]["image_sizes"].tolist()
        return self._shown(size, (width, height))

    def fitting(self, size: Size, k: int) -> Phi4Options:
        """The most crops that, with the whole picture, make at most k tokens."""
        usual = self.options.max_crops or int(self.image_processor.dynamic_hd)
        most = min(usual, math.ceil(size[0] / self.crop) * math.ceil(size[1] / self.crop))
        tried = [replace(self.options, max_crops=crops) for crops in range(1, most + 1)]
        counts = {options: self.under(options).token_count(size) for options in tried}
        return self.most_within(size, k, counts, "with the fewest crops")


LORA = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])\.weight")
UNKNOWN = ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save", "fan_in_fan_out")
"""Settings that make something else of an adapter than one rank and one scale for all of its layers."""


@torch.no_grad()
def merge_adapter(model: torch.nn.Module, folder: Path) -> None:
    """W + (alpha / r) B A for every layer of the LoRA adapter in ``folder``: A (r, in), B (out, r), alpha over the root
    of r where it says so. Summed in single precision and rounded once."""
    settings = read_settings(folder / "adapter_config.json")
    rank, alpha = settings.get("r"), settings.get("lora_alpha")
    odd = [name for name in UNKNOWN if settings.get(name)]
    if odd or not rank or alpha is None:
        raise SightlineError(
            f"{folder.name}/adapter_config.json describes no plain LoRA adapter "
            f"({f'it has {odd[0]}' if odd else 'it lacks r or lora_alpha'}), and no other is merged"
        )
    scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    layers: dict[str, dict[str, str]] = {}
    with safe_open(folder / "adapter_model.safetensors", "pt") as stored:
        for name in stored.keys():  # noqa: SIM118  # it is no mapping
            found = LORA.fullmatch(name)
            layers.setdefault(found[1] if found else name, {})[found[2] if found else ""] = name
        modules = dict(model.named_modules())
        for place, parts in layers.items():
            weight = getattr(modules.get(place), "weight", None)
            low, high = (stored.get_tensor(parts[part]).float() if part in parts else None for part in "AB")
            if weight is None or low is None or high is None or (len(high), low.shape[1]) != weight.shape:
                raise SightlineError(f"{folder.name} does not fit the model: it has {next(iter(parts.values()))}")
            change = (high.to(weight.device) @ low.to(weight.device)) * scale
            weight.copy_(weight.float() + change)
