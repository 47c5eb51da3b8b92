"""Any architecture of transformers made tiny: its default configuration with every size reduced.

The named architectures are written down by hand; the others come from rules over the names of settings, which nearly
all configurations share, and from a short table of exceptions (``exceptions.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

WIDTH, HEAD, HEADS, LAYERS = 64, 16, 4, 4
"""Language model: width 64 = 4 heads of 16; 4 layers."""
TOWER_WIDTH, TOWER_HEADS, TOWER_LAYERS = 32, 2, 4
GRID = 8
"""Patches along a side of an image or tile: enough for a merge of 4 x 4."""

EVERYWHERE: dict[str, Any] = {
    r"vocab_size|.*_vocab_size|codebook_size": None,
    r"max_position_embeddings|max_length|n_positions|seq_length|model_max_length": 4096,
    r"num_(local_|routed_)?experts|n_routed_experts|moe_num_experts|num_experts_per_layer": 4,
    r"num_experts_per_tok|moe_topk|top_k|moe_k|num_experts_per_token|experts_per_token": 2,
    r"n_shared_experts|num_shared_experts|moe_num_shared_experts|n_group|topk_group|num_expert_groups": 1,
    r"first_k_dense_replace|num_dense_layers": 1,
    r"moe_intermediate_size|shared_expert_intermediate_size|expert_dim|intermediate_size_mlp": 32,
    r"q_lora_rank|kv_lora_rank|o_lora_rank": 16,
    r"qk_rope_head_dim|qk_nope_head_dim|rotary_dim": 8,
    r"v_head_dim|index_head_dim": 16,
    r"qk_head_dim": 16,
    r"linear_num_key_heads|index_n_heads": 2,
    r"linear_num_value_heads": 4,
    r"linear_key_head_dim|linear_value_head_dim": 8,
    r"linear_head_dim": 16,
    r"vocab_size_per_layer_input": 2048,
    r"hidden_size_per_layer_input": 8,
    r"position_embedding_size": 64,
    r"linear_num_heads": 4,
    r"mm_tokens_per_image|vision_soft_tokens_per_image|image_seq_length": GRID * GRID // 4,
    r"sliding_window|attention_chunk_size": 24,
    r"mlp_ratio": 2,
    r"dropout|.*_dropout|.*_dropout_prob|drop_path_rate|dropout_rate": 0.0,
}
"""Rules for any part of a configuration: names of settings and what they become. None is filled in elsewhere."""

LANGUAGE: dict[str, Any] = {
    r"hidden_size|d_model|n_embd|embed_dim|dim|text_hidden_size|llm_hidden_size|out_hidden_size|projection_dim|proj_dim"
    r"|projector_hidden_size|projector_hidden_dim|n_embed|output_dim|out_dim|word_embed_proj_dim": WIDTH,
    r"intermediate_size|ffn_dim|d_ff|encoder_ffn_dim|decoder_ffn_dim|ffn_hidden_size|adapter_hidden_dim": 2 * WIDTH,
    r"num_hidden_layers|n_layer|num_layers|encoder_layers|decoder_layers": LAYERS,
    r"num_attention_heads|n_head|num_heads|encoder_attention_heads|decoder_attention_heads": HEADS,
    r"num_key_value_heads|num_global_key_value_heads": 2,
    r"head_dim|global_head_dim|d_kv": HEAD,
    r"query_pre_attn_scalar": HEAD,
}
TOWER: dict[str, Any] = {
    r"hidden_size|embed_dim|d_model|width|dim|hidden_dim": TOWER_WIDTH,
    r"intermediate_size|ffn_dim|mlp_dim": 2 * TOWER_WIDTH,
    r"num_hidden_layers|depth|num_layers|layers|n_layer|encoder_layers": TOWER_LAYERS,
    r"(num_|encoder_)?attention_heads|num_heads|heads|n_head|num_key_value_heads": TOWER_HEADS,
    r"encoder_ffn_dim|output_channels|encoder_hidden_size|latent_channels|base_channels": TOWER_WIDTH,
    r"image_token_embed_dim": WIDTH,
    r"num_embeddings": GRID * GRID,
    r"head_dim": TOWER_WIDTH // TOWER_HEADS,
    r"out_hidden_size|projection_dim|output_dim|text_hidden_size|proj_dim|projector_hidden_size|projection_size": WIDTH,
    r"fullatt_block_indexes|global_attn_indexes|vision_full_attention_idx": [1, 3],
    r"deepstack_visual_indexes": [0, 1, 2],
    r"num_position_embeddings|num_pos_emb": GRID * GRID,
}


def shrunk(settings: Mapping[str, Any], tower: bool = False) -> dict[str, Any]:
    """A copy of a configuration's settings with every size reduced; nested configurations too."""
    rules = {**EVERYWHERE, **(TOWER if tower else LANGUAGE)}
    small = {name: _shrunk(name, value, rules, tower) for name, value in settings.items()}
    for name in ("num_hidden_layers", "num_layers", "depth"):
        if isinstance(settings.get(name), int):
            small.update(_cut_to_layers(small, settings[name], small[name]))
    if isinstance(small.get("image_size"), int | list | tuple) and "patch_size" in small:
        patch = small["patch_size"]
        side = GRID * (patch if isinstance(patch, int) else patch[0])
        small["image_size"] = side if isinstance(small["image_size"], int) else [side, side]
    if isinstance(small.get("window_size"), int):  # in pixels or in patches
        small["window_size"] = 4 * (small["patch_size"] if small["window_size"] > WIDTH else 1)
    return small


def _shrunk(name: str, value: Any, rules: Mapping[str, Any], tower: bool) -> Any:
    if isinstance(value, Mapping) and name.endswith("config"):
        return shrunk(value, bool(re.search("vision|image|tower|sam|vit|clip|audio|qformer|perceiver|vq", name)))
    if name in ("rope_parameters", "rope_scaling") and isinstance(value, Mapping):
        return _rope(value)
    if not value or isinstance(value, bool | str):
        return value
    found = [small for pattern, small in rules.items() if small is not None and re.fullmatch(pattern, name)]
    if found and isinstance(value, list) and not isinstance(found[0], list):
        return [found[0]] * len(value)
    return type(value)(found[0]) if found else value


def _rope(value: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of M-RoPE share the frequencies of a smaller head: 2 for time, 3 for rows, 3 for columns."""
    small: dict[str, Any] = {name: _rope(part) if isinstance(part, Mapping) else part for name, part in value.items()}
    if "mrope_section" in small:
        turned = HEAD // 2 * float(small.get("partial_rotary_factor") or 1)
        small["mrope_section"] = {8: [2, 3, 3], 4: [2, 1, 1], 2: [1, 1, 0]}.get(int(turned), [2, 3, 3])
    return small


def _cut_to_layers(settings: Mapping[str, Any], before: int, layers: int) -> dict[str, Any]:
    """Lists with an entry per layer, cut so that every kind of layer is still there."""
    cut = {}
    for name, value in settings.items():
        if isinstance(value, list | tuple) and len(value) == before > layers:
            kinds = list(dict.fromkeys(value))
            cut[name] = [kinds[0]] * (layers - len(kinds) + 1) + kinds[1:]
    return cut
