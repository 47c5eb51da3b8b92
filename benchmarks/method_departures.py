"""How far methods that depart from their public code are from it, and how far that code is from itself.

    python -m benchmarks.method_departures [METHOD ...]

Inputs are drawn from seeds. What the public code's own functions kept of them was recorded once, twice over: as it is,
and *again* with another draw of its own or in another precision (``tests/data/departures``, where its README says how).
Ours runs here. Jaccard indices of kept tokens, least to greatest over the seeds; docs/methods.md has this table, and a
test compares the two.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

from sightline.backbones.base import projector_sensitivity
from sightline.core.selection import LayerState
from sightline.progress import SafeConsole
from sightline.selectors.apet import ApET
from sightline.selectors.cdpruner import CDPruner
from sightline.selectors.ficoco import FiCoCoL
from sightline.selectors.flowcut import FlowCut
from sightline.selectors.globalcom2 import GlobalCom2
from sightline.selectors.hired import HiRED
from sightline.selectors.prunesid import PruneSID
from sightline.selectors.vispruner import VisPruner
from sightline.selectors.zooprune import sensitive_order
from tests.golden.token_answers import tiled_view
from tests.unit.selectors.views import view

RECORDED = Path(__file__).parents[1] / "tests" / "data" / "departures"
N, K, WIDTH, HEADS, SIDE, GRID = 576, 64, 64, 4, 24, (2, 2)
LAYERS, MERGES, MERGED, TEXT = 16, range(4, 16), 14, 24
TOWER = 22
Random = np.random.Generator
Inputs = dict[str, Tensor]
Blocks = list[dict[str, Tensor]]


def clustered(random: Random, n: int = N, width: int = WIDTH, spread: float = 0.5) -> Tensor:
    """(n, width) around 24 centres, exact in half precision."""
    centres = random.normal(size=(24, width))
    drawn = centres[random.integers(0, 24, n)] + spread * random.normal(size=(n, width))
    return torch.from_numpy(drawn.astype(np.float16).astype(np.float32))


def normal(random: Random, *shape: int) -> Tensor:
    return torch.from_numpy(random.normal(size=shape).astype(np.float32))


def blocks(random: Random, count: int) -> Blocks:
    """Layers of a transformer with drawn weights."""
    shapes = {**dict.fromkeys("qkvo", (WIDTH, WIDTH)), "up": (2 * WIDTH, WIDTH), "down": (WIDTH, 2 * WIDTH)}
    return [{name: normal(random, *shape) / shape[1] ** 0.5 for name, shape in shapes.items()} for _ in range(count)]


def attends(block: dict[str, Tensor], states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (H, S, d) of a layer for its (S, C) input."""
    read = layer_norm(states, states.shape[-1:])
    query, key, value = ((read @ block[name].T).view(len(states), HEADS, -1).transpose(0, 1) for name in "qkv")
    return query, key, value


def through(block: dict[str, Tensor], states: Tensor, causal: bool) -> Tensor:
    attended = scaled_dot_product_attention(*attends(block, states), is_causal=causal)
    states = states + attended.transpose(0, 1).flatten(1) @ block["o"].T
    return states + gelu(layer_norm(states, states.shape[-1:]) @ block["up"].T) @ block["down"].T


# What every method is shown, from a seed, and what ours keeps of it.


def of_states(random: Random) -> Inputs:
    return {"states": clustered(random)}


def attended_states(random: Random) -> Inputs:
    """Penultimate states with the class token in front, and its attention (H, N)."""
    states = torch.cat([normal(random, 1, WIDTH), clustered(random)])
    return {"states": states, "attention": (2.0 * normal(random, HEADS, N)).softmax(dim=-1)}


def tiles(random: Random) -> Inputs:
    """(5, H, N) products of the class token with the patches of a base picture and 2 x 2 tiles, in two layers."""
    smooth = torch.from_numpy(random.normal(size=(2, 5, HEADS, 6, 6)).astype(np.float32))
    lifted = torch.nn.functional.interpolate(smooth.flatten(0, 2)[None], size=(SIDE, SIDE), mode="bilinear")[0]
    shallow, deep = (lifted.view(2, 5, HEADS, N) * 2.0 + normal(random, 2, 5, HEADS, N)).unbind()
    return {"shallow": shallow, "deep": deep}


def words(random: Random) -> Inputs:
    visual = clustered(random, width=96)
    return {
        "visual": visual,
        "text": visual[torch.from_numpy(random.integers(0, N, 6))].mean(0, True) + normal(random, 96),
    }


def ours_apet(given: Inputs) -> Tensor:
    return ApET(at="tokens").select(view(given["states"]), K).anchors


def ours_vispruner(given: Inputs) -> Tensor:
    signals = {"vision.hidden@-2": given["states"][1:], "vision.cls_attention@-2": given["attention"]}
    return VisPruner().select(view(given["states"][1:], signals=signals), K).anchors


def ours_prunesid(given: Inputs) -> Tensor:
    signals = {"vision.hidden@-2": given["states"][1:], "vision.cls_attention@-2": given["attention"]}
    return PruneSID().select(view(given["states"][1:], signals=signals), K).anchors


def across(heads: Tensor) -> Tensor:
    """(5, H, N) products -> (H, 5 N) attention, a softmax for every picture."""
    return heads.softmax(dim=-1).transpose(0, 1).flatten(1)


def ours_hired(given: Inputs) -> Tensor:
    signals = {"vision.cls_attention@0": across(given["shallow"]), "vision.cls_attention@-2": across(given["deep"])}
    return HiRED().select(tiled_view(SIDE, GRID, signals), 5 * N // 4).anchors


def ours_globalcom2(given: Inputs) -> Tensor:
    signals = {"vision.cls_attention@-1": across(given["deep"])}
    return GlobalCom2().select(tiled_view(SIDE, GRID, signals), 5 * N // 4).anchors


def ours_cdpruner(given: Inputs) -> Tensor:
    form: Any = CDPruner().other_form(24)
    kept: Tensor = form.select(view(given["visual"], query=given["text"]), 58).anchors
    return kept


def tower(random: Random) -> Inputs:
    return {"states": clustered(random, N + 1)}


def ours_flowcut(given: Inputs, layers: Blocks) -> Tensor:
    """The tower runs on all patches."""
    states, signals = given["states"], dict[str, Tensor]()
    for layer, block in enumerate(layers):
        query, key, value = attends(block, states)
        weights = (query[:, :1] @ key.mT * query.shape[-1] ** -0.5).softmax(dim=-1)[:, 0]
        signals[f"vision.cls_attention@{layer}"], signals[f"vision.value@{layer}"] = weights[:, 1:], value[:, 1:]
        signals[f"vision.cls_value@{layer}"] = value[:, 0]
        states = through(block, states, causal=False)
    return FlowCut(last_layer=TOWER - 1).select(view(states[1:], signals=signals), K).anchors


def prompt(random: Random) -> Inputs:
    """The image first, text behind it."""
    return {"states": torch.cat([clustered(random, 300), normal(random, TEXT, WIDTH)])}


def ours_ficoco(given: Inputs, layers: Blocks) -> Tensor:
    """Merged behind the layers that the public code merges within."""
    states, source = given["states"], torch.arange(300)
    for layer, block in enumerate(layers):
        query, key, _ = attends(block, states)
        states = through(block, states, causal=True)
        if layer in MERGES:
            image = torch.arange(len(source))
            signals = {"lm.query": query, "lm.key": key}
            state = LayerState(layer, states, image, source, ((1, 300),), signals)
            chosen = FiCoCoL().cut(state, len(source) - MERGED)
            assert chosen.mix is not None
            states = torch.cat([chosen.mix @ states[: len(source)], states[len(source) :]])
            source = source[chosen.anchors]
    return source


def projector(random: Random) -> Inputs:
    return {
        "states": clustered(random, width=256),
        "up": normal(random, 512, 256) / 16,
        "down": normal(random, 256, 512) / 23,
    }


def ours_zooprune(given: Inputs) -> Tensor:
    def project(states: Tensor) -> Tensor:
        return gelu(states @ given["up"].T) @ given["down"].T

    moved = projector_sensitivity(project, given["states"])
    return sensitive_order(project(given["states"])[None], moved[None], K)[0]


class Compared(NamedTuple):
    """A method, its inputs from a seed, and what ours keeps; of a network, with ``layers`` drawn once for all seeds."""

    inputs: Callable[[Random], Inputs]
    ours: Callable[..., Tensor]
    layers: int = 0

    def drawn(self, seed: int) -> tuple[Any, ...]:
        given = self.inputs(np.random.default_rng(seed))
        return (given, blocks(np.random.default_rng(0), self.layers)) if self.layers else (given,)


METHODS = {
    "apet": Compared(of_states, ours_apet),
    "cdpruner": Compared(words, ours_cdpruner),
    "ficoco_l": Compared(prompt, ours_ficoco, LAYERS),
    "flowcut": Compared(tower, ours_flowcut, TOWER),
    "globalcom2": Compared(tiles, ours_globalcom2),
    "hired": Compared(tiles, ours_hired),
    "prunesid": Compared(attended_states, ours_prunesid),
    "vispruner": Compared(attended_states, ours_vispruner),
    "zooprune": Compared(projector, ours_zooprune),
    "zooprune_half": Compared(projector, ours_zooprune),
}


class Recorded(NamedTuple):
    """What the public code kept, seed by seed; ``again`` in the words of the file."""

    said: dict[str, Any]
    theirs: list[set[int]]
    again: list[set[int]]


def recorded(method: str) -> Recorded:
    archive = np.load(RECORDED / f"{method}.npz", allow_pickle=False)
    kept = ([{int(i) for i in row if i >= 0} for row in archive[name]] for name in ("theirs", "again"))
    return Recorded(json.loads(str(archive["meta"])), *kept)


def overlap(left: set[int], right: set[int]) -> float:
    return len(left & right) / len(left | right)


def span(indices: list[float]) -> str:
    equal = sum(index == 1.0 for index in indices)
    return f"{min(indices):.3f} to {max(indices):.3f}" + (f", {equal} of {len(indices)} the same" if equal else "")


def lines(methods: list[str]) -> Iterator[str]:
    yield "| method | draws | ours and the public code | the public code and itself | itself again |"
    yield "| --- | --- | --- | --- | --- |"
    for method in methods:
        found, compared = recorded(method), METHODS[method]
        seeds = found.said["seeds"]
        ours = [set(compared.ours(*compared.drawn(seed)).tolist()) for seed in seeds]
        with_theirs, with_itself = (
            span([overlap(*pair) for pair in zip(found.theirs, others, strict=True)]) for others in (ours, found.again)
        )
        yield f"| `{found.said['method']}` | {len(seeds)} | {with_theirs} | {with_itself} | {found.said['again']} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", choices=[[], *METHODS], help="all, if none is named")
    options = parser.parse_args()
    console = SafeConsole(highlight=False)
    with torch.inference_mode():
        for line in lines(options.methods or list(METHODS)):
            console.print(line, soft_wrap=True, markup=False)


if __name__ == "__main__":
    main()
