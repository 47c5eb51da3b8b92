"""InternVL3 in the format of transformers: up to twelve tiles and a thumbnail, pixel shuffle, a Qwen2 decoder."""

from __future__ import annotations

from tests.zoo.specimen import Id, Species, Vocabulary

TEMPLATE = """\
{%- for turn in messages -%}
{{- '<|im_start|>' + turn['role'] + '\\n' -}}
{%- if turn['content'] is string -%}{{- turn['content'] -}}
{%- else -%}
{%- for part in turn['content'] -%}
{%- if part['type'] == 'image' -%}{{- '<IMG_CONTEXT>\\n' -}}
{%- elif part['type'] == 'video' -%}{{- '<video>\\n' -}}
{%- else -%}{{- part['text'] -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

SPECIES = {
    "internvl": Species(
        model_class="InternVLForConditionalGeneration",
        processor_class="InternVLProcessor",
        config={
            "text_config": {
                "model_type": "qwen2",
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 4,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "max_position_embeddings": 8192,
                "eos_token_id": Id("<|im_end|>"),
                "tie_word_embeddings": False,
            },
            "vision_config": {
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 4,
                "num_attention_heads": 2,
                "image_size": [56, 56],
                "patch_size": [14, 14],
                "attention_bias": True,
            },
            "image_token_id": Id("<IMG_CONTEXT>"),
            # 4 x 4 patches of a tile become 2 x 2 tokens (published: 32 x 32 become 16 x 16).
            "image_seq_length": 4,
            "downsample_ratio": 0.5,
            "tie_word_embeddings": False,
        },
        vocabulary=Vocabulary(
            last=("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"),
            roles={
                "eos_token": "<|im_end|>",
                "pad_token": "<|endoftext|>",
                "start_image_token": "<img>",
                "end_image_token": "</img>",
                "context_image_token": "<IMG_CONTEXT>",
                "video_token": "<video>",
            },
            tokenizer_class="Qwen2Tokenizer",
        ),
        image_processor={
            "image_processor_type": "GotOcr2ImageProcessor",
            "size": {"height": 56, "width": 56},
            "crop_to_patches": True,
            "min_patches": 1,
            "max_patches": 12,
            "image_mean": [0.485, 0.456, 0.406],
            "image_std": [0.229, 0.224, 0.225],
        },
        processor={"image_seq_length": 4},
        template=TEMPLATE,
    ),
}
