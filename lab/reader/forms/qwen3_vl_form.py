"""The reader in Qwen3-VL form: rotary vision tower, four patches merged to a token, DeepStack, multimodal positions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from lab.reader import vocabulary
from lab.reader.forms.base import PIXELS, Form
from lab.reader.forward import BatchedForward, SeenTokens
from lab.reader.side_by_side_attention import rotate
from lab.reader.token_grid import UNIT, UNITS, UNITS_PER_SIDE
from lab.scenes.compose import CANVAS

SIDE = UNITS_PER_SIDE // 2
TOKENS = SIDE * SIDE
AREA = CANVAS * CANVAS
IMAGE_PROCESSOR = {
    **PIXELS,
    "image_processor_type": "Qwen2VLImageProcessor",
    "max_pixels": AREA,
    "min_pixels": AREA,
    "merge_size": 2,
    "patch_size": UNIT,
    "processor_class": "Qwen3VLProcessor",
    "size": {"longest_edge": AREA, "shortest_edge": AREA},
    "temporal_patch_size": 2,
}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "full": {
        "vision": {
            "hidden_size": 192,
            "depth": 6,
            "num_heads": 3,
            "intermediate_size": 768,
            "deepstack_visual_indexes": [1, 3],
        },
        "text": {"hidden_size": 256, "num_hidden_layers": 6, "intermediate_size": 768, "num_attention_heads": 4},
    },
    "toy": {
        "vision": {
            "hidden_size": 64,
            "depth": 2,
            "num_heads": 2,
            "intermediate_size": 128,
            "deepstack_visual_indexes": [0],
        },
        "text": {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 2},
    },
}
PROCESSOR_FILES: dict[str, dict[str, Any]] = {
    "preprocessor_config": IMAGE_PROCESSOR,
    "video_preprocessor_config": IMAGE_PROCESSOR | {"video_processor_type": "Qwen3VLVideoProcessor"},
}

STORY = """\
**A shortcut found, and what was done.** After the first two legs the reader had learned that strings which nearly are
everyday words are not in the picture: on development scenes it read numbers, codes and invented words almost perfectly
but denied one in five everyday words that training had not shown, because such strings had only ever been asked for as
near misses. The training scenes were changed (45 % of words carry a slip; near misses of held-out strings are no longer
asked for; everyday words are asked for beside their misspelt forms), and a third leg trained the language layers on
them, on a CPU, with the vision tower and the embeddings left as they were. Development scenes showed the fault. Other
scenes with the confirmation fonts and words, not those of the confirmation set, were looked at once, before the change,
to see that the fault is there too; nothing was chosen on them. Full accuracy on 256 development scenes was 0.926 before
(TPR 0.863, hFPR 0.012) and 0.979 after the third leg (TPR 0.969, hFPR 0.010; 96 scenes).

A trial of 2.5 minutes before the first leg was thrown away. The CPU leg ran on two shared cores and saw about 5 200
scenes.
"""

LIMITS = """\
- For that reason the aim for removed evidence cells is the hardest to meet; training with dropped tokens, which makes
  the reader robust to pruning, works against it. No run without that was made.
"""


class Qwen3VLForm(Form):
    name = "qwen3_vl"
    folder = "reader"
    words = "the stock Qwen3-VL architecture: vision\ntower, DeepStack, multimodal rotary positions, tied embeddings"
    other_sizes = "other sizes are resized to that area"
    story = STORY
    limits = LIMITS
    side = SIDE
    prefix, open_prefix = vocabulary.PREFIX, vocabulary.OPEN_PREFIX
    processor_files = PROCESSOR_FILES
    presets = PRESETS

    def build(self, preset: str) -> Qwen3VLForConditionalGeneration:
        config = self.config(preset)
        return Qwen3VLForConditionalGeneration._from_config(config, attn_implementation="sdpa", dtype=torch.float32)

    def config(self, preset: str) -> Qwen3VLConfig:
        sizes = self.presets[preset]
        head = sizes["text"]["hidden_size"] // sizes["text"]["num_attention_heads"]
        rotary = head // 2
        width = height = round(rotary * 10 / 32)
        return Qwen3VLConfig(
            text_config={
                **sizes["text"],
                "vocab_size": vocabulary.VOCABULARY_SIZE,
                "num_key_value_heads": sizes["text"]["num_attention_heads"] // 2,
                "head_dim": head,
                "max_position_embeddings": 8192,
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 10000.0,
                    "mrope_section": [rotary - height - width, height, width],
                    "mrope_interleaved": True,
                },
                "tie_word_embeddings": True,
                "pad_token_id": vocabulary.PAD,
                "eos_token_id": vocabulary.IM_END,
            },
            vision_config={
                **sizes["vision"],
                "patch_size": UNIT,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
                "out_hidden_size": sizes["text"]["hidden_size"],
                # One learned position per patch of the canvas, so that none is interpolated there.
                "num_position_embeddings": UNITS,
                "hidden_act": "gelu_pytorch_tanh",
            },
            image_token_id=vocabulary.IMAGE,
            video_token_id=vocabulary.VIDEO,
            vision_start_token_id=vocabulary.VISION_START,
            vision_end_token_id=vocabulary.VISION_END,
            tie_word_embeddings=True,
        )

    def forward(self, model: Any, device: torch.device | str) -> Qwen3VLForward:
        return Qwen3VLForward(model, (self.prefix, self.open_prefix), text_positions(len(self.prefix)).to(device))


def to_patches(images: Tensor) -> Tensor:
    """(B, 3, 448, 448) pixels in 0..255 -> (B, 784, 768) normalised patches, the four of a visual token in a row."""
    batch = images.shape[0]
    grid = (images / 127.5 - 1.0).view(batch, 3, SIDE, 2, UNIT, SIDE, 2, UNIT)
    return grid.permute(0, 2, 5, 3, 6, 1, 4, 7).reshape(batch, UNITS, 3 * UNIT * UNIT)


def merge_order(device: torch.device | str = "cpu") -> Tensor:
    """(784, 2) int64: row and column of each patch in the order of ``to_patches``."""
    index = torch.arange(UNITS, device=device)
    token, inner = index // 4, index % 4
    return torch.stack((token // SIDE * 2 + inner // 2, token % SIDE * 2 + inner % 2), dim=1)


def text_positions(before: int) -> Tensor:
    """(3, before + 196 + 1) int64: mRoPE ids of prefix, visual tokens and the closing vision token."""
    prefix = torch.arange(before).expand(3, -1)
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    image = torch.stack((torch.zeros(TOKENS, dtype=torch.long), rows.reshape(-1), columns.reshape(-1))) + before
    return torch.cat((prefix, image, torch.full((3, 1), before + SIDE)), dim=1)


class Qwen3VLForward(BatchedForward):
    """The tower of ``Qwen3VLForConditionalGeneration`` over a whole batch."""

    def __init__(self, model: Any, prefixes: tuple[tuple[int, ...], ...], positions: Tensor) -> None:
        super().__init__(model, prefixes, positions)
        self.visual = model.model.visual
        order = merge_order(self.device)
        self.patch_positions = order[:, 0] * 2 * SIDE + order[:, 1]
        cos, sin = self.visual.rotary_pos_emb(torch.zeros(1, device=self.device), order)
        self.cos, self.sin = cos[None, None], sin[None, None]

    def see(self, images: Tensor) -> SeenTokens:
        """Vision states (B, 784, Dv), visual tokens and DeepStack levels (B, 196, D)."""
        visual = self.visual
        weight = visual.patch_embed.proj.weight
        # A still image repeats its frame, so the two temporal slices of the kernel act as their sum.
        kernel = weight.sum(dim=2).reshape(weight.shape[0], -1)
        hidden = F.linear(to_patches(images), kernel, visual.patch_embed.proj.bias)
        hidden = hidden + visual.pos_embed.weight[self.patch_positions]
        deep = []
        for index, block in enumerate(visual.blocks):
            hidden = hidden + self._attend(block.attn, block.norm1(hidden))
            hidden = hidden + block.mlp(block.norm2(hidden))
            if index in visual.deepstack_visual_indexes:
                merger = visual.deepstack_merger_list[visual.deepstack_visual_indexes.index(index)]
                deep.append(_merge(merger, hidden))
        return SeenTokens(hidden, _merge(visual.merger, hidden), tuple(deep))

    def _attend(self, attention: Any, hidden: Tensor) -> Tensor:
        batch, length, _ = hidden.shape
        query, key, value = attention.qkv(hidden).view(batch, length, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
        query, key = (rotate(part, self.cos, self.sin).to(value.dtype) for part in (query, key))
        mixed = F.scaled_dot_product_attention(query, key, value)
        return attention.proj(mixed.transpose(1, 2).reshape(batch, length, -1))  # type: ignore[no-any-return]


def _merge(merger: Any, hidden: Tensor) -> Tensor:
    grouped = (hidden.shape[0], TOKENS, merger.hidden_size)
    hidden = merger.norm(hidden.view(grouped)) if merger.use_postshuffle_norm else merger.norm(hidden).view(grouped)
    return merger.linear_fc2(merger.act_fn(merger.linear_fc1(hidden)))  # type: ignore[no-any-return]
