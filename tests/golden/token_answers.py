"""How methods that prune before the language model answer golden cases; each only renames tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from sightline import Selection, TokenView
from sightline.backbones.base import Backbone
from sightline.backbones.signals import received_attention
from sightline.selectors.anchorprune import AnchorPrune, AnchorPruneQwen, anchorprune_order
from sightline.selectors.apet import compressed, farthest_points
from sightline.selectors.cdpruner import CDPruner, blended_order, cdpruner_order, conditional_relevance
from sightline.selectors.coin import coin_order
from sightline.selectors.divprune import divprune_order
from sightline.selectors.duet import local_merge
from sightline.selectors.fastervlm import FasterVLM, head_mean
from sightline.selectors.flowcut import FlowCut, followed
from sightline.selectors.globalcom2 import GlobalCom2
from sightline.selectors.gprune import flow_scores
from sightline.selectors.greedy import gram, text_dissimilarity
from sightline.selectors.hiprune import cross_neighbours, hiprune_kept
from sightline.selectors.hired import HiRED, tile_budgets
from sightline.selectors.holov import HoloV, holov_order
from sightline.selectors.mmtok import coverage, mmtok_kept
from sightline.selectors.nuwa import Nuwa, plane, regional_anchors, spatial_weights
from sightline.selectors.pixelprune import PixelPrune
from sightline.selectors.prumerge import PruMergePlus, class_attention, merge_weights
from sightline.selectors.prunesid import PER_GROUP, attended_kept, token_kept
from sightline.selectors.scope import scope_order
from sightline.selectors.scores import rank, top
from sightline.selectors.spreading import best_within, tiles_of
from sightline.selectors.tome import match, mean_weights
from sightline.selectors.trim import kept_and_mean, unlikeness
from sightline.selectors.visionzip import VisionZipQwen, merge_plan, received_salience, split_budget, with_class_token
from sightline.selectors.vispruner import VisPruner, vispruner_kept
from sightline.selectors.vscan import VScan
from sightline.selectors.zooprune import sensitive_order
from tests.golden.harness import Case, answers
from tests.unit.selectors.views import mix_of, view


def anchor_settings(case: Case) -> tuple[int, float, float, int]:
    return case.params["k_min"], case.params["kmax_ratio"], case.params["tau"], case.params["patience"]


@answers("anchorprune")
def anchorprune(case: Case) -> dict[str, Any]:
    """Kept tokens and the relevance-ranked anchor they start with."""
    inputs = {name: torch.from_numpy(value)[None] for name, value in case.inputs.items()}
    relevance, features, importance = (inputs[name] for name in ("relevance", "features", "importance"))
    expanding = inputs.get("expansion_features", features)
    order, anchor_length = anchorprune_order(
        relevance, features, importance, expanding, case.params["K"], *anchor_settings(case)
    )
    return {"kept": order[0].sort().values, "anchor_order": order[0, : int(anchor_length)]}


@answers("anchorprune_llava")
def anchorprune_llava(case: Case) -> dict[str, Any]:
    """The selector itself, fed with the tower's tensors."""
    inputs, hidden = case.tensors, case.tensors["hidden"][1:]
    signals = {"clip.image": inputs["clip_patch"], "clip.text": inputs["text_embeds"], "vision.hidden@-2": hidden}
    shown = view(hidden, signals={**signals, "vision.cls_attention@-2": inputs["cls_attn_heads"]})
    return {"kept": AnchorPrune(*anchor_settings(case)).select(shown, case.params["K"]).anchors}


@answers("anchorprune_qwen")
def anchorprune_qwen(case: Case) -> dict[str, Any]:
    """Attention received by raw patches is grouped and re-ordered as the backbone does it."""
    inputs, params = case.tensors, case.params
    received = inputs["received_mass"].view(-1, 4).mean(dim=1)[inputs["window_index"].argsort()]
    selector = AnchorPruneQwen(*anchor_settings(case), aggregate=params["agg"])
    question = view(inputs["visual"], query=inputs["text"], signals={"vision.received@-1": received})
    relevance, visual = selector.relevance(question)[None], inputs["visual"][None]
    _, anchor_length = anchorprune_order(
        relevance, visual, received[None], visual, params["K"], params["k_min"], tau=params["tau"]
    )
    return {"kept": selector.select(question, params["K"]).anchors, "anchor_size": anchor_length}


@answers("apet")
def apet(case: Case) -> dict[str, Any]:
    return compressed_by(case, case.tensors["hidden"])


def compressed_by(case: Case, hidden: Tensor) -> dict[str, Any]:
    """Given the first basis token, which the recorded run drew."""
    products = gram(hidden.double().unsqueeze(0))[0]
    basis = farthest_points(products, torch.tensor([case.params["first"]]), case.params["basis"])
    anchors, mix = compressed(products, basis, case.params["K"])
    anchors, by_place = anchors.sort()
    passed = (mix.sum(dim=0) == 0).nonzero().flatten()
    return {"order": basis, "passed": passed, "anchor": anchors, "tokens": mix[by_place] @ hidden}


@answers("cdpruner")
def cdpruner(case: Case) -> dict[str, Any]:
    """The greedy determinantal subset; the published code rescales relevance over its whole batch."""
    features, patches, texts = (case.tensors[n] for n in ("features", "image_embeds", "text_embeds"))
    batched = bool(case.params.get("batched"))
    if not batched:
        features, patches = features[None], patches[None]
    relevance = conditional_relevance(text_dissimilarity(patches, texts), across_batch=True)
    kept = cdpruner_order(features, relevance, case.params["K"]).sort(dim=1).values
    if batched:
        return {"mask": torch.zeros(features.shape[:2], dtype=torch.bool).scatter_(1, kept, True)}
    return {"kept": kept[0]}


@answers("cdpruner_openvino")
def cdpruner_openvino(case: Case) -> dict[str, Any]:
    """By halves, the engine's default, the form itself; without, its algorithm on all tokens at once."""
    visual, text, k = case.tensors["visual"], case.tensors["text"], case.params["K"]
    if case.params["split"]:
        form: Any = CDPruner().other_form(32)
        return {"kept": form.select(view(visual, query=text), k).anchors}
    return {"kept": blended_order(visual[None], text, k)[0].sort().values}


@answers("coin")
def coin(case: Case) -> dict[str, Any]:
    """Pick order from projected tokens and prompt embeddings."""
    visual, text, params = case.tensors["visual"], case.tensors["text"], case.params
    return picked(coin_order(visual[None], text.mean(dim=0)[None], params["K"], params["alpha"], params["beta"])[0])


@answers("divprune")
def divprune(case: Case) -> dict[str, Any]:
    """Pick order from projected tokens."""
    return picked(divprune_order(case.tensors["features"][None], case.params["K"])[0])


def picked(order: Tensor) -> dict[str, Any]:
    return {"order": order, "kept": order.sort(dim=-1).values}


@answers("duet")
def duet(case: Case) -> dict[str, Any]:
    inputs = case.tensors
    counts = (case.params[name] for name in ("dominant", "contextual", "width"))
    anchors, mix = local_merge(inputs["received"], inputs["metric"], *counts)
    kept, by_place = anchors.sort()
    return {"kept": kept, "tokens": mix[by_place] @ inputs["projected"]}


@answers("fastervlm")
def fastervlm(case: Case) -> dict[str, Any]:
    score = head_mean(case.tensors["cls_attn_heads"])
    return {"kept": top(score, case.params["K"]), "score": score}


@answers("flowcut")
def flowcut(case: Case) -> dict[str, Any]:
    """The recorded class row is before softmax, with the class token first; the signal has its patches alone."""
    attention, values = case.tensors["cls_logits"].double().softmax(dim=-1), case.tensors["values"]
    parts = {"cls_attention": attention[:, :, 1:], "value": values[:, :, 1:], "cls_value": values[:, :, 0]}
    return {"kept": followed(by_layer(parts), case.params["layers"], case.params["K"]).nonzero().flatten()}


@answers("flowcut_qwen")
def flowcut_qwen(case: Case) -> dict[str, Any]:
    form = FlowCut().other_form(case.params["layers"])
    return {"kept": chosen_by(form, case, by_layer(case.tensors), None).anchors}


def by_layer(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"vision.{part}@{layer}": each for part, states in parts.items() for layer, each in enumerate(states)}


BASE = 576


@answers("gprune")
def gprune(case: Case) -> dict[str, Any]:
    features, params = case.tensors["features"], case.params

    def prune(tokens: Tensor) -> tuple[Tensor, Tensor]:
        graph = (params["similarity"], params["temperature"], params["iterations"])
        score = flow_scores(tokens[None], *graph)[0]
        return score, top(score, int(params["keep_ratio"] * len(tokens)))

    if "rows" not in params:
        return {"kept": prune(features)[1]}
    # The LLaVA-NeXT sequence: base grid, then tile rows that each end in a token which is always kept.
    places = torch.arange(BASE, len(features)).view(params["rows"], params["cols"] + 1)
    inner, row_ends = places[:, :-1].flatten(), places[:, -1]
    score_base, base = prune(features[:BASE])
    score_tiles, tiles = prune(features[inner])
    kept = torch.cat([base, inner[tiles], row_ends]).sort().values
    return {"kept": kept, "score_base": score_base, "score_tiles": score_tiles}


@answers("hiprune")
def hiprune(case: Case) -> dict[str, Any]:
    shallow, deep = (case.tensors[name][None, 1:] for name in ("shallow_attn", "deep_attn"))
    neighbours = cross_neighbours(((24, 24),), wrap=True)
    return {"kept": hiprune_kept(shallow, deep, neighbours, case.params["K"], case.params["alpha"])[0]}


@answers("hired")
def hired(case: Case) -> dict[str, Any]:
    """The recorded counts are rounded down; the selector itself, on the same tiles, adds what is left over."""
    inputs, params = case.tensors, case.params
    side, grid, k, alpha = params["side"], params["grid"], params["K"], params["alpha"]
    shallow, deep = (inputs[name].mean(dim=1) for name in ("shallow", "deep"))
    counts = [int(k * alpha)]
    counts += tile_budgets(shallow[0], (side * side, 1), (grid[0] * grid[1], 1), k - counts[0], 1.0 - alpha).tolist()
    tile = torch.arange(len(shallow)).repeat_interleave(side * side) - 1
    kept = torch.cat([best_within(deep.flatten(), tile == number - 1, count) for number, count in enumerate(counts)])
    signals = {"vision.cls_attention@0": inputs["shallow"], "vision.cls_attention@-2": inputs["deep"]}
    shown = tiled_view(side, grid, {name: heads.transpose(0, 1).flatten(1) for name, heads in signals.items()})
    whole = HiRED(alpha=alpha).select(shown, k).anchors
    assert set(kept.tolist()) <= set(whole.tolist())
    assert len(whole) == k
    return {"kept": kept.sort().values, "per_tile": counts}


def tiled_view(side: int, grid: Sequence[int], signals: Mapping[str, Tensor]) -> TokenView:
    """Base picture and tiles as blocks of their own, the base picture first; cells lie in the image plane."""
    plane = torch.stack([part.flatten() for part in torch.meshgrid(*[torch.arange(side) / side] * 2, indexing="ij")])
    local = torch.cat([plane.flip(0), plane.flip(0) + 1 / side]).T.double()
    rows, columns = grid
    size = torch.tensor([columns, rows] * 2)
    corners = [torch.tensor([x, y] * 2) for y in range(rows) for x in range(columns)]
    cells = torch.cat([local, *((local + corner) / size for corner in corners)])
    shown = view(torch.zeros(len(cells), 1), signals=signals)
    return replace(shown, cells=cells, layout=((side, side),) * (1 + len(corners)))


@answers("globalcom2")
def globalcom2(case: Case) -> dict[str, Any]:
    """The recorded counts are rounded down; the selector itself adds what is left over."""
    score, (side, grid, k) = case.tensors["scores"].flatten(), (case.params[name] for name in ("side", "grid", "K"))
    shown = tiled_view(side, grid, {})
    tile, found = tiles_of(shown.layout, shown.cells)
    assert found == tuple(grid)
    parts, _ = GlobalCom2().parts(score, shown, tile, found, k)
    whole = GlobalCom2().kept(score, shown, k)
    kept = torch.cat(parts).sort().values
    assert set(kept.tolist()) <= set(whole.tolist())
    assert len(whole) == k
    return {"kept": kept, "per_tile": [len(part) for part in parts]}


@answers("holov")
def holov(case: Case) -> dict[str, Any]:
    features, attention = (case.tensors[name][None] for name in ("features", "cls_attn"))
    params = case.params
    order, unfilled = holov_order(features, attention, params["K"], params["num_patches"], params["alpha"])
    # The published code emits zero vectors, source -1, where Sightline falls back to attention.
    filled = params["K"] - int(unfilled)
    return {"order": torch.cat([order[0, :filled], order.new_full((int(unfilled),), -1)])}


@answers("mmtok")
def mmtok(case: Case) -> dict[str, Any]:
    tokens, features, text = (case.tensors[name] for name in ("visual", "visual_clip", "text"))
    params = case.params
    covers = coverage(tokens, features, text, params["alpha"], params["tv_temp"], params["vv_temp"])
    excluded = torch.zeros(1, len(tokens), dtype=torch.bool)
    excluded[:, params["padding"] or []] = True
    return {"kept": mmtok_kept([covers], params["K"], excluded)[0]}


STAGE_ONE = {64: 112, 128: 224, 192: 336}
"""Final token count of the published LLaVA setting -> anchors of its first stage."""


@answers("nuwa")
def nuwa(case: Case) -> dict[str, Any]:
    params, inputs = case.params, case.tensors
    if "matain_token" in params:
        states = inputs["hidden16_24"][:, 1:]
        features, hidden = states.mean(dim=0), states[-2]
        importance = inputs["cls_attn_heads"].sum(dim=0)
        where, k, per_region = plane(((24, 24),)), STAGE_ONE[params["matain_token"]], 1
        reach = math.sqrt(params["distance"])
    else:
        features, hidden, importance = inputs["sim"], inputs["hidden"], inputs["cls_attn"]
        where, k, per_region = plane(((params["H"], params["W"]),)), params["K"], params["top_n_per_region"]
        reach = params["distance_threshold"]
    anchors = regional_anchors(importance[None], where.regions, k, per_region)
    mix = spatial_weights(features[None], importance[None], anchors, where, reach, params["percentile"])[0]
    return {"anchor": anchors[0], "mix": mix, "tokens": mix @ hidden}


@answers("pixelprune")
def pixelprune(case: Case) -> dict[str, Any]:
    pixels, method = case.tensors["pixels"], PixelPrune(tolerance=case.params["tolerance"])
    return {"kept": chosen_by(method, case, {"image.pixels": pixels}, pixels).anchors}


@answers("prumerge")
def prumerge(case: Case) -> dict[str, Any]:
    q, k, hidden = (case.tensors[name] for name in ("q", "k", "hidden"))
    keys = k[None, 1:]
    attention = class_attention(q[None, 0], k[None, 0], keys)
    ratio = float(outlier_fraction(attention)) if case.params["adaptive"] else case.params["reduction_ratio"]
    centres = official_centres(attention[0], ratio, case.params["plus"])
    mix = merge_weights(attention, keys, centres[None])[0]
    return {"anchor": centres, "mix": mix, "n_out": [len(mix)], "tokens": mix @ hidden[1:]}


@answers("prumerge_plus_qwen")
def prumerge_plus_qwen(case: Case) -> dict[str, Any]:
    tokens = case.tensors["projected"]
    signals = {f"vision.{name}@-2": case.tensors[name] for name in ("received", "key")}
    chosen = chosen_by(PruMergePlus().other_form(32), case, signals, tokens)
    assert chosen.merge_at == "tokens"
    return {**picked(chosen.anchors), "tokens": mix_of(chosen) @ tokens}


@answers("prunesid")
def prunesid(case: Case) -> dict[str, Any]:
    """Given the groups that the recorded run drew."""
    inputs, params = case.tensors, case.params
    score, groups = inputs["cls_attn_heads"].double().sum(dim=0), params["need_token_num"] // PER_GROUP
    patches = inputs["hidden"][1:].double()
    return {"kept": attended_kept(patches, score, inputs["group"], groups, params["K"], lenience=1.0)}


@answers("prunesid_qwen")
def prunesid_qwen(case: Case) -> dict[str, Any]:
    """Given the directions that the recorded run drew."""
    inputs, params = case.tensors, case.params
    part, tokens = inputs["part"].double(), inputs["tokens"].double()
    return {"kept": token_kept(tokens, part, inputs["group"], params["groups"], params["K"], lenience=1.0)}


@answers("scope")
def scope(case: Case) -> dict[str, Any]:
    """Pick order from hidden states and head-summed class attention."""
    batched = bool(case.params.get("batched"))
    features = case.tensors["features"]
    attention = case.tensors["cls_attn"] if "cls_attn" in case.inputs else torch.ones(features.shape[:-1])
    if not batched:
        features, attention = features[None], attention[None]
    saliency = attention ** case.params["alpha"]
    order = scope_order(features, saliency, case.params["K"], case.params["combined"])
    return picked(order if batched else order[0])


@answers("tome")
def tome(case: Case) -> dict[str, Any]:
    inputs = case.tensors
    metric, tokens = inputs["metric"], inputs["x"]
    size = inputs["size"][:, 0] if "size" in inputs else torch.ones(len(metric))
    slot, representative = match(metric[None], case.params["r"], protect_first=case.params["class_token"])
    mix, total = mean_weights(slot, representative.shape[1], size[None])
    return {"assign": slot[0], "size_out": total[0, :, None], "tokens": mix[0] @ tokens}


@answers("zooprune")
def zooprune(case: Case) -> dict[str, Any]:
    """The recorded projector and directions take the place of a model's."""
    first, second = case.tensors["first"].double(), case.tensors["second"].double()
    states, drawn = case.tensors["states"].double(), case.tensors["directions"].double()

    def project(hidden: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(hidden @ first.T) @ second.T

    backbone = cast(Backbone, SimpleNamespace(merge_sources=lambda encoded: states, project=project))
    with patch("torch.randn", lambda *shape, generator: drawn):
        score = Backbone.sensitivity(backbone, cast(Any, SimpleNamespace(n=len(states))))
    return {"score": score, **picked(sensitive_order(project(states)[None], score[None], case.params["K"])[0])}


@answers("trim")
def trim(case: Case) -> dict[str, Any]:
    score = unlikeness(case.tensors["clip_patch"], case.tensors["text_embeds"])
    anchors, mix = kept_and_mean(score, case.params["K"])
    return {"kept": anchors[:-1], "tokens": mix @ case.tensors["hidden"]}


@answers("visionzip")
def visionzip(case: Case) -> dict[str, Any]:
    """Golden sources number the class token 0 and patches from 1; ours put it behind the patches."""
    inputs, params = case.tensors, case.params
    salience, metric = inputs["cls_attn_heads"].sum(dim=0)[None], inputs["metric"][1:][None]
    dominant, contextual = params["dominant"] - 1, params["contextual"]
    anchors, mix = (part[0] for part in with_class_token(*merge_plan(salience, metric, dominant, contextual)))
    ranked, _ = merge_plan(salience, metric, dominant, contextual, ranked=True)
    mix = mix.roll(1, dims=1)
    return {
        "assign": mix.argmax(dim=0),
        "weight": mix.sum(dim=0),
        "tokens": mix @ inputs["hidden"],
        "dominant_sorted": anchors[: dominant + 1] + 1,
        "topk_order": torch.cat([torch.zeros(1, dtype=torch.int64), ranked[0, :dominant] + 1]),
    }


@answers("visionzip_qwen3")
def visionzip_qwen3(case: Case) -> dict[str, Any]:
    """The selector's merge plan on tokens and DeepStack maps, its signals, and the budget split."""
    inputs = case.tensors
    if "attn" in inputs:
        return visionzip_signals(inputs["attn"], inputs["key"], case.params["spatial_merge_unit"])
    if "K" in inputs:
        split: dict[str, list[int]] = {}
        for family in ("llava", "qwen"):
            counts = [split_budget(k, class_token=family == "llava") for k in inputs["K"].tolist()]
            split[f"{family}_dominant"], split[f"{family}_contextual"] = map(list, zip(*counts, strict=True))
        return split
    k, tokens = case.params["K"], inputs["image_embeds"]
    signals = {"vision.received@-1": inputs["salience"], "vision.key@-1": inputs["metric"][None]}
    selection = VisionZipQwen().select(view(tokens, signals=signals), k)
    mix = selection.mix if selection.mix is not None else torch.eye(len(tokens))[selection.anchors]
    dominant, contextual = split_budget(k, class_token=False) if selection.mix is not None else (k, 0)
    return {
        "anchor": selection.anchors,
        "assign": mix.argmax(dim=0),  # a source that flows nowhere counts as slot 0 there
        "tokens": mix @ tokens,
        "deepstack0_out": mix @ inputs["deepstack0"],
        "contextual": [contextual],
        "dominant": [dominant],
    }


def visionzip_signals(attention: torch.Tensor, key: torch.Tensor, group: int) -> dict[str, Any]:
    """As the backbone provides them: received attention and keys, averaged over the raw patches of a merged token."""
    received = attention.mean(dim=(0, 1)).view(-1, group).mean(dim=1)
    keys = key.unflatten(1, (-1, group)).mean(dim=2)
    salience, metric = received_salience(received[None], keys[None])
    return {"salience": salience[0], "metric": metric[0]}


@answers("vispruner")
def vispruner(case: Case) -> dict[str, Any]:
    features, heads = (case.tensors[name][None] for name in ("features", "cls_attn_heads"))
    k = case.params["K"]
    return {"kept": vispruner_kept(features, head_mean(heads), k, int(k * case.params["important_ratio"]))[0]}


@answers("vscan")
def vscan(case: Case) -> dict[str, Any]:
    heads = {"vision.cls_attention@5": "cls_attn_heads_5", "vision.cls_attention@-2": "cls_attn_heads"}
    tokens, signals = case.tensors["projected"], {name: case.tensors[own] for name, own in heads.items()}
    shown = replace(view(tokens, signals=signals), layout=((24, 24),))
    chosen = VScan(side=case.params["side"]).select(shown, case.params["K"])
    assert chosen.merge_at == "tokens"
    return {"kept": chosen.anchors, "tokens": mix_of(chosen) @ tokens}


def chosen_by(form: Any, case: Case, signals: dict[str, Tensor], tokens: Tensor | None) -> Selection:
    """What a method, or its form for towers without a class token, chooses of one grid."""
    tokens = torch.zeros(case.params["N"], 1) if tokens is None else tokens
    layout = ((case.params.get("rows", 1), case.params.get("columns", len(tokens))),)
    chosen: Selection = form.select(replace(view(tokens, signals=signals), layout=layout), case.params["K"])
    return chosen


@answers("vispruner_siglip")
def vispruner_siglip(case: Case) -> dict[str, Any]:
    query, key, features = (case.tensors[name] for name in ("query", "key", "features"))
    received = received_attention(query, key, torch.tensor([len(features)]), query.shape[-1] ** -0.5)
    signals = {"vision.hidden@-2": features, "vision.received@-1": received}
    ratio = case.params["important_ratio"]
    if ratio == 1.0:  # which is FasterVLM
        alone = chosen_by(FasterVLM().other_form(24), case, signals, None).anchors
        np.testing.assert_array_equal(alone, case.outputs["kept"])
    return {"kept": chosen_by(VisPruner(important_ratio=ratio).other_form(24), case, signals, None).anchors}


@answers("holov_qwen")
def holov_qwen(case: Case) -> dict[str, Any]:
    tokens, received = (case.tensors[name][None] for name in ("tokens", "received"))
    k, form = case.params["K"], HoloV().other_form(24)
    crops = form.crops_of(tokens.shape[1], k)
    order, unfilled = holov_order(tokens, received, k, crops, form.alpha)
    order[0, k - int(unfilled) :] = -1
    return {"order": order[0], "crops": [crops]}


@answers("vscan_qwen", "nuwa_qwen")
def merged_qwen(case: Case) -> dict[str, Any]:
    """Both merge behind the projector."""
    inputs, tokens = case.tensors, case.tensors["projected"]
    method: Any = VScan() if case.file == "vscan_qwen" else Nuwa()
    named = {"shallow": "vision.received@7", "sim": "vision.hidden_mean@8:24"}
    signals = {named.get(name, "vision.received@-1"): inputs[name] for name in inputs if name != "projected"}
    chosen = chosen_by(method.other_form(32), case, signals, tokens)
    assert chosen.merge_at == "tokens"
    return {"kept": chosen.anchors, "mix": chosen.mix, "tokens": mix_of(chosen) @ tokens}


def outlier_fraction(attention: Tensor) -> Tensor:
    """Adaptive ratio of the paper: the fraction of patches with a > Q3 + 1.5 (Q3 - Q1), (B, N) -> (B,) float64."""
    quartiles = torch.quantile(attention, attention.new_tensor([0.25, 0.75]), dim=-1, keepdim=True)
    outlying = attention > quartiles[1] + 1.5 * (quartiles[1] - quartiles[0])
    return outlying.sum(dim=-1).double() / attention.shape[-1]


def official_centres(attention: Tensor, ratio: float, plus: bool) -> Tensor:
    """(N,) attention -> centres as published: floor(N * ratio) by attention, then for Plus a ladder without them.

    Its rungs are 0, s, 2s, ... < N - 1 in raster order, s = floor(floor(1 / ratio) / 3).
    """
    n = attention.shape[0]
    centres = rank(attention)[: int(n * ratio)]
    if not plus:
        return centres
    ladder = torch.arange(0, n - 1, int(int(1 / ratio) / 3))
    return torch.cat([centres, ladder[~torch.isin(ladder, centres)]])
