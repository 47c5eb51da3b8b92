"""Which decoders our loop runs as they run themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from sightline.backbones.own_decoder import unlike_the_loop


def decoder(layers: int = 3, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 100, "head_dim": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.Qwen3Config(
        **sizes, **heads, num_hidden_layers=layers, **{"initializer_range": 0.2, **changes}
    )
    torch.manual_seed(0)
    return transformers.Qwen3Model._from_config(config, dtype=dtype, attn_implementation="sdpa")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_plain_decoder_is_run_by_the_loop(dtype: torch.dtype) -> None:
    made = decoder(dtype=dtype)
    assert unlike_the_loop(made, made, 1) is None


def test_rounding_does_not_pile_up_over_many_layers() -> None:
    """Over a hundred layers two kernels in bfloat16 end 9% of the largest value apart, though each differs by 1%."""
    made = decoder(layers=100, dtype=torch.bfloat16)
    assert unlike_the_loop(made, made, 1) is None


def test_something_done_between_layers_is_noticed() -> None:
    made = decoder()
    made.layers[1].register_forward_pre_hook(lambda layer, given: (given[0] * 1.01, *given[1:]))
    assert "gives something else" in (unlike_the_loop(made, made, 1) or "")


def test_something_done_behind_the_last_layer_is_noticed() -> None:
    class Shifted(transformers.Qwen3Model):  # type: ignore[misc]
        def forward(self, *given: Any, **named: Any) -> Any:
            output = super().forward(*given, **named)
            output.last_hidden_state = output.last_hidden_state + 1.0
            return output

    made = decoder()
    made.__class__ = Shifted
    assert "gives something else" in (unlike_the_loop(made, made, 1) or "")


def test_embeddings_that_the_decoder_scales_are_noticed() -> None:
    class Scaled(transformers.Qwen3Model):  # type: ignore[misc]
        def forward(self, inputs_embeds: Tensor, **named: Any) -> Any:
            return super().forward(inputs_embeds=inputs_embeds * 2, **named)

    made = decoder()
    made.__class__ = Scaled
    assert "gives something else" in (unlike_the_loop(made, made, 1) or "")


def test_a_window_is_a_reason() -> None:
    made = decoder(use_sliding_window=True, sliding_window=2, max_window_layers=1)
    assert unlike_the_loop(made, made, 1) == "it has layers of type sliding_attention"
