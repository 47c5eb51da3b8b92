"""The head that the audited path multiplies with is the model's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sightline.backbones.own_decoder import AdjustedHead, output_head
from sightline.errors import SightlineError


class Body(nn.Module):
    def forward(self, inputs_embeds: Tensor, **_: Any) -> Any:
        return SimpleNamespace(last_hidden_state=inputs_embeds * 2)


class Model(nn.Module):
    def __init__(self, change: Any, **settings: float) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.body, self.change = Body(), change
        self.embedding, self.head = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
        for part in (self.embedding, self.head):
            nn.init.normal_(part.weight, generator=generator)
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(**settings))

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, **given: Any) -> Any:
        return SimpleNamespace(logits=self.change(self.head(self.body(**given).last_hidden_state)))


def test_a_plain_head_is_taken_as_it_is() -> None:
    model = Model(lambda logits: logits, final_logit_softcapping=30.0)
    assert output_head(model, model.body) is model.head


@pytest.mark.parametrize(("setting", "value", "change"), [
    ("final_logit_softcapping", 3.0, lambda logits: torch.tanh(logits / 3.0) * 3.0),
    ("logit_scale", 0.25, lambda logits: logits * 0.25),
    ("logits_scaling", 8.0, lambda logits: logits / 8.0),
])  # fmt: skip
def test_what_is_done_behind_it_is_done_too(setting: str, value: float, change: Any) -> None:
    model = Model(change, **{setting: value})
    head = output_head(model, model.body)
    assert isinstance(head, AdjustedHead)
    hidden = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(head(hidden), change(model.head(hidden)))


def test_anything_else_is_refused() -> None:
    model = Model(lambda logits: logits.abs())
    with pytest.raises(SightlineError, match="does more than multiply, cap or scale"):
        output_head(model, model.body)


def test_a_model_that_cannot_be_asked_is_refused_if_it_has_such_a_setting() -> None:
    def fails(logits: Tensor) -> Tensor:
        raise RuntimeError("no image")

    silent = Model(fails)
    assert output_head(silent, silent.body) is silent.head
    capped = Model(fails, final_logit_softcapping=30.0)
    with pytest.raises(SightlineError, match=r"final_logit_softcapping\) and cannot be asked how: RuntimeError"):
        output_head(capped, capped.body)
