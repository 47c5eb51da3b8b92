"""Training state to an ordinary checkpoint folder: stock configuration, bfloat16 safetensors, tokenizer, processor."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from lab.reader.forms import FORMS, QWEN3_VL
from lab.reader.processor import save_processor
from lab.reader.state import load_weights, read_state


def export(state: Path, out: Path) -> Path:
    """Writes the checkpoint of the training state in folder ``state`` into ``out``; the training heads stay behind."""
    tensors, progress = read_state(state)
    form = FORMS[progress.get("form", QWEN3_VL.name)]
    model = form.model(progress["preset"], progress["seed"])
    load_weights(tensors, nn.ModuleDict({"model": model}))
    out.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(out)
    save_processor(out, form)
    return out
