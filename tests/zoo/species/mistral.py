"""Mistral 3 with the Pixtral tower: native resolution, learned 2x2 merge, a break token after every row."""

from __future__ import annotations

from tests.zoo.specimen import Id, Species, Vocabulary

TEMPLATE = """\
{{- '<s>' -}}
{%- if messages[0]['role'] != 'system' -%}
{{- '[SYSTEM_PROMPT]You are a helpful assistant.[/SYSTEM_PROMPT]' -}}
{%- endif -%}
{%- for turn in messages -%}
{%- set opening, closing = {'system': ('[SYSTEM_PROMPT]', '[/SYSTEM_PROMPT]'), 'assistant': ('', '</s>')}.get(
    turn['role'], ('[INST]', '[/INST]')
) -%}
{{- opening -}}
{%- if turn['content'] is string -%}{{- turn['content'] -}}
{%- else -%}
{%- for part in turn['content'] -%}
{{- '[IMG]' if part['type'] in ('image', 'image_url') else part['text'] -}}
{%- endfor -%}
{%- endif -%}
{{- closing -}}
{%- endfor -%}
"""
"""The published one has a longer system message of its own; an instruction ends where the answer begins."""

SPECIES = {
    "mistral3": Species(
        model_class="Mistral3ForConditionalGeneration",
        processor_class="PixtralProcessor",
        config={
            "text_config": {
                "model_type": "mistral",
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 4,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "max_position_embeddings": 8192,
                "sliding_window": None,
                "bos_token_id": Id("<s>"),
                "eos_token_id": Id("</s>"),
            },
            "vision_config": {
                "model_type": "pixtral",
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 4,
                "num_attention_heads": 2,
                "image_size": 224,
                "patch_size": 14,
                "hidden_act": "silu",
            },
            "image_token_index": Id("[IMG]"),
            "spatial_merge_size": 2,
            "vision_feature_layer": -1,
            "tie_word_embeddings": False,
        },
        vocabulary=Vocabulary(
            first=(
                "<unk>",
                "<s>",
                "</s>",
                "[INST]",
                "[/INST]",
                "[AVAILABLE_TOOLS]",
                "[/AVAILABLE_TOOLS]",
                "[TOOL_RESULTS]",
                "[/TOOL_RESULTS]",
                "[TOOL_CALLS]",
                "[IMG]",
                "<pad>",
                "[IMG_BREAK]",
                "[IMG_END]",
                "[PREFIX]",
                "[MIDDLE]",
                "[SUFFIX]",
                "[SYSTEM_PROMPT]",
                "[/SYSTEM_PROMPT]",
            ),
            roles={"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
            opening="<s>",
        ),
        image_processor={
            "image_processor_type": "PixtralImageProcessor",
            "patch_size": 14,
            "size": {"longest_edge": 224},
        },
        processor={
            "patch_size": 14,
            "spatial_merge_size": 2,
            "image_token": "[IMG]",
            "image_break_token": "[IMG_BREAK]",
            "image_end_token": "[IMG_END]",
        },
        template=TEMPLATE,
    ),
}
