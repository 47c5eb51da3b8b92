"""The rows of a run against vLLM at the same masks: same texts, and how far log-probabilities differ.

    python benchmarks/vllm_rows.py RUN --model CHECKPOINT --images FOLDER

Every row's mask is given to vLLM. A model of LLaVA or InternVL form (a run with ``--positions compact``) gets the kept
rows of its projected image as ``image_embeds``; one of Qwen3-VL form (``--positions preserve``) gets the whole image
and the kept cells through ``examples/vllm_masks``. docs/vllm.md says how to install what this needs and shows what it
prints. The run should be in float32, as both sides are here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sightline import load_backbone, load_run
from sightline.answering.answer_scores import cleaned
from sightline.answering.materialise import materialise
from sightline.core.prefix import Prefix
from sightline.core.selection import PositionPolicy, Selection
from sightline.probes.images import open_image

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone

LONGEST = 32
POSITIONS: dict[str, PositionPolicy] = {"llava": "compact", "internvl": "compact", "qwen3_vl": "preserve"}
"""Per type of model the positions that vLLM gives to kept tokens, by the route that it is asked on."""


@dataclass(frozen=True)
class Spoken:
    """A greedy answer, token by token, its stop token included."""

    text: str
    tokens: list[int]
    likely: list[float]
    """Log-probability of each token."""
    margins: list[float]
    """Of each, by how much it is likelier than the next best, in nats."""


@dataclass(frozen=True)
class Asked:
    """One row of the run as both sides are asked it."""

    arm: str
    probe: str
    answer: str
    """As the run's row has it."""
    ids: list[int]
    """Prompt with one placeholder for the image, as vLLM takes it."""
    image: dict[str, Any]
    """What vLLM is given beside them."""
    ours: Spoken


def our_answer(backbone: Backbone, prefix: Prefix) -> Spoken:
    """Greedy tokens, then the logits at each of them from one forward over prefix and answer."""
    language, tokens = backbone.language, []
    for token in islice(language.decode(prefix), LONGEST):
        tokens.append(token)
        if token in backbone.stop_ids:
            break
    behind = prefix.positions.max() + 1 + torch.arange(len(tokens))
    with torch.inference_mode():
        whole = replace(
            prefix,
            embeds=torch.cat([prefix.embeds, language.embed(tokens)]),
            positions=torch.cat([prefix.positions, behind.expand(len(prefix.positions), -1)], dim=1),
            segments=torch.cat([prefix.segments, torch.zeros(len(tokens), dtype=torch.long)]),
        )
        logits = language.prefix_logits(whole)[-len(tokens) - 1 : -1].float().log_softmax(-1)
    best = logits.topk(2).values
    text = cleaned(backbone.tokenizer.decode(tokens, skip_special_tokens=True).strip())
    likely = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    return Spoken(text, tokens, likely.tolist(), (best[:, 0] - best[:, 1]).tolist())


def asked_rows(backbone: Backbone, run: Any, images: Path, kind: str, positions: PositionPolicy) -> list[Asked]:
    """Every row of the run with its mask, its prompt, and our answer at that mask."""
    rows: list[Asked] = []
    masks = {arm: run.masks(arm) for arm in run.arms}
    for probe in run.probes:
        shown = open_image(images, probe["image"])
        (encoded,) = backbone.encode([backbone.preprocess(shown)])
        prompt = backbone.prompt(probe["question"], in_words=True)
        head, tail = prompt.head, prompt.tail
        if kind == "internvl":  # vLLM writes the two marks around an image itself
            head, tail = head[:-1], tail[1:]
        for arm in run.arms:
            kept = torch.from_numpy(masks[arm][probe["id"]].nonzero()[0])
            prefix = materialise(backbone, encoded, prompt, Selection(kept), positions)
            given: dict[str, Any] = {"multi_modal_data": {"image": encoded.tokens[kept].clone()[None]}}
            if kind == "qwen3_vl":
                given = {"multi_modal_data": {"image": shown}, "mm_processor_kwargs": {"kept_cells": [kept.tolist()]}}
            ids = [*head, backbone.image_token_id, *tail]
            answer = run.row(probe["id"], arm)["answer"]
            rows.append(Asked(arm, probe["id"], answer, ids, given, our_answer(backbone, prefix)))
    return rows


def loadable(folder: Path, kind: str, to: Path) -> Path:
    """The checkpoint under names of weights that vLLM knows; the same folder where it knows them."""
    if kind != "llava":
        return folder
    from safetensors.torch import load_file, save_file

    copy = Path(shutil.copytree(folder, to / folder.name))
    (to / folder.name / "model.safetensors").unlink()
    weights = load_file(folder / "model.safetensors")
    old, new = "vision_tower.", "vision_tower.vision_model."
    named = {name if new in name else name.replace(old, new): value for name, value in weights.items()}
    save_file(named, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


def vllm_answers(folder: Path, asked: Sequence[Asked], stops: Sequence[int], tokenizer: Any) -> list[Spoken]:
    """What vLLM says greedily, in float32."""
    from vllm import LLM, SamplingParams

    engine = LLM(
        str(folder),
        dtype="float32",
        max_model_len=2048,
        enforce_eager=True,
        enable_mm_embeds=True,
        limit_mm_per_prompt={"image": 1},
        max_num_seqs=8,
        skip_mm_profiling=True,
    )
    sampling = SamplingParams(temperature=0, max_tokens=LONGEST, logprobs=2, stop_token_ids=list(stops))
    answers: dict[int, Spoken] = {}
    for group in same_size(asked):
        asking = [{"prompt_token_ids": asked[i].ids, **asked[i].image} for i in group]
        for i, output in zip(group, engine.generate(asking, sampling, use_tqdm=False), strict=True):
            said = output.outputs[0]
            tokens = list(said.token_ids)
            ranked = [sorted((each.logprob for each in step.values()), reverse=True) for step in said.logprobs]
            text = cleaned(tokenizer.decode(tokens, skip_special_tokens=True).strip())
            likely = [step[token].logprob for step, token in zip(said.logprobs, tokens, strict=True)]
            answers[i] = Spoken(text, tokens, likely, [best[0] - best[1] for best in ranked])
    return [answers[i] for i in range(len(asked))]


def same_size(asked: Sequence[Asked]) -> list[list[int]]:
    """Places of rows that may be asked together: vLLM ends on ``image_embeds`` of two lengths in one batch."""
    groups: dict[int, list[int]] = {}
    for i, row in enumerate(asked):
        rows = row.image["multi_modal_data"]["image"]
        groups.setdefault(rows.shape[1] if isinstance(rows, torch.Tensor) else 0, []).append(i)
    return list(groups.values())


@dataclass(frozen=True)
class Compared:
    """One answer on both sides."""

    same: bool
    difference: float
    """Largest of log-probabilities over tokens that both said after the same ones."""
    parted: tuple[int, float] | None
    """Place of the first token that differs, and our margin there."""


def compare(ours: Spoken, theirs: Spoken) -> Compared:
    pairs = list(zip(ours.tokens, theirs.tokens, strict=False))
    at = next((i for i, (one, other) in enumerate(pairs) if one != other), len(pairs))
    common = zip(ours.likely[:at], theirs.likely[:at], strict=True)
    difference = max((abs(one - other) for one, other in common), default=0.0)
    parted = None if at == len(pairs) else (at, ours.margins[at])
    return Compared(ours.text == theirs.text, difference, parted)


def lines(asked: Sequence[Asked], theirs: Sequence[Spoken]) -> list[str]:
    """The table: a line per arm, then one per answer that differs."""
    arms: dict[str, list[tuple[Asked, Spoken, Compared]]] = {}
    for row, said in zip(asked, theirs, strict=True):
        arms.setdefault(row.arm, []).append((row, said, compare(row.ours, said)))
    table = [f"{'arm':<12} {'n':>4} {'same text':>10} {'same as run':>12} {'tokens':>7} {'largest difference':>19}"]
    parted = []
    for arm, rows in arms.items():
        same = sum(found.same for _, _, found in rows)
        as_run = sum(row.answer == said.text for row, said, _ in rows)
        tokens, largest = sum(len(row.ours.tokens) for row, _, _ in rows), max(found.difference for *_, found in rows)
        table.append(f"{arm:<12} {len(rows):>4} {same:>10} {as_run:>12} {tokens:>7} {largest:>19.1e}")
        parted += [
            f"{arm} {row.probe}: '{row.ours.text}' here, '{said.text}' there; token {found.parted[0] + 1}, "
            f"{found.parted[1]:.1e} nats between the two best"
            for row, said, found in rows
            if found.parted is not None
        ]
    return [*table, *(parted or ["no token differs"])]


def settings() -> Mapping[str, str]:
    """What a small machine without a GPU needs; what is set already stays."""
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder whose rows are asked again")
    parser.add_argument("--model", type=Path, required=True, help="its checkpoint")
    parser.add_argument("--images", type=Path, required=True, help="folder that image names are relative to")
    parser.add_argument("--positions", choices=["preserve", "compact"], help="ours; left out, those of vLLM's route")
    asked_for = parser.parse_args()
    for name, value in settings().items():
        os.environ.setdefault(name, value)
    run = load_run(asked_for.run)
    backbone = load_backbone(str(asked_for.model), dtype="float32", device="cpu")
    kind = str(backbone.model.config.model_type)
    if kind not in POSITIONS:
        parser.error(f"{kind} is not asked through vLLM here; choose one of {', '.join(POSITIONS)}")
    asked = asked_rows(backbone, run, asked_for.images, kind, asked_for.positions or POSITIONS[kind])
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = loadable(asked_for.model, kind, Path(folder))
        theirs = vllm_answers(checkpoint, asked, sorted(backbone.stop_ids), backbone.tokenizer)
    print("\n".join(lines(asked, theirs)))


if __name__ == "__main__":
    main()
