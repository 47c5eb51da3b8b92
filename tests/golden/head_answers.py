"""How methods with a trained head answer golden cases: the recorded weights become a head's file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file

from sightline.backbones.cuts import LayerCuts
from sightline.backbones.language import LanguageModel
from sightline.core.prefix import Prefix
from sightline.selectors.fastv import attention_score
from sightline.selectors.glimpseprune import GlimpsePrune, importance
from sightline.selectors.twigvlm import TwigVLM, last_attention
from sightline.selectors.visionselector import VisionSelector, learned_scores
from tests.golden.harness import Case, answers
from tests.golden.layer_answers import keep_sequence, state_of
from tests.unit.selectors.views import view


@contextmanager
def head_file(tensors: dict[str, torch.Tensor], **settings: Any) -> Iterator[str]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "head.safetensors"
        save_file(
            {name: tensor.contiguous() for name, tensor in tensors.items()}, path, {"config": json.dumps(settings)}
        )
        yield str(path)


def under(case: Case, prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in case.tensors.items() if name.startswith(prefix)}


@answers("visionselector")
def visionselector(case: Case) -> dict[str, Any]:
    tokens = case.tensors["tokens"]
    head = {name: tensor for name, tensor in case.tensors.items() if name != "tokens"}
    with head_file({f"visual.importance_scorer.{name}": tensor for name, tensor in head.items()}) as file:
        kept = VisionSelector(file).select(view(tokens), case.params["K"]).anchors
    return {"kept": kept, "score": learned_scores(tokens, head)}


@answers("twigvlm")
def twigvlm(case: Case) -> dict[str, Any]:
    head, params = under(case, "head."), case.params
    hidden, rotary = case.tensors["hidden"], case.tensors["rotary"]
    state = state_of(len(hidden), params["image_start"], params["N"], hidden=hidden, rotary=rotary)
    with head_file({f"model.layers.{name}": tensor for name, tensor in head.items()}) as file:
        twig = TwigVLM(file, eps=params["eps"])
        assert twig.opened.layers == params["layers"]
        kept = twig.cut(state, params["K"]).anchors
    row = last_attention(hidden, rotary, head, params["layers"], params["eps"])
    assert torch.equal(attention_score(row, state.image).topk(params["K"]).indices.sort().values, kept)
    return {"kept": kept, "keep_sequence": keep_sequence(state, kept), "row": row}


def language_of(text: dict[str, Any], weights: dict[str, torch.Tensor]) -> LanguageModel:
    """The decoder that a recorded case ran, by the transformers installed here, in our loop over its layers."""
    from transformers import LlamaConfig, LlamaModel
    from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLTextConfig
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLTextModel

    sections = text.pop("mrope_section", None)
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": sections}
    model: Any = (
        LlamaModel(LlamaConfig(**text))
        if sections is None
        else Qwen2_5_VLTextModel(Qwen2_5_VLTextConfig(**text, rope_parameters=rope, use_sliding_window=False))
    )
    missing = model.load_state_dict(weights, strict=False)
    assert missing.missing_keys == ["embed_tokens.weight", "norm.weight"]
    assert not missing.unexpected_keys
    return LanguageModel(model.eval(), torch.nn.Identity(), 1 if sections is None else 3)


@answers("glimpseprune")
def glimpseprune(case: Case) -> dict[str, Any]:
    """Embeddings through the decoder, the glimpse token behind them, and the cut that it leads to."""
    params, inputs, settings = case.params, case.tensors, case.params["settings"]
    n, k, start, length = params["N"], params["K"], params["image_start"], len(inputs["embeds"])
    language = language_of(dict(params["text"]), under(case, "language."))
    states = inputs["states"].view(-1, n, inputs["states"].shape[-1])
    prefix = Prefix(
        inputs["embeds"],
        inputs["positions"],
        torch.zeros(length, dtype=torch.long),
        start,
        n,
        (),
        (),
        (),
        length,
        length,
    )
    seen: list[Any] = []

    class Watched(GlimpsePrune):
        def cut(self, state: Any, k: int) -> Any:
            seen.append(state)
            return super().cut(state, k)

    with head_file(under(case, "head."), **settings) as file, torch.inference_mode():
        method = Watched(file)
        schedule = method.schedule(n, k, params["text"]["num_hidden_layers"])
        assert schedule == {**dict.fromkeys(range(params["cut"]), n), params["cut"]: k}
        vision = dict(zip(method.states, states, strict=True))
        cuts = LayerCuts(
            method, schedule, [prefix], [(tuple(params["grid"]),)], [""], vision=lambda b, name: vision[name]
        )
        language.read([prefix], cuts)
    scores = seen[0].signals["lm.scout"]
    scores = scores if settings["use_attention_logits"] else scores.log_softmax(-1)
    attention = scores[:, start : start + n].T
    heads = settings["attn_fuse_num_heads"]
    logits = importance(attention, list(states), seen[0].layout, under(case, "head."), heads)
    kept = cuts.anchors[0]
    return {"attention": attention, "score": logits, "kept": kept, "keep_sequence": keep_sequence(seen[0], kept)}
