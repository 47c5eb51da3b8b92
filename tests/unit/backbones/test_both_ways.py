"""Pictures and prompts that are read both ways: the model's own decoder on pruned prefixes, against masks by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sightline.backbones.general import General
from sightline.core.prefix import Prefix, Prompt
from sightline.core.selection import PositionPolicy
from tests.unit.backbones.named import POLICIES, QUESTION, TARGET, Zoo, general, photograph, prefix_of

KEPT = torch.tensor([0, 3, 4, 9, 10, 15])


class Read:
    """A model with a picture that it has encoded."""

    def __init__(self, backbone: General) -> None:
        self.model, self.language = backbone, backbone.language
        self.encoded = backbone.encode([backbone.preprocess(photograph())])[0]
        self.prompt = backbone.prompt(QUESTION, TARGET)

    def prefix(
        self, policy: PositionPolicy = "preserve", prompt: Prompt | None = None, tokens: Tensor | None = None
    ) -> Prefix:
        encoded = self.encoded if tokens is None else replace(self.encoded, tokens=tokens)
        return prefix_of(self.model, encoded, prompt or self.prompt, KEPT, policy)


@pytest.fixture(scope="module")
def gemma(zoo: Zoo) -> Read:
    return Read(general(zoo("gemma3")))


@pytest.fixture(scope="module")
def paligemma(zoo: Zoo) -> Read:
    return Read(general(zoo("paligemma")))


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


@pytest.mark.parametrize("policy", POLICIES)
def test_kept_tokens_of_the_picture_see_each_other_and_text_is_causal(gemma: Read, policy: PositionPolicy) -> None:
    prefix = gemma.prefix(policy)
    assert prefix.places is not None
    picture = torch.zeros(len(prefix.embeds), dtype=torch.bool)
    picture[prefix.start + prefix.places] = True
    assert int(picture.sum()) == len(KEPT)
    ours = gemma.language.prefix_logits(prefix)
    assert (ours - by_hand(gemma.model, prefix, picture)).abs().max() <= 1e-4
    causal = by_hand(gemma.model, prefix, torch.zeros_like(picture))
    assert (ours - causal).abs().max() > 1e-2, "a causal mask would be another model"
    assert len(prefix.embeds) > gemma.model.text_model.config.sliding_window, "the window matters"


def test_the_first_kept_token_reads_the_last_and_no_text(gemma: Read) -> None:
    asked = gemma.prefix()
    assert asked.places is not None
    picture = asked.start + asked.places
    states = gemma.language.prefix_logits(asked)[picture]
    otherwise = gemma.prefix(prompt=gemma.model.prompt("What does the sign say?", "sign"))
    torch.testing.assert_close(states, gemma.language.prefix_logits(otherwise)[picture], atol=1e-5, rtol=1e-5)
    for token, read in ((int(KEPT[-1]), True), (1, False)):  # the second one was pruned
        tokens = gemma.encoded.tokens.clone()
        tokens[token] += 1.0
        changed = gemma.language.prefix_logits(gemma.prefix(tokens=tokens))[picture]
        assert ((changed - states).abs().amax(dim=1) > 1e-3).all() if read else torch.equal(changed, states)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pruned_prompt_is_read_both_ways(paligemma: Read, policy: PositionPolicy) -> None:
    prefix = paligemma.prefix(policy)
    prompt = torch.ones(len(prefix.embeds), dtype=torch.bool)
    ours = paligemma.language.prefix_logits(prefix)
    assert (ours - by_hand(paligemma.model, prefix, prompt)).abs().max() <= 1e-4
    assert (ours - by_hand(paligemma.model, prefix, ~prompt)).abs().max() > 1e-2


def test_answers_are_the_processors_suffix_scored_as_the_model_scores_it(paligemma: Read) -> None:
    """The answer's tokens are causal: with all of it read both ways the losses are others."""
    backbone, image, answers = paligemma.model, photograph(), ("yes the word is", "no", "yes", "the total is visible")
    prompt = backbone.prompt(QUESTION, TARGET, answers)
    prefix = prefix_of(backbone, paligemma.encoded, prompt, torch.arange(paligemma.encoded.n))
    (scores,) = backbone.language.score([prefix])
    text = [backbone.placeholder + QUESTION]
    for answer, score, branch, ids in zip(answers, scores, prompt.continuations, prompt.scored, strict=True):
        inputs = dict(backbone.processor(text=text, images=[image], suffix=[answer], return_tensors="pt"))
        ours = (*prompt.head, *backbone.span_ids(image.size), *prompt.shared, *branch)
        assert inputs["input_ids"][0].tolist() == list(ours)
        assert inputs["token_type_ids"][0].tolist() == [0] * (len(ours) - len(ids)) + [1] * len(ids)
        inputs.pop("labels")
        with torch.inference_mode():
            logits = backbone.model(**inputs).logits[0]
            inputs["token_type_ids"] = torch.zeros_like(inputs["token_type_ids"])
            both_ways = backbone.model(**inputs).logits[0]
        wanted = torch.tensor(ids)
        assert score.loss == pytest.approx(float(cross_entropy(logits[-len(ids) - 1 : -1], wanted)), abs=1e-4)
        assert abs(float(cross_entropy(both_ways[-len(ids) - 1 : -1], wanted)) - score.loss) > 1e-3


def test_the_first_position_is_one(paligemma: Read) -> None:
    """Rotary positions are relative, so that logits hardly tell; what the decoder is handed does."""
    seen: list[Tensor] = []
    prefix = paligemma.prefix("compact")
    hook = paligemma.model.text_model.register_forward_pre_hook(
        lambda module, arguments, named: seen.append(named["position_ids"]), with_kwargs=True
    )
    try:
        paligemma.language.prefix_logits(prefix)
    finally:
        hook.remove()
    assert torch.equal(seen[0], torch.arange(1, len(prefix.embeds) + 1)[None])
