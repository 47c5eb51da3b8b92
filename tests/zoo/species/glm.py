"""GLM-4V (GLM-4.1V), GLM-4.6V, GLM-OCR: native resolution, 2x2 merge by convolution, M-RoPE over half of each head."""

from __future__ import annotations

from dataclasses import replace

from tests.zoo.specimen import Id, Species, Vocabulary

TEMPLATE = """\
{{- '[gMASK]<sop>' -}}
{%- for turn in messages -%}
{{- '<|' + turn['role'] + '|>\\n' -}}
{%- if turn['content'] is string -%}{{- turn['content'] -}}
{%- else -%}
{%- for part in turn['content'] -%}
{%- if part['type'] == 'image' -%}{{- '<|begin_of_image|><|image|><|end_of_image|>' -}}
{%- elif part['type'] == 'video' -%}{{- '<|begin_of_video|><|video|><|end_of_video|>' -}}
{%- else -%}{{- part['text'] -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- endif -%}
"""

GLM4V = Species(
    model_class="Glm4vForConditionalGeneration",
    processor_class="Glm4vProcessor",
    config={
        "text_config": {
            "hidden_size": 128,
            "intermediate_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 8192,
            # Half of a head of 32 turns: 8 frequencies, for time, rows, columns (published: 8, 12, 12).
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
                "mrope_section": [2, 3, 3],
            },
            "eos_token_id": [Id("<|endoftext|>"), Id("<|user|>")],
            "pad_token_id": Id("<|endoftext|>"),
        },
        "vision_config": {
            "depth": 4,
            "hidden_size": 32,
            "out_hidden_size": 128,
            "intermediate_size": 64,
            "num_heads": 2,
            # Positions are learned for an image of this size and interpolated to others.
            "image_size": 112,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        "image_token_id": Id("<|image|>"),
        "video_token_id": Id("<|video|>"),
        "image_start_token_id": Id("<|begin_of_image|>"),
        "image_end_token_id": Id("<|end_of_image|>"),
        "video_start_token_id": Id("<|begin_of_video|>"),
        "video_end_token_id": Id("<|end_of_video|>"),
    },
    vocabulary=Vocabulary(
        last=(
            "<|endoftext|>",
            "[gMASK]",
            "<sop>",
            "<|system|>",
            "<|user|>",
            "<|assistant|>",
            "<|begin_of_image|>",
            "<|end_of_image|>",
            "<|begin_of_video|>",
            "<|end_of_video|>",
            "<|image|>",
            "<|video|>",
        ),
        roles={"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
    ),
    image_processor={
        "image_processor_type": "Glm4vImageProcessor",
        # Two frames are counted for a single image.
        "size": {"shortest_edge": 56 * 56, "longest_edge": 2 * 64 * 28 * 28},
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
    },
    template=TEMPLATE,
)

SUCCESSOR = replace(
    GLM4V,
    processor_class="Glm46VProcessor",
    image_processor={**GLM4V.image_processor, "image_processor_type": "Glm46VImageProcessor"},
)

SPECIES = {
    "glm4v": GLM4V,
    "glm46v": replace(SUCCESSOR, model_class="Glm46VForConditionalGeneration"),
    # Its tower has no learned positions, and norms queries and keys.
    "glm_ocr": replace(SUCCESSOR, model_class="GlmOcrForConditionalGeneration"),
}
