"""Gemma 3 and PaliGemma 2: one square picture that attends to itself both ways; sliding and full layers."""

from __future__ import annotations

from tests.zoo.specimen import Id, Species, Vocabulary

LANGUAGE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "max_position_embeddings": 8192,
    "pad_token_id": Id("<pad>"),
    "eos_token_id": Id("<eos>"),
    "bos_token_id": Id("<bos>"),
}
TOWER = {
    "model_type": "siglip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "patch_size": 14,
    "vision_use_head": False,
}
ROLES = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
FIRST = ("<pad>", "<eos>", "<bos>", "<unk>")
PLACES = tuple(f"<loc{place:04}>" for place in range(1024)) + tuple(f"<seg{code:03}>" for code in range(128))
"""PaliGemma answers with places and masks in tokens of their own; its processor adds those that are missing."""

GEMMA3_TEMPLATE = """\
{{- '<bos>' -}}
{%- for turn in messages -%}
{{- '<start_of_turn>' + ('model' if turn['role'] == 'assistant' else turn['role']) + '\\n' -}}
{%- if turn['content'] is string -%}{{- turn['content'] | trim -}}
{%- else -%}
{%- for part in turn['content'] -%}
{{- '<start_of_image>' if part['type'] == 'image' else part['text'] | trim -}}
{%- endfor -%}
{%- endif -%}
{{- '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}
"""

SPECIES = {
    "gemma3": Species(
        model_class="Gemma3ForConditionalGeneration",
        processor_class="Gemma3Processor",
        config={
            "text_config": {
                **LANGUAGE,
                # Published: five sliding layers for a full one, a window of 512 or 1,024. There and here the window is
                # longer than the picture; here it is shorter than picture and question together.
                "sliding_window": 24,
                "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
            },
            "vision_config": {**TOWER, "image_size": 112},
            # 8 x 8 patches pooled to 4 x 4 (published: 64 x 64 to 16 x 16).
            "mm_tokens_per_image": 16,
            "boi_token_index": Id("<start_of_image>"),
            "eoi_token_index": Id("<end_of_image>"),
            "image_token_index": Id("<image_soft_token>"),
        },
        vocabulary=Vocabulary(
            first=FIRST,
            last=("<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<image_soft_token>"),
            roles={
                **ROLES,
                "boi_token": "<start_of_image>",
                "eoi_token": "<end_of_image>",
                "image_token": "<image_soft_token>",
            },
            opening="<bos>",
        ),
        image_processor={
            "image_processor_type": "Gemma3ImageProcessor",
            "size": {"height": 112, "width": 112},
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
            "resample": 2,
        },
        processor={"image_seq_length": 16},
        template=GEMMA3_TEMPLATE,
    ),
    "paligemma": Species(
        model_class="PaliGemmaForConditionalGeneration",
        processor_class="PaliGemmaProcessor",
        config={
            "text_config": {
                "model_type": "gemma2",
                **LANGUAGE,
                "sliding_window": 24,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            },
            "vision_config": {**TOWER, "image_size": 56, "projection_dim": 64},
            "projection_dim": 64,
            "hidden_size": 64,
            "image_token_index": Id("<image>"),
        },
        vocabulary=Vocabulary(first=FIRST, last=(*PLACES, "<image>"), roles={**ROLES, "image_token": "<image>"}),
        image_processor={
            "image_processor_type": "SiglipImageProcessor",
            "size": {"height": 56, "width": 56},
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
            "resample": 3,
            "image_seq_length": 16,
        },
    ),
}
