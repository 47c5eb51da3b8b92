"""Estimated floating-point operations, counted from shapes. They stand beside measured times, never instead of them."""

from __future__ import annotations

from sightline.backbones.base import Backbone


def language_flops(backbone: Backbone, length: int) -> float:
    """All language layers over one sequence of L positions, without embeddings and output head.

    2 L W for matrix products with W weights, and causal attention 2 * 2 * H d L (L + 1) / 2 per layer: every position
    multiplies with itself and those before it, once for the scores and once for the values.
    """
    config = backbone.model.config.text_config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    weights = _matrix_weights(backbone.language.layers)
    width = int(config.num_attention_heads * head)
    attention = 2.0 * width * length * (length + 1) * len(backbone.language.layers)
    return 2.0 * weights * length + attention


def vision_flops(backbone: Backbone, sequences: list[int], tokens: int) -> float:
    """Vision blocks over attention sequences of these lengths, and the projector over its output tokens.

    2 P W for the blocks' matrix products and 2 * 2 * P^2 C per block for attention, which looks both ways. Blocks
    behind the last one that tokens depend on do not run. 0 without sequences: nobody has said how the tower attends.
    """
    if not sequences:
        return 0.0
    blocks = backbone.vision_blocks[: backbone.vision_depth]
    width = int(backbone.model.config.vision_config.hidden_size)
    patches = sum(sequences)
    attention = 4.0 * width * sum(p * p for p in sequences) * len(blocks)
    tower = getattr(backbone.model.model, "visual", None)
    if tower is not None:
        projector = _matrix_weights([tower.merger, *tower.deepstack_merger_list])
    else:
        projector = _matrix_weights([backbone.model.model.multi_modal_projector])
    return 2.0 * _matrix_weights(blocks) * patches + attention + 2.0 * projector * tokens


def _matrix_weights(modules: object) -> int:
    """Entries of all weight matrices; vectors (norms, biases) are negligible."""
    return sum(p.numel() for module in modules for p in module.parameters() if p.ndim == 2)  # type: ignore[attr-defined]
