"""Idefics3 and SmolVLM: tiles row by row with text between them, the whole picture last, pixel shuffle."""

from __future__ import annotations

from tests.zoo.specimen import Id, Species, Vocabulary

TILES = tuple(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))

TURNS = """\
{%- for turn in messages -%}
{{- turn['role'] | capitalize + (':' if turn['content'][0]['type'] == 'image' else ': ') -}}
{%- for part in turn['content'] -%}
{{- '<image>' if part['type'] == 'image' else part['text'] -}}
{%- endfor -%}
{{- '<end_of_utterance>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}
"""

LANGUAGE = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
TOWER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "image_size": 56,
    "patch_size": 14,
}
IMAGES = {
    "do_image_splitting": True,
    "size": {"longest_edge": 4 * 56},
    "max_image_size": {"longest_edge": 56},
}
"""Up to four tiles of 56 pixels on the longer side, as published with 364 or 512."""

SPECIES = {
    "idefics3": Species(
        model_class="Idefics3ForConditionalGeneration",
        processor_class="Idefics3Processor",
        config={
            "text_config": {
                **LANGUAGE,
                "bos_token_id": Id("<|begin_of_text|>"),
                "eos_token_id": Id("<|eot_id|>"),
                "pad_token_id": Id("<|reserved_special_token_0|>"),
            },
            "vision_config": TOWER,
            "image_token_id": Id("<image>"),
            "pad_token_id": Id("<|reserved_special_token_0|>"),
            "scale_factor": 2,
        },
        vocabulary=Vocabulary(
            last=(
                "<|begin_of_text|>",
                "<|end_of_text|>",
                "<|reserved_special_token_0|>",
                "<|eot_id|>",
                "<fake_token_around_image>",
                "<image>",
                "<end_of_utterance>",
                "<global-img>",
                *TILES,
            ),
            roles={
                "bos_token": "<|begin_of_text|>",
                "eos_token": "<|eot_id|>",
                "pad_token": "<|reserved_special_token_0|>",
            },
            opening="<|begin_of_text|>",
        ),
        image_processor={"image_processor_type": "Idefics3ImageProcessor", **IMAGES},
        processor={"image_seq_len": 4},
        template="{{- '<|begin_of_text|>' -}}\n" + TURNS,
    ),
    "smolvlm": Species(
        model_class="SmolVLMForConditionalGeneration",
        processor_class="SmolVLMProcessor",
        config={
            "text_config": {
                **LANGUAGE,
                "bos_token_id": Id("<|im_start|>"),
                "eos_token_id": Id("<end_of_utterance>"),
                "pad_token_id": Id("<|im_end|>"),
            },
            "vision_config": TOWER,
            "image_token_id": Id("<image>"),
            "pad_token_id": Id("<|im_end|>"),
            "scale_factor": 2,
        },
        vocabulary=Vocabulary(
            first=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
            last=("<global-img>", *TILES, "<fake_token_around_image>", "<image>", "<end_of_utterance>"),
            roles={
                "bos_token": "<|im_start|>",
                "eos_token": "<end_of_utterance>",
                "pad_token": "<|im_end|>",
                "unk_token": "<|endoftext|>",
                "end_of_utterance_token": "<end_of_utterance>",
                "fake_image_token": "<fake_token_around_image>",
                "global_image_token": "<global-img>",
                "image_token": "<image>",
            },
        ),
        image_processor={"image_processor_type": "SmolVLMImageProcessor", **IMAGES},
        processor={"image_seq_len": 4},
        template="{{- '<|im_start|>' -}}\n" + TURNS,
    ),
}
