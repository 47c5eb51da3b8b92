"""CLIP for cost measurements: nothing remembered between samples, and a random-weight one of the published shape."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sightline.backbones.clip import TEXTS, ClipSpace
from sightline.core.recent import Recent
from sightline.cost.stand_in_tokenizer import StandInTokenizer
from sightline.device.graphs import capture


class ForgetfulClip(ClipSpace):
    """Encodes a question every time it is asked: an audit asks once per probe, so a sample must pay for it."""

    _captured: dict[str, Callable[[], Tensor]] | None = None

    def capture(self) -> None:
        """From now on the text tower is replayed as a graph per question, on a GPU; tokenising comes beforehand."""
        if self.model.device.type == "cuda" and self._captured is None:
            self._captured = {}

    def text(self, question: str) -> Tensor:
        if self._captured is None:
            self._texts.clear()
            return super().text(question)
        if question not in self._captured:
            ids = torch.tensor([self.tokenizer(question).input_ids], device=self.model.device)
            if ids.shape[1] > int(self.model.config.text_config.max_position_embeddings):
                return super().text(question)
            with torch.inference_mode():
                self._captured[question], _ = capture(lambda: self._features(input_ids=ids), self.model.device)
        return self._captured[question]()


class RandomClip(ForgetfulClip):
    """The text tower and projections of CLIP ViT-L/14-336. The image is encoded by the backbone's own tower."""

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
        self._texts = Recent(TEXTS)
