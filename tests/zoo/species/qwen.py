"""Qwen2-VL and Qwen2.5-VL: native resolution, 2x2 merge, M-RoPE; windows and full blocks in the tower of 2.5."""

from __future__ import annotations

from tests.zoo.specimen import Id, Species, Vocabulary

VOCABULARY = Vocabulary(
    last=(
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|vision_pad|>",
        "<|image_pad|>",
        "<|video_pad|>",
    ),
    roles={"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    tokenizer_class="Qwen2Tokenizer",
)

TEMPLATE = """\
{%- if messages[0]['role'] != 'system' -%}
{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' -}}
{%- endif -%}
{%- for turn in messages -%}
{{- '<|im_start|>' + turn['role'] + '\\n' -}}
{%- if turn['content'] is string -%}{{- turn['content'] -}}
{%- else -%}
{%- for part in turn['content'] -%}
{%- if part['type'] == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- elif part['type'] == 'video' -%}{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
{%- else -%}{{- part['text'] -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

LANGUAGE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    # A head of 16 has 8 frequencies: 2 for time, 3 for rows, 3 for columns (published: 16, 24, 24 of 64).
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]},
    "bos_token_id": Id("<|endoftext|>"),
    "eos_token_id": Id("<|im_end|>"),
}
MARKS = {
    "image_token_id": Id("<|image_pad|>"),
    "video_token_id": Id("<|video_pad|>"),
    "vision_start_token_id": Id("<|vision_start|>"),
    "vision_end_token_id": Id("<|vision_end|>"),
}
IMAGE_PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "min_pixels": 56 * 56,
    "max_pixels": 64 * 28 * 28,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
}
PATCHES = {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}

SPECIES = {
    "qwen2_vl": Species(
        model_class="Qwen2VLForConditionalGeneration",
        processor_class="Qwen2VLProcessor",
        config={
            **MARKS,
            "text_config": LANGUAGE,
            "vision_config": {"depth": 4, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, **PATCHES},
        },
        vocabulary=VOCABULARY,
        image_processor=IMAGE_PROCESSOR,
        template=TEMPLATE,
    ),
    "qwen2_5_vl": Species(
        model_class="Qwen2_5_VLForConditionalGeneration",
        processor_class="Qwen2_5_VLProcessor",
        config={
            **MARKS,
            "text_config": LANGUAGE,
            "vision_config": {
                "depth": 4,
                "hidden_size": 32,
                "out_hidden_size": 64,
                "intermediate_size": 64,
                "num_heads": 2,
                # Windows of 2 x 2 tokens, so that a small image has several; every other block attends to all.
                "window_size": 56,
                "fullatt_block_indexes": [1, 3],
                **PATCHES,
            },
        },
        vocabulary=VOCABULARY,
        image_processor=IMAGE_PROCESSOR,
        template=TEMPLATE,
    ),
}
