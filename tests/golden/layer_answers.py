"""How methods that prune between language layers answer golden cases; each only renames tensors."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from sightline import LayerState
from sightline.selectors.autoprune import AutoPrune, information
from sightline.selectors.dart import Dart
from sightline.selectors.duet import DuetInside
from sightline.selectors.fastervlm import CLASS_ATTENTION
from sightline.selectors.fastv import FastV
from sightline.selectors.ficoco import FiCoCoL
from sightline.selectors.fitprune import DELETED_PER_LAYER, REFERENCE_TOKENS, FitPrune
from sightline.selectors.ivcprune import IVCPrune
from sightline.selectors.nuwa import NuwaInside
from sightline.selectors.pact import bounded_centres, by_density, gathered, importance, key_distances
from sightline.selectors.pyramiddrop import PyramidDrop
from sightline.selectors.recycling import cluster_count, keep_and_recycle, recycled_count
from sightline.selectors.scores import top
from sightline.selectors.sgl import SGL
from sightline.selectors.sparsevlm import PUBLISHED_BUDGETS, PUBLISHED_LAYERS, rated, raters
from sightline.selectors.tokencarve import TokenCarve
from sightline.selectors.transprune import TransPrune
from sightline.selectors.v2drop import V2Drop
from sightline.selectors.vlmpruner import VLMPruner
from sightline.selectors.vscan import VScanInside
from sightline.selectors.vtw import VTW
from tests.golden.harness import Case, answers
from tests.golden.token_answers import compressed_by
from tests.unit.selectors.views import mix_of


def state_of(length: int, image_start: int, n: int, *, hidden: Tensor | None = None, **signals: Tensor) -> LayerState:
    """A prompt of ``length`` positions whose n visual tokens stand in one block."""
    return LayerState(
        layer=0,
        hidden=torch.zeros(length, 1) if hidden is None else hidden,
        image=torch.arange(image_start, image_start + n),
        source=torch.arange(n),
        layout=((1, n),),
        signals={f"lm.{name}": value for name, value in signals.items()},
    )


def keep_sequence(state: LayerState, anchors: Tensor) -> Tensor:
    """Absolute positions that survive a deletion: all text, and the visual tokens ``anchors`` names."""
    survives = torch.ones(state.hidden.shape[0], dtype=torch.bool)
    survives[state.image] = False
    survives[state.image[anchors]] = True
    return torch.nonzero(survives).squeeze(1)


def cut_by(
    case: Case, selector: Any, length: int, k: int | None = None, *, n: int = 0, **signals: Tensor
) -> dict[str, Any]:
    """What a method keeps of the recorded image, and with it the positions of the prompt that survive."""
    state = state_of(length, int(case.params["image_start"]), int(n or case.params["N"]), **signals)
    kept = selector.cut(state, int(case.params["K"]) if k is None else k).anchors
    return {"kept": kept, "keep_sequence": keep_sequence(state, kept)}


def projected(case: Case, features: Tensor) -> tuple[Tensor, Tensor]:
    """Queries (H, L, d) and keys (Hkv, L, d) of a recorded layer, which has an identity norm and no rotation."""
    states = (features @ case.tensors[name].T for name in ("wq", "wk"))
    width = case.tensors["wq"].shape[0] // case.params["heads"]
    query, key = (each.view(len(features), -1, width).transpose(0, 1) for each in states)
    return query, key


def projected_row(case: Case) -> Tensor:
    """The attention row of its last token, (H, L)."""
    query, keys = projected(case, case.tensors["features"])
    return last_token_attention(query[:, -1], keys)


@answers("fastv")
def fastv(case: Case) -> dict[str, Any]:
    """The last attention row goes through the cut; the sequence is every text position and the kept visual ones."""
    row = case.tensors["last_row"]
    return cut_by(case, FastV(fastv_k=case.params["fastv_k"]), row.shape[1], attention_last=row)


@answers("apet_inside")
def apet_inside(case: Case) -> dict[str, Any]:
    start = case.params["image_start"]
    return compressed_by(case, case.tensors["hidden"][start : start + case.params["N"]])


@answers("nuwa_inside")
def nuwa_inside(case: Case) -> dict[str, Any]:
    row = case.tensors["last_row"]
    assert NuwaInside().schedule(case.params["N"], case.params["K"], 32) == {15: case.params["K"]}
    return cut_by(case, NuwaInside(), row.shape[1], attention_last=row)


@answers("vscan_inside")
def vscan_inside(case: Case) -> dict[str, Any]:
    row, params = projected_row(case), case.params
    assert VScanInside().schedule(params["N"], params["K"], 32) == {params["layers_run"] - 1: params["K"]}
    return cut_by(case, VScanInside(), row.shape[1], next_attention_last=row)


@answers("duet_inside")
def duet_inside(case: Case) -> dict[str, Any]:
    query, key = projected(case, case.tensors["features"])
    n = case.params["N"]
    assert DuetInside().schedule(n, n // 4, 32) == {15: n // 2, 23: n // 4}
    return cut_by(case, DuetInside(), query.shape[1], next_query=query, next_key=key)


@answers("transprune")
def transprune(case: Case) -> dict[str, Any]:
    """Six layers, three of which are followed by a cut."""
    start, n, memory = case.params["image_start"], case.params["N"], dict[str, Any]()
    schedule = TransPrune().schedule(n, case.params["K"], 32)
    assert [schedule[finished - 1] for finished in (7, 9, 12)] == case.params["left"]
    source, chosen = torch.arange(n), list[Any]()
    for layer in sorted(schedule):
        parts = case.tensors[f"parts{layer + 1}"]
        query, key = projected(case, case.tensors[f"features{len(chosen)}"])
        attention = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(
            torch.ones(query.shape[1], query.shape[1], dtype=torch.bool).triu(1), -torch.inf
        )
        state = state_of(parts.shape[2], start, len(source), parts=parts, next_attention=attention.softmax(dim=-1))
        state = replace(state, source=source, layout=((1, n),), memory=memory)
        if schedule[layer] < len(source):
            source = source[TransPrune().cut(state, schedule[layer]).anchors]
            chosen.append(source)
        else:
            TransPrune().look(state)
    return dict(zip(("first", "second", "kept"), chosen, strict=True))


@answers("autoprune")
def autoprune(case: Case) -> dict[str, Any]:
    """All layers one after the other, with the recorded noise; behind the last, too, where an audit cuts no more."""
    start, layers, source = case.params["image_start"], case.params["layers"], torch.arange(case.params["N"])
    answer, counts, memory = dict[str, Any](), list[int](), dict[str, Any]()
    selector = AutoPrune(x0=case.params["x0"])
    most = selector.schedule(len(source), case.params["K"], layers)[0]
    for layer in range(layers):
        hidden, text = case.tensors[f"hidden{layer}"], case.params["text"]
        attention = torch.nn.functional.pad(case.tensors[f"attention{layer}"], (0, 0, start + len(hidden), 0))
        whole = torch.nn.functional.pad(hidden, (0, 0, start, text))
        state = replace(
            state_of(len(whole), start, len(hidden), hidden=whole, attention=attention),
            layer=layer,
            layers=layers,
            budget=case.params["K"],
            memory=memory,
            source=source,
            layout=((1, case.params["N"]),),
        )
        state = replace(state, signals={**state.signals, CLASS_ATTENTION: case.tensors["class"]})
        noise = case.tensors.get(f"noise{layer}")
        with patch("sightline.selectors.recycling.drawn_noise", lambda count, key, noise=noise: noise[:count]):
            chosen = selector.cut(state, min(most, len(hidden)))
        answer[f"tokens{layer}"] = hidden[chosen.anchors] if chosen.mix is None else chosen.mix @ hidden
        source = source[chosen.anchors]
        counts.append(len(source))
    shares = case.tensors["attention1"].index_select(2, torch.arange(start, start + counts[0]))
    steepness = max(0.0, selector.k0 - selector.gamma * float(information(shares)))
    return {**answer, "counts": counts, "steepness": np.array([steepness], dtype=np.float32)}


@answers("sgl")
def sgl(case: Case) -> dict[str, Any]:
    start, n, memory = case.params["image_start"], case.params["N"], dict[str, Any]()
    length = start + n + case.params["text"]
    for layer in range(case.params["layers"]):
        attention = torch.nn.functional.pad(case.tensors[f"attention{layer}"], (0, 0, start + n - 1, 0))
        state = replace(state_of(length, start, n, attention=attention), memory=memory)
        SGL().look(state)
    kept = SGL().cut(state, case.params["K"]).anchors
    return {"score": memory["guidance"], "kept": kept, "keep_sequence": keep_sequence(state, kept)}


@answers("ficoco_l")
def ficoco_l(case: Case) -> dict[str, Any]:
    """In the public code the image stands first."""
    query, key, n = case.tensors["queries"], case.tensors["keys"], case.params["N"]
    chosen = FiCoCoL().cut(state_of(query.shape[1], 0, n, query=query, key=key), case.params["K"])
    return {"kept": chosen.anchors, "tokens": mix_of(chosen) @ case.tensors["hidden"]}


@answers("vtw")
def vtw(case: Case) -> dict[str, Any]:
    """Nothing is chosen: after the recorded layer, which is the budget, no visual token is left."""
    n, layers = case.params["N"], case.params["layers"]
    ((layer, left),) = VTW().schedule(n, case.params["K"], layers).items()
    counts = np.where(np.arange(layers) <= layer, n, left)
    return {**cut_by(case, VTW(), case.params["length"], left), "counts": counts}


@answers("pact")
def pact(case: Case) -> dict[str, Any]:
    """Importance alone, or the clusters of the tokens in play, given the bound."""
    inputs, params = case.tensors, case.params
    if "queries" in inputs:
        image = torch.arange(params["N"]) + params["image_start"]
        queries, keys = (inputs[name][:, : int(image[-1]) + 1] for name in ("queries", "keys"))
        score = importance(queries, keys, inputs["hidden"][image], image)
        return {"score": score, "playing": top(score, int(params["keep"] * params["N"]))}
    playing, distance = case.inputs["playing"], key_distances(inputs["keys"])
    between = distance[np.ix_(playing, playing)]
    centres = np.sort(playing[bounded_centres(between, by_density(between), params["cutoff"])])
    mix = gathered(distance, playing, centres, params["cutoff"] * params["recovery"])
    return {"anchor": centres, "tokens": mix @ inputs["hidden"], "size": (mix > 0).sum(dim=1).float()}


@answers("pyramiddrop")
def pyramiddrop(case: Case) -> dict[str, Any]:
    row, params = projected_row(case), case.params
    k = int(params["N"] * params["ratio_list"][params["stage"] + 1])
    return cut_by(case, PyramidDrop(), row.shape[1], k, n=params["image_tokens_now"], next_attention_last=row)


@answers("dart")
def dart(case: Case) -> dict[str, Any]:
    """The public count, image pivots + t per pivot, is the budget."""
    hidden, params = case.tensors["hidden"], case.params
    selector = Dart(image_pivots=params["pivot_image_token"], text_pivots=params["pivot_text_token"])
    wanted = params["max_num_trunction"]
    wanted = params["N"] * (1 - params["reduction_ratio"]) if wanted is None else wanted
    pivots = selector.image_pivots + selector.text_pivots
    k = selector.image_pivots + pivots * int(wanted / pivots)
    return cut_by(case, selector, len(hidden), k, normed=hidden, key=case.tensors["keys"])


def deleted(reduction: int) -> list[int]:
    left = [REFERENCE_TOKENS]
    schedule = FitPrune().schedule(REFERENCE_TOKENS, REFERENCE_TOKENS - sum(DELETED_PER_LAYER[reduction]), 32)
    for layer in range(32):
        left.append(schedule.get(layer, left[-1]))
    return [before - after for before, after in itertools.pairwise(left)]


@answers("fitprune")
def fitprune(case: Case) -> dict[str, Any]:
    """Recorded attention onto the visual keys, padded to a square; the published schedule read back from K."""
    if "reduction_ratio" in case.inputs:
        return {"deleted_per_layer": [deleted(int(ratio)) for ratio in case.inputs["reduction_ratio"]]}
    attention = case.tensors["attn"]
    length, n = attention.shape[1], attention.shape[2]
    state = state_of(length, 0, n, attention=torch.nn.functional.pad(attention, (0, length - n)))
    return {"kept": FitPrune().cut(state, n - case.params["delete"]).anchors}


@answers("ivcprune")
def ivcprune(case: Case) -> dict[str, Any]:
    """The public code fixes shares of N, not K, so its K and its coordinates' share of it are read off."""
    values, rotary = (case.tensors[name] for name in ("values", "rotary"))
    selector = IVCPrune(coordinates=2 * case.params["each"] / case.params["K"])
    return cut_by(case, selector, values.shape[1], hidden=values[0], value=values, rotary=rotary)


@answers("sparsevlm")
def sparsevlm(case: Case) -> dict[str, Any]:
    """One stage with the published budget and the recorded density noise."""
    inputs = case.tensors
    start, n = case.params["image_start"], case.params["N"]
    visual, text = slice(start, start + n), slice(start + n, None)
    chosen = raters(inputs["embeds"], visual, text)
    score = rated(inputs["attn_text_vis"], chosen, torch.arange(n))
    budget = PUBLISHED_BUDGETS[case.params["retain"]][PUBLISHED_LAYERS.index(case.params["layer"])]
    kept = min(budget, n - 1)
    noise = inputs["density_noise"]
    assert recycled_count(n, kept) == len(noise)
    hidden, clusters = inputs["layer_out"][visual], cluster_count(n, kept)
    stay, recycled, _, mix = keep_and_recycle(score, hidden, kept, clusters, noise)
    picks = {"raters": chosen, "kept": stay, "recycled": recycled, "cluster_num": [clusters]}
    return {**picks, "score": score, "vis_tokens_out": mix @ hidden}


@answers("tokencarve")
def tokencarve(case: Case) -> dict[str, Any]:
    """Mode 0, 1, 2 are the rankings both, information, attention."""
    hidden, params = case.tensors["layer_out"], case.params
    row = case.tensors["last_row"]
    state = state_of(len(hidden), params["image_start"], params["N"], hidden=hidden, attention_last=row)
    ranking: Any = ("both", "information", "attention")[params["mode"]]
    selector = TokenCarve(ranking=ranking, weight=params["weight"])
    kept, source, target = selector.carve(state, params["budget"])
    selection = selector.cut(state, params["budget"])
    assert torch.equal(selection.anchors, kept)
    tokens = mix_of(selection) @ hidden[state.image]
    return {"kept": kept, "merge_source": source, "merge_target": target, "tokens": tokens}


@answers("vlmpruner")
def vlmpruner(case: Case) -> dict[str, Any]:
    """The public grid is 24 columns wide whatever the number of tokens, and a missed budget stays missed."""
    hidden, params = case.tensors["hidden"], case.params
    state = state_of(len(hidden), params["image_start"], params["N"], hidden=hidden, key=case.tensors["keys"])
    state = replace(state, layout=((24, 24),) * math.ceil(params["N"] / 576))
    selector = VLMPruner(pivots=params["pivots"], threshold=params["threshold"], batch=params["token_batch"])
    selection = selector.cut(state, params["requested"], fill=False)
    tokens = mix_of(selection) @ hidden[state.image]
    return {"kept": selection.anchors, "tokens": tokens[:, : case.outputs["tokens"].shape[1]]}


@answers("v2drop")
def v2drop(case: Case) -> dict[str, Any]:
    hidden, params = case.tensors["hidden"], case.params
    assert params["layers_run"] - 1 in V2Drop().schedule(params["N"], 1, params["depth"])
    return cut_by(case, V2Drop(), len(hidden), hidden=hidden, input=case.tensors["given"])


def last_token_attention(query: Tensor, keys: Tensor) -> Tensor:
    """The attention row of the last token, which may look at every position: softmax(q . k / sqrt(d)) in float32.

    query (..., H, d), keys (..., H, L, d) -> (..., H, L).
    """
    logits = (keys.float() @ query.float().unsqueeze(-1)).squeeze(-1)
    return torch.softmax(logits / query.shape[-1] ** 0.5, dim=-1)
