"""What the rules of ``shrinking.py`` and ``wild.py`` cannot know of a type, by ``model_type``."""

from __future__ import annotations

from typing import Any

from tests.zoo.specimen import Id


def _sections(*sections: int) -> dict[str, Any]:
    """M-RoPE of a small head, where the published sections stand in the code instead of the configuration."""
    return {"text_config": {"rope_parameters": {"mrope_section": list(sections)}}}


CODES = tuple(f"IMGIMG{''.join(chr(ord('A') + int(digit)) for digit in str(code))}Z" for code in range(64))
"""Chameleon's tokens of its visual codebook: the digits of a code as letters."""

VISUAL = tuple(f"<|visual token {code:06}|>" for code in range(64))
"""The same of Emu3."""

EXCEPTIONS: dict[str, dict[str, Any]] = {
    "aria": {
        "config": {"vision_config": {"image_size": 490, "patch_size": 14}, "projector_patch_to_query_dict": {1225: 16}},
        "image_processor": {"max_image_size": 490},
    },
    "aya_vision": {
        "image_token": "<|IMG_PATCH|>",
        "placeholder": "<image>",
        "tokens": ("TILE_GLOBAL", *(f"TILE_{tile}" for tile in range(1, 13))),
        "processor": {"downsample_factor": 2},
    },
    "blip-2": {
        "no_roles": ("image_token",),
        "image_token": "<image>",
        "placeholder": "",
        "config": {"num_query_tokens": 8},
        "processor": {"num_query_tokens": 8},
    },
    "chameleon": {
        "tokens": CODES,
        "config": {
            "vocabulary_map": {"<image>": Id("<image>"), **{code: Id(code) for code in CODES}},
            "vq_config": {"resolution": 64, "channel_multiplier": [1, 1, 1, 1], "num_res_blocks": 1},
        },
        "no_roles": ("image_token",),
        "image_processor": {"size": {"shortest_edge": 64}, "crop_size": {"height": 64, "width": 64}},
        "processor": {"image_seq_length": 64},
    },
    "cohere_compass": {
        "config": {
            "text_config": {
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2]}
                }
            }
        },
    },
    "cosmos3_omni": {"processor_class": "Qwen3VLProcessor"},
    "deepseek_ocr2": {
        "config": {
            "text_config": {
                "num_experts_per_tok": 2,
                "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
            },
            "vision_config": {"sam_config": {"downsample_channels": [32, 64]}},
        },
    },
    "diffusion_gemma": {
        "image_processor_type": "Gemma4ImageProcessor",
        "config": {"text_config": {"global_head_dim": 16}},
    },
    "emu3": {
        "image_processor": {"min_pixels": 64 * 64, "max_pixels": 128 * 128},
        "tokens": (*VISUAL, "<|extra_200|>"),
        "config": {
            "vocabulary_map": {
                "<image>": Id("<|image_token|>"),
                "<|extra_200|>": Id("<|extra_200|>"),
                **{word: Id(word) for word in VISUAL},
            },
            "vq_config": {
                "codebook_size": 64,
                "embed_dim": 4,
                "latent_channels": 4,
                "channel_multiplier": [1, 1, 1, 1],
                "num_res_blocks": 1,
            },
        },
    },
    "ernie4_5_vl_moe": {"config": _sections(3, 3, 2)},
    "fast_vlm": {"processor_class": "LlavaProcessor", "image_processor_type": "CLIPImageProcessor"},
    "fuyu": {"image_token": "|SPEAKER|", "placeholder": "", "tokens": ("|NEWLINE|",)},
    # Without images unless it is given a tower.
    "gemma4": {
        "config": {
            # Published with and without embeddings per layer.
            "text_config": {"global_head_dim": 16, "hidden_size_per_layer_input": 0},
            "vision_config": {
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "patch_size": 16,
                "position_embedding_size": 64,
            },
        },
        "image_processor": {"max_soft_tokens": 70},
    },
    "glm46v": {"config": _sections(2, 3, 3)},
    "glm5_next": {"config": {"text_config": {"num_key_value_heads": 4}}},
    "glm_ocr": {
        "processor_class": "Glm46VProcessor",
        "image_processor_type": "Glm46VImageProcessor",
        "config": _sections(2, 3, 3),
    },
    "glmga": {"processor_class": "Glm46VProcessor", "config": _sections(2, 3, 3)},
    "glm4v_moe": {"image_processor_type": "Glm4vImageProcessor", "config": _sections(2, 1, 1)},
    # 256 placeholders whatever the configuration says: 64 x 64 patches, four times halved.
    "got_ocr2": {
        "image_token": "<imgpad>",
        "config": {
            "vision_config": {"patch_size": 4, "image_size": 256, "num_hidden_layers": 2, "global_attn_indexes": [1]}
        },
        "image_processor": {"size": {"height": 256, "width": 256}},
    },
    "granite4_vision": {
        "config": {
            "text_config": {"model_type": "granite4_vision_text"},
            "vision_feature_select_strategy": "full",
            "spatial_target_layers": [0, 1, 2, 3],
            "downsample_rate": "1/2",
            "deepstack_layer_map": [[-2, 0]],
            "qformer_config": {"num_attention_heads": 2, "num_hidden_layers": 1},
            "image_grid_pinpoints": [[128, 256], [256, 128], [256, 256]],
        },
        "processor": {"downsample_rate": "1/2"},
        "image_processor": {"image_grid_pinpoints": [[128, 256], [256, 128], [256, 256]]},
    },
    "hunyuan_vl": {
        "config": {
            "text_config": {
                "head_dim": 16,
                "num_key_value_heads": 2,
                "rope_parameters": {"mrope_section": [2, 2, 2, 2]},
            },
            "im_start_id": Id("<|image_start_token|>"),
            "im_end_id": Id("<|image_end_token|>"),
            "im_newline_id": Id("<|image_newline|>"),
        },
        "placeholder": "<|image_start_token|><|image_token|><|image_end_token|>",
    },
    "instructblip": {
        "no_roles": ("image_token",),
        "image_token": "<image>",
        "placeholder": "",
        "config": {"num_query_tokens": 8},
        "processor": {"num_query_tokens": 8},
    },
    "janus": {"config": {"vq_config": {"channel_multiplier": [1, 1]}}},
    "kosmos-2": {"processor_class": "Kosmos2Processor"},
    "kosmos-2.5": {"processor_class": "Kosmos2_5Processor"},
    # The merger runs behind one of the four blocks that are left; by default it is behind the seventh.
    "minicpmv4_6": {"config": {"insert_layer_id": 1}},
    "ovis2": {
        "image_token": "<IMG_ATOM>",
        "placeholder": "<image>",
        "tokens": ("<IMG_START>", "<IMG_GRID>"),
        "processor": {"image_seq_length": 64},
        "config": {
            "vision_config": {"vocab_size": 32},
            "visual_indicator_token_ids": [Id(f"<IMG_{name}>") for name in ("START", "GRID", "COL", "ROW", "END")],
        },
    },
    "paddleocr_vl": {"config": _sections(2, 3, 3)},
    # The template of this type writes all placeholders itself.
    "pp_chart2table": {
        "image_token": "<imgpad>",
        "placeholder": "<imgpad>" * 256,
        "config": {
            "vision_config": {"patch_size": 4, "image_size": 256, "num_hidden_layers": 2, "global_attn_indexes": [1]}
        },
        "image_processor": {"size": {"height": 256, "width": 256}},
    },
    "qianfan_ocr": {"image_token": "<|context_image_token|>", "placeholder": "<image>"},
    "qwen2_5_omni_thinker": {
        "config": {"vision_start_token_id": Id("<|vision_bos_token|>"), **_sections(2, 3, 3)},
        "processor_class": "Qwen2_5OmniProcessor",
        "image_processor_type": "Qwen2VLImageProcessor",
    },
    "qwen3_omni_moe_thinker": {
        "config": {"vision_start_token_id": Id("<|vision_bos_token|>")},
        "processor_class": "Qwen3OmniMoeProcessor",
        "image_processor_type": "Qwen2VLImageProcessor",
    },
    "qwen3_vl_moe": {"image_processor_type": "Qwen2VLImageProcessor"},
    "qwen4_exp": {
        "config": {
            "text_config": {
                "indexer_n_heads": 2,
                "indexer_kv_heads": 1,
                "indexer_head_dim": 16,
                "indexer_budget": 64,
                "indexer_compress_ratio": 4,
                "ngram_vocab_size_base": 1000,
                "hc_lowrank": 16,
            }
        }
    },
    "shieldgemma2": {"processor_class": "Gemma3Processor", "placeholder": "<|boi_token|>"},
    "video_llava": {
        "image_processor": {"size": {"shortest_edge": 112}, "crop_size": {"height": 112, "width": 112}},
    },
    "vipllava": {
        "config": {"vision_feature_layers": [-2, -3, 1]},
        "processor": {"vision_feature_select_strategy": "default"},
    },
}
