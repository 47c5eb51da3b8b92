"""CLIP for cost measurements: nothing remembered between samples, and a random-weight one of the published shape."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.backbones.clip import ClipSpace
from sightline.cost.stand_in import StandInTokenizer


class ForgetfulClip(ClipSpace):
    """Encodes a question every time it is asked: an audit asks once per probe, so a sample must pay for it."""

    def text(self, question: str) -> Tensor:
        self._texts.clear()
        return super().text(question)


class RandomClip(ForgetfulClip):
    """The text tower and projections of CLIP ViT-L/14-336. The picture is encoded by the backbone's own tower."""

    def __init__(self, vision_width: int, device: torch.device) -> None:
        from transformers import CLIPConfig, CLIPModel

        config = CLIPConfig(
            text_config={
                "hidden_size": 768,
                "num_hidden_layers": 12,
                "num_attention_heads": 12,
                "intermediate_size": 3072,
                "projection_dim": 768,
            },
            vision_config={
                "hidden_size": vision_width,
                "num_hidden_layers": 1,
                "num_attention_heads": 1,
                "projection_dim": 768,
            },
            projection_dim=768,
        )
        with torch.device(device):
            self.model = CLIPModel._from_config(config, dtype=torch.float32).eval()
        self.tokenizer = StandInTokenizer(image_token_id=5)
        self._texts: dict[str, Tensor] = {}
