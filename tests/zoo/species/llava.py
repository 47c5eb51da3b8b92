"""LLaVA-NeXT and OneVision: a base picture, then stitched tiles without their padding, a newline token per row."""

from __future__ import annotations

from dataclasses import replace

from tests.zoo.specimen import Id, Species, Vocabulary

LANGUAGE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
}
TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2, "patch_size": 14}

NEXT_TEMPLATE = """\
{%- for turn in messages -%}
{%- if turn['role'] == 'system' -%}{{- '<<SYS>>\\n' + turn['content'][0]['text'] + '\\n<</SYS>>\\n\\n' -}}
{%- elif turn['role'] == 'user' -%}
{{- '[INST] ' -}}
{%- for part in turn['content'] if part['type'] == 'image' -%}{{- '<image>\\n' -}}{%- endfor -%}
{%- for part in turn['content'] if part['type'] == 'text' -%}{{- part['text'] + ' ' -}}{%- endfor -%}
{{- '[/INST]' -}}
{%- else -%}
{%- for part in turn['content'] if part['type'] == 'text' -%}{{- ' ' + part['text'] + '</s> ' -}}{%- endfor -%}
{%- endif -%}
{%- endfor -%}
"""
"""LLaVA-1.6 with Mistral: an instruction ends where the answer begins, so nothing is added to ask for one."""

ONEVISION_TEMPLATE = """\
{%- for turn in messages -%}
{{- '<|im_start|>' + turn['role'] + ' ' -}}
{%- for part in turn['content'] if part['type'] == 'image' -%}{{- '<image>' -}}{%- endfor -%}
{%- for part in turn['content'] if part['type'] == 'video' -%}{{- '<video>' -}}{%- endfor -%}
{%- for part in turn['content'] if part['type'] == 'text' -%}{{- '\\n' + part['text'] -}}{%- endfor -%}
{{- '<|im_end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

NEXT_PINPOINTS = [[56, 112], [112, 56], [112, 112], [168, 56], [56, 168]]
"""The published shapes with tiles of 56 pixels instead of 336."""
ONEVISION_PINPOINTS = [[56 * high, 56 * wide] for high in range(1, 7) for wide in range(1, 7)]
"""As published, one to six tiles either way, with tiles of 56 pixels instead of 384."""

SPECIES = {
    "llava_next": Species(
        model_class="LlavaNextForConditionalGeneration",
        processor_class="LlavaNextProcessor",
        config={
            "text_config": {
                "model_type": "mistral",
                **LANGUAGE,
                "sliding_window": None,
                "bos_token_id": Id("<s>"),
                "eos_token_id": Id("</s>"),
            },
            # As wide as the tiny CLIP checkpoint of tests/data, whose projection is put behind it.
            "vision_config": {
                "model_type": "clip_vision_model",
                **TOWER,
                "hidden_size": 64,
                "image_size": 56,
                "projection_dim": 32,
            },
            "image_token_index": Id("<image>"),
            "image_grid_pinpoints": NEXT_PINPOINTS,
            "image_seq_length": 16,
            "vision_feature_layer": -2,
            "vision_feature_select_strategy": "default",
        },
        vocabulary=Vocabulary(
            first=("<unk>", "<s>", "</s>"),
            last=("<image>", "<pad>"),
            roles={
                "bos_token": "<s>",
                "eos_token": "</s>",
                "unk_token": "<unk>",
                "pad_token": "<pad>",
                "image_token": "<image>",
            },
            opening="<s>",
        ),
        image_processor={
            "image_processor_type": "LlavaNextImageProcessor",
            "image_grid_pinpoints": NEXT_PINPOINTS,
            "size": {"shortest_edge": 56},
            "crop_size": {"height": 56, "width": 56},
        },
        processor={
            "patch_size": 14,
            "image_token": "<image>",
            "num_additional_image_tokens": 1,
            "vision_feature_select_strategy": "default",
        },
        template=NEXT_TEMPLATE,
    ),
    "llava_onevision": Species(
        model_class="LlavaOnevisionForConditionalGeneration",
        processor_class="LlavaOnevisionProcessor",
        config={
            "text_config": {"model_type": "qwen2", **LANGUAGE, "eos_token_id": Id("<|im_end|>")},
            "vision_config": {
                "model_type": "siglip_vision_model",
                **TOWER,
                "image_size": 56,
                "vision_use_head": False,
            },
            "image_token_index": Id("<image>"),
            "video_token_index": Id("<video>"),
            "image_grid_pinpoints": ONEVISION_PINPOINTS,
            # At most the features of this many tiles: an image of more is shrunk bilinearly.
            "vision_aspect_ratio": "anyres_max_9",
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
        },
        vocabulary=Vocabulary(
            last=("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"),
            roles={
                "eos_token": "<|im_end|>",
                "pad_token": "<|endoftext|>",
                "image_token": "<image>",
                "video_token": "<video>",
            },
            tokenizer_class="Qwen2Tokenizer",
        ),
        image_processor={
            "image_processor_type": "LlavaOnevisionImageProcessor",
            "image_grid_pinpoints": ONEVISION_PINPOINTS,
            "size": {"height": 56, "width": 56},
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
        processor={
            "num_image_tokens": 16,
            "vision_feature_select_strategy": "full",
            "vision_aspect_ratio": "anyres_max_9",
            "image_token": "<image>",
            "video_token": "<video>",
        },
        template=ONEVISION_TEMPLATE,
    ),
}

NEXT = SPECIES["llava_next"]
SPECIES["granite_vision"] = replace(
    NEXT,
    config={
        **NEXT.config,
        "vision_config": {
            "model_type": "siglip_vision_model",
            **TOWER,
            "hidden_size": 64,
            "image_size": 56,
            "vision_use_head": False,
        },
        "vision_feature_layer": [-4, -3, -2, -1],
        "vision_feature_select_strategy": "full",
    },
    processor={**NEXT.processor, "num_additional_image_tokens": 0, "vision_feature_select_strategy": "full"},
)
"""Granite Vision is of LLaVA-NeXT's type: a tower without class token, several of its layers side by side."""
