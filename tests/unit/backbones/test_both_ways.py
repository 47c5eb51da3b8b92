"""Pictures and prompts that are read both ways: the model's own decoder on pruned prefixes, against masks by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sightline.backbones.general import General
from sightline.core.prefix import Encoded, Prefix, Prompt
from sightline.core.selection import PositionPolicy
from tests.unit.backbones.named import POLICIES, QUESTION, TARGET, general, photograph, prefix_of

KEPT = torch.tensor([0, 3, 4, 9, 10, 15])


@pytest.fixture(scope="module")
def gemma(zoo: Callable[[str], Path]) -> General:
    return general(zoo("gemma3"))


@pytest.fixture(scope="module")
def paligemma(zoo: Callable[[str], Path]) -> General:
    return general(zoo("paligemma"))


def encoded_by(backbone: General) -> Encoded:
    return backbone.encode([backbone.preprocess(photograph())])[0]


def pruned(
    backbone: General, encoded: Encoded, prompt: Prompt, policy: PositionPolicy = "preserve", anchors: Tensor = KEPT
) -> Prefix:
    return prefix_of(backbone, encoded, prompt, anchors, policy)


def by_hand(backbone: General, prefix: Prefix, both_ways: Tensor) -> Tensor:
    """(L, V) logits of the decoder's layers under masks that are written down here.

    A place sees what lies before it, in sliding layers no further back than the window; places of ``both_ways`` (L,)
    also see each other, before and behind, however far.
    """
    place = torch.arange(len(both_ways))
    back = place[:, None] - place
    each_other = both_ways[:, None] & both_ways
    seen = {
        "full_attention": (back >= 0) | each_other,
        "sliding_attention": ((back >= 0) & (back < backbone.text_model.config.sliding_window)) | each_other,
    }
    masks = {
        kind: torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)[None, None]
        for kind, allowed in seen.items()
    }
    with torch.inference_mode():
        output = backbone.text_model(
            inputs_embeds=prefix.embeds[None],
            attention_mask=masks,
            position_ids=prefix.positions[:1] + backbone.first_position,
            use_cache=False,
        )
        logits: Tensor = backbone.language.head(output.last_hidden_state[0])
    return logits


# ---------------------------------------------------------------------- Gemma 3: the picture


@pytest.mark.parametrize("policy", POLICIES)
def test_kept_tokens_of_the_picture_see_each_other_and_text_is_causal(gemma: General, policy: PositionPolicy) -> None:
    prefix = pruned(gemma, encoded_by(gemma), gemma.prompt(QUESTION, TARGET), policy)
    assert prefix.places is not None
    picture = torch.zeros(len(prefix.embeds), dtype=torch.bool)
    picture[prefix.start + prefix.places] = True
    assert int(picture.sum()) == len(KEPT)
    ours = gemma.language.prefix_logits(prefix)
    assert (ours - by_hand(gemma, prefix, picture)).abs().max() <= 1e-4
    causal = by_hand(gemma, prefix, torch.zeros_like(picture))
    assert (ours - causal).abs().max() > 1e-2, "a causal mask would be another model"
    assert len(prefix.embeds) > gemma.text_model.config.sliding_window, "the window matters"


def test_the_first_kept_token_reads_the_last_and_no_text(gemma: General) -> None:
    encoded = encoded_by(gemma)
    one, other = gemma.prompt(QUESTION, TARGET), gemma.prompt("What does the sign say?", "sign")
    asked, otherwise = pruned(gemma, encoded, one), pruned(gemma, encoded, other)
    assert asked.places is not None
    picture = asked.start + asked.places
    states = gemma.language.prefix_logits(asked)[picture]
    torch.testing.assert_close(states, gemma.language.prefix_logits(otherwise)[picture], atol=1e-5, rtol=1e-5)

    tokens = encoded.tokens.clone()
    tokens[KEPT[-1]] += 1.0
    changed = pruned(gemma, replace(encoded, tokens=tokens), one)
    moved = (gemma.language.prefix_logits(changed)[picture] - states).abs().amax(dim=1)
    assert (moved > 1e-3).all()

    tokens = encoded.tokens.clone()
    tokens[1] += 1.0
    dropped = pruned(gemma, replace(encoded, tokens=tokens), one)
    assert torch.equal(gemma.language.prefix_logits(dropped)[picture], states), "what was pruned is not read"


# ---------------------------------------------------------------------- PaliGemma: the prompt


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pruned_prompt_is_read_both_ways(paligemma: General, policy: PositionPolicy) -> None:
    prefix = pruned(paligemma, encoded_by(paligemma), paligemma.prompt(QUESTION, TARGET), policy)
    prompt = torch.ones(len(prefix.embeds), dtype=torch.bool)
    ours = paligemma.language.prefix_logits(prefix)
    assert (ours - by_hand(paligemma, prefix, prompt)).abs().max() <= 1e-4
    assert (ours - by_hand(paligemma, prefix, ~prompt)).abs().max() > 1e-2


@pytest.mark.parametrize("answer", ["yes", "no", "the total is visible"])
def test_a_complete_sequence_is_the_processors_with_its_suffix(paligemma: General, answer: str) -> None:
    image = photograph()
    inputs = paligemma.processor(
        text=[paligemma.placeholder + QUESTION], images=[image], suffix=[answer], return_tensors="pt"
    )
    prompt = paligemma.prompt(QUESTION, TARGET, (answer,))
    ours = (*prompt.head, *paligemma.span_ids(image.size), *prompt.shared, *prompt.continuations[0])
    assert inputs["input_ids"][0].tolist() == list(ours)
    scored = prompt.scored[0]
    assert inputs["token_type_ids"][0].tolist() == [0] * (len(ours) - len(scored)) + [1] * len(scored)


def test_answers_are_scored_as_the_model_scores_its_suffix(paligemma: General) -> None:
    """The answer's tokens are causal: with all of it read both ways the losses are others."""
    image, answers = photograph(), ("yes the word is", "no")
    prompt = paligemma.prompt(QUESTION, TARGET, answers)
    encoded = encoded_by(paligemma)
    prefix = pruned(paligemma, encoded, prompt, anchors=torch.arange(encoded.n))
    (scores,) = paligemma.language.score([prefix])
    for answer, score, ids in zip(answers, scores, prompt.scored, strict=True):
        inputs = dict(
            paligemma.processor(
                text=[paligemma.placeholder + QUESTION], images=[image], suffix=[answer], return_tensors="pt"
            )
        )
        inputs.pop("labels")
        with torch.inference_mode():
            logits = paligemma.model(**inputs).logits[0]
            inputs["token_type_ids"] = torch.zeros_like(inputs["token_type_ids"])
            both_ways = paligemma.model(**inputs).logits[0]
        wanted = torch.tensor(ids)
        theirs = cross_entropy(logits[-len(ids) - 1 : -1], wanted)
        assert score.loss == pytest.approx(float(theirs), abs=1e-4)
        assert abs(float(cross_entropy(both_ways[-len(ids) - 1 : -1], wanted)) - score.loss) > 1e-3


def test_the_first_position_is_one(paligemma: General) -> None:
    """Rotary positions are relative, so that logits hardly tell; what the decoder is handed does."""
    seen: list[Tensor] = []
    hook = paligemma.text_model.register_forward_pre_hook(
        lambda module, arguments, named: seen.append(named["position_ids"]), with_kwargs=True
    )
    try:
        prefix = pruned(paligemma, encoded_by(paligemma), paligemma.prompt(QUESTION, TARGET), "compact")
        paligemma.language.prefix_logits(prefix)
    finally:
        hook.remove()
    assert torch.equal(seen[0], torch.arange(1, len(prefix.embeds) + 1)[None])
