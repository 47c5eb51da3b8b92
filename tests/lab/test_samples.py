"""Training samples: images equal Pillow's, supervision points at the right pixels, labels are true."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from lab.reader import record, state, vocabulary
from lab.reader.atlas import build_atlas
from lab.reader.forms import FORMS
from lab.reader.objectives import local_targets, overlap_shares
from lab.reader.raster import draw_batch, plan
from lab.reader.samples import ANSWER, LETTER, NO_QUESTION, SPELLING, SampleBatches, build_open_sample, build_sample
from lab.reader.state import read_state, save_state
from lab.reader.token_grid import SLOTS, UNITS_PER_SIDE, token_order
from lab.scenes.compose import CHARACTERS, draw, inside
from lab.scenes.page_designs import compose
from lab.scenes.paired_designs import compose_open
from sightline import SightlineError
from sightline.probes.hard_pairs import normalise_word

SEEDS = (0, 2, 5, 8)


@pytest.fixture(scope="module")
def rows():
    return torch.from_numpy(np.stack([build_sample(seed) for seed in SEEDS]))


@pytest.fixture(scope="module")
def sample(rows):
    return record.unpack(rows)


def test_samples_are_deterministic_and_drawn_as_pillow_draws_them(rows, sample):
    assert np.array_equal(build_sample(SEEDS[1]), rows[1].numpy())

    drawn = draw_batch(torch.from_numpy(build_atlas("train")), sample, plan(rows, "cpu"), degrade=False)
    for seed, image in zip(SEEDS, drawn, strict=True):
        scene = compose(seed, "train")
        scene.noise = 0.0
        expected = np.asarray(draw(scene)).astype(float)
        # Corners uncovered by the rotation are filled differently; touching glyphs add up instead of overlaying.
        difference = np.abs(image.permute(1, 2, 0).numpy() - expected)[24:-24, 24:-24]
        assert difference.mean() < 0.5
        assert (difference > 8).mean() < 2e-4


@pytest.mark.parametrize("side", [form.side for form in FORMS.values()])
def test_characters_are_where_the_words_are(sample, side):
    bag = local_targets(sample, side).bag
    for number, seed in enumerate(SEEDS):
        scene = compose(seed, "train")
        words = [(word.text, scene.box(word)) for word in scene.words if inside(scene.box(word))]
        assert len(words) > 10
        for text, box in words:
            cells = overlap_shares(torch.tensor([[box]]), side)[0, 0] > 0
            found = {CHARACTERS[index] for index in bag[number][cells].any(0).nonzero().flatten().tolist()}
            assert set(text) <= found, (text, found)


def test_questions_are_labelled_truly(sample):
    answers: Counter[int] = Counter()
    for number, seed in enumerate(SEEDS):
        texts = {normalise_word(word.text) for word in compose(seed, "train").words}
        ids, kinds, segments, labels = (sample[name][number] for name in ("ids", "kinds", "segments", "labels"))
        for question in range(record.QUESTIONS):
            here = segments == question
            target = sample["targets"][number, question]
            text = bytes(target[target >= 0].sub(vocabulary.FIRST_BYTE).tolist()).decode()
            (answer,) = labels[here & (kinds == ANSWER)].tolist()
            spelled = ids[here].tolist()
            assert spelled[:2] == [vocabulary.HEAD, vocabulary.QUOTE]
            assert spelled[2 : 2 + len(text)] == vocabulary.spell(text)
            answers[answer] += 1
            if answer == vocabulary.YES:
                assert text in texts
                assert labels[here & (kinds == SPELLING)].tolist() == vocabulary.spell(text)[1:]
            else:
                assert text.casefold() not in {text.casefold() for text in texts}
        assert (segments == NO_QUESTION).any()
    assert min(answers[vocabulary.YES], answers[vocabulary.NO]) > 10


def test_forms_ask_for_the_same_characters_of_coarser_tokens_in_their_order(sample):
    """Every slot of every unit holds the same character, wherever a form's order puts the unit."""
    plain = local_targets(sample, UNITS_PER_SIDE).slots.view(len(SEEDS), -1, SLOTS)
    merged = local_targets(sample, UNITS_PER_SIDE // 2).slots.view(len(SEEDS), -1, SLOTS)
    order = token_order(UNITS_PER_SIDE // 2)
    assert order[:4] == [0, 1, 4, 5]
    assert order[UNITS_PER_SIDE : UNITS_PER_SIDE + 2] == [2, 3]
    assert torch.equal(merged[:, order], plain)
    assert (plain < 94).sum() > 500

    fine, coarse = local_targets(sample, 28), local_targets(sample, 14)
    for name in ("bag", "bigrams"):
        units = getattr(fine, name).view(len(SEEDS), 14, 2, 14, 2, -1)
        assert torch.equal(units.any(4).any(2).flatten(1, 2), getattr(coarse, name)), name

    shares = overlap_shares(torch.tensor([[[16.0, 8.0, 80.0, 24.0], [0.0, 0.0, 0.0, 0.0]]]), 14)[0]
    assert shares[0].nonzero().flatten().tolist() == [0, 1, 2]
    assert shares[0, :3].tolist() == [0.25, 0.5, 0.25]
    assert shares[1].sum() == 0
    assert shares.shape == (2, 14 * 14)


def test_open_questions_are_packed_with_the_answer_that_the_page_shows():
    asked = 0
    for seed in range(4):
        packed = record.unpack(torch.from_numpy(build_open_sample(seed)[None]))
        sample = {name: value[0] for name, value in packed.items()}
        texts = {normalise_word(word.text) for word in compose_open(seed, "train").words}
        assert sample["in_words"].tolist() == [1]
        for question in range(record.QUESTIONS):
            here = sample["segments"] == question
            if not here.any():
                continue
            letters = sample["labels"][here & (sample["kinds"] == LETTER)].tolist()
            assert letters[-1] == vocabulary.IM_END
            assert bytes(token - vocabulary.FIRST_BYTE for token in letters[:-1]).decode() in texts
            assert sample["boxes"][question, 0].sum() > 0
            assert sample["values"][question, 0].sum() > 0
            assert sample["ids"][here][0] >= vocabulary.FIRST_OPEN
            asked += 1
    assert asked > 20


def test_open_scenes_are_spread_over_a_batch():
    openly = record.unpack(next(iter(SampleBatches(10, 0, open_share=0.7))))["in_words"][:, 0]
    assert openly.sum() == 7
    assert 2 <= openly[:4].sum() <= 3
    assert not record.unpack(next(iter(SampleBatches(3, 0))))["in_words"].any()


def save(folder: Path, value: float) -> None:
    """A training state of which every weight is ``value``."""
    made = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    for parameter in made.parameters():
        nn.init.constant_(parameter, value)
    save_state(folder, made, torch.optim.AdamW(made.parameters()), {"steps": int(value)})


def values(folder: Path) -> set[float]:
    tensors, _ = read_state(folder)
    return {float(value) for tensor in tensors.values() for value in tensor.flatten()}


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_save_that_is_killed_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    monkeypatch.setattr(state, "SHARD_BYTES", 100)
    save(tmp_path, 1.0)
    count = [0]

    def killed(*arguments: Any) -> None:
        if count[0] == written:
            raise KeyboardInterrupt
        count[0] += 1
        save_file(*arguments)

    with monkeypatch.context() as stopped:
        stopped.setattr(state, "save_file", killed)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 2.0)
    assert values(tmp_path) == {1.0}
    save(tmp_path, 3.0)
    assert values(tmp_path) == {3.0}
    assert len(list(tmp_path.glob("state-*.safetensors"))) == read_state(tmp_path)[1]["shards"], "nothing old is left"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"shards": "x"}', b'{"shards": 1, "save": "gone"}', b"[" * 3000])
def test_a_damaged_record_or_a_truncated_shard_is_one_line(tmp_path: Path, content: bytes) -> None:
    save(tmp_path, 1.0)
    (shard,) = tmp_path.glob("state-*.safetensors")
    whole = shard.read_bytes()
    for file, spoiled in ((shard, whole[:40]), (tmp_path / "state.json", content)):
        file.write_bytes(spoiled)
        with pytest.raises(SightlineError, match="no complete training state"):
            read_state(tmp_path)
        shard.write_bytes(whole)
