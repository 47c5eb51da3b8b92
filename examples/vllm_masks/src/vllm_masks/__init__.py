"""A plug-in of vLLM: a request says which cells of its image the language model reads.

``mm_processor_kwargs={"kept_cells": [[0, 1, 7]]}``, one list per image, 0 the first cell of the first row. Without it
nothing is pruned.
"""

from vllm_masks.cells import KEPT, read_masks

__all__ = ["KEPT", "read_masks", "register"]


def register() -> None:
    """Called by vLLM in each of its processes, perhaps more than once; the class itself is imported when it is used."""
    from vllm import ModelRegistry

    ModelRegistry.register_model("Qwen3VLForConditionalGeneration", "vllm_masks.qwen3_vl:MaskedQwen3VL")
