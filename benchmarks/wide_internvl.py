"""Writes the tiny InternVL checkpoint of the tests with attention heads of 32 values, which vLLM's CPU kernels take.

    python benchmarks/wide_internvl.py FOLDER

Its weights are drawn and its answers mean nothing; that two engines give the same ones does. Theirs has heads of 16.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch

TINY = Path(__file__).resolve().parents[1] / "tests" / "data" / "tiny" / "internvl"


def main(out: Path) -> None:
    from transformers import AutoConfig, InternVLForConditionalGeneration

    config = AutoConfig.from_pretrained(TINY)
    config.text_config.head_dim = 32
    model = InternVLForConditionalGeneration(config).float()
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:  # each keeps the variance of what it reads, or a narrow model would hardly see
                weight.copy_(torch.randn(weight.shape, generator=random) * weight[0].numel() ** -0.5)
    shutil.copytree(TINY, out)
    model.save_pretrained(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
