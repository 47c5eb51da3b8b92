"""A leg of training runs, is resumed, and is exported to a checkpoint that stock classes load."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, AutoTokenizer

from lab.reader import objectives, vocabulary
from lab.reader.export import export
from lab.reader.forms import FORMS, QWEN3_VL
from lab.reader.samples import BIGRAM_BUCKETS, LETTER
from lab.reader.schedule import VISION_SHARE, WARM_UP, Clock, learning_rate
from lab.reader.state import SHARD_BYTES, load_checkpoint, read_state
from lab.reader.train import Trainer, parse
from sightline import SightlineError


def leg(out, progress, *more):
    flags = [
        "--preset", "toy", "--batch", "2", "--workers", "0", "--eval-images", "2", "--reserve", "0", "--log-every", "1",
    ]  # fmt: skip
    trainer = Trainer(parse(["--out", str(out), "--progress", progress, "--minutes", "0.12", *flags, *more]))
    trainer.run()
    return trainer


@pytest.mark.parametrize("form", FORMS)
def test_two_legs_and_export(tmp_path, form):
    first = leg(tmp_path / "one", "0:0.31", "--form", form)
    assert max(file.stat().st_size for file in (tmp_path / "one").iterdir()) <= SHARD_BYTES + 2**16
    second = leg(tmp_path / "two", "0.31:1", "--form", form, "--resume", str(tmp_path / "one"))
    assert second.history["steps"] > first.history["steps"]
    assert second.curves[: len(first.curves)] == first.curves
    assert second.curves[-1]["joint"] == 1.0
    metrics = json.loads((tmp_path / "two" / "metrics.json").read_text())
    assert set(metrics["final"]["arms"]) >= {"full", "target", "random", "grid", "blank image", "wrong image"}
    assert metrics["final"]["arms"]["full"]["pos_ecr"] == pytest.approx(1.0)

    folder = export(tmp_path / "two", tmp_path / "checkpoint")
    model = AutoModelForImageTextToText.from_pretrained(folder)
    assert model.config.model_type == form == metrics["form"]
    assert model.dtype == torch.bfloat16
    assert len(AutoTokenizer.from_pretrained(folder)) == model.config.text_config.vocab_size
    tensors, _ = read_state(tmp_path / "two")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, tensors[f"weight.model.{name}"]), name


def test_a_yes_no_reader_learns_open_questions_on_top(tmp_path):
    leg(tmp_path / "one", "0.9:1", "--minutes", "0.01")
    folder = export(tmp_path / "one", tmp_path / "start")
    forget_open_phrases(folder)
    first = leg(tmp_path / "two", "0:0.5", "--open", "--start", str(folder), "--minutes", "0.01")
    more = ("--open", "--silence", "--resume", str(tmp_path / "two"), "--minutes", "0.01")
    second = leg(tmp_path / "three", "0.5:1", *more)
    assert [leg["silence"] for leg in second.history["legs"]] == [False, True]
    assert second.history["stage"] == "mixture"
    assert second.curves[: len(first.curves)] == first.curves
    assert {"answer", "letters", "exact", "align", "rank"} <= set(second.curves[-1])
    metrics = json.loads((tmp_path / "three" / "metrics.json").read_text())
    assert set(metrics["final"]["open"]) >= {"full", "target", "random", "grid", "answer avoided", "blank image"}
    assert set(metrics["final"]["open"]["full"]) >= {"all", "right_of", "left_of"}
    assert metrics["final"]["arms"]["full"]["pos_ecr"] == pytest.approx(1.0)
    model = AutoModelForImageTextToText.from_pretrained(export(tmp_path / "three", tmp_path / "checkpoint"))
    assert model.config.text_config.vocab_size == vocabulary.VOCABULARY_SIZE


def test_both_kinds_of_questions_are_learned_from_scratch(tmp_path):
    only = leg(tmp_path / "one", "0.31:0.6", "--form", "llava", "--both", "--silence", "--minutes", "0.01")
    assert only.curves[-1]["joint"] == 1.0
    assert {"slots", "page", "answer", "letters", "silence", "exact"} <= set(only.curves[-1])
    assert any(entry.get("letters", 0.0) > 0.0 for entry in only.curves)
    assert only.history["legs"][-1]["both"]
    assert set(only.checks[-1]["open"]) >= {"full", "target", "answer avoided"}


def test_the_class_token_is_trained_to_say_what_stands_on_the_page():
    what = objectives.LocalTargets(
        torch.zeros(1, 1), torch.zeros(1, 2, 94), torch.zeros(1, 2, BIGRAM_BUCKETS, dtype=torch.bool)
    )
    what.bigrams[0, 1, 7] = True
    heads = objectives.Heads(4, 4, page=True)
    assert heads.page is not None
    with torch.no_grad():
        heads.page.weight.zero_()
        heads.page.bias.fill_(-9.0)
        blind = objectives.page_loss(heads, torch.ones(1, 4), what)
        heads.page.bias[7] = 9.0
        seeing = objectives.page_loss(heads, torch.ones(1, 4), what)
    assert blind.item() > 8.9
    assert seeing.item() < 0.2


def forget_open_phrases(folder):
    """Leaves the checkpoint as one from before open questions, whose embedding ends with the bytes."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("embed_tokens.weight"))
    save_file(tensors | {name: tensors[name][: vocabulary.FIRST_OPEN].contiguous()}, file)


def test_the_embedding_of_an_older_checkpoint_grows_by_rows_like_those_of_yes_no_prompts(tmp_path):
    old = QWEN3_VL.model("toy", seed=5)
    old.save_pretrained(tmp_path)
    forget_open_phrases(tmp_path)
    new = QWEN3_VL.model("toy", seed=6)
    load_checkpoint(tmp_path, new)
    rows, expected = (model.model.language_model.embed_tokens.weight for model in (new, old))
    assert torch.equal(rows[: vocabulary.FIRST_OPEN], expected[: vocabulary.FIRST_OPEN])
    assert torch.equal(rows[vocabulary.OPEN_SYSTEM_TEXT], expected[vocabulary.SYSTEM_TEXT])
    assert torch.equal(rows[vocabulary.OPEN_TAIL], expected[vocabulary.TAIL])
    assert torch.equal(rows[-1], expected[vocabulary.HEAD])
    for name, parameter in new.model.visual.named_parameters():
        assert torch.equal(parameter, old.model.visual.get_parameter(name)), name


def test_a_checkpoint_of_another_size_and_a_missing_state_are_refused(refused, tmp_path):
    QWEN3_VL.model("toy").save_pretrained(tmp_path)
    refused("does not fit", load_checkpoint, tmp_path, QWEN3_VL.model("full"))
    refused("--start", load_checkpoint, tmp_path / "nowhere", QWEN3_VL.model("toy"))
    refused("no complete training state", read_state, tmp_path)


def packed(labels, segments, kinds, *values):
    """One page with questions whose answers stand at ``values``, of which the first cell alone is kept; and logits."""
    sample = {"labels": labels, "segments": segments, "kinds": kinds}
    keep = torch.zeros(1, 196, dtype=torch.bool)
    keep[0, 0] = True
    boxes = torch.zeros(1, len(values), 2, 4)
    for question, cells in enumerate(values):
        for place, (left, right) in enumerate(cells):
            boxes[0, question, place] = torch.tensor([left, 0.0, right, 32.0])
    return {name: torch.tensor([row]) for name, row in sample.items()} | {"values": boxes}, keep


def test_answers_whose_values_were_dropped_are_not_trained():
    # The first question has a value over two cells, the second two in cells apart, the third none.
    values: tuple[list[tuple[float, float]], ...] = [(0.0, 64.0)], [(0.0, 32.0), (64.0, 96.0)], []
    sample, keep = packed([1, 2, 3, 0], [0, 0, 1, 2], [LETTER, LETTER, LETTER, 0], *values)
    assert objectives.can_be_read(sample["values"], keep).tolist() == [[True, False, True]]
    logits = torch.zeros(1, 4, 5)
    logits[0, [0, 1], [1, 2]] = 9.0
    kept, everything = (objectives.open_losses(logits, sample, mask) for mask in (keep, torch.ones_like(keep)))
    assert kept["letters"].item() < 0.01
    assert kept["exact"].item() == 1.0
    assert everything["letters"].item() > 0.4
    assert everything["exact"].item() == 0.5


def test_silence_asks_for_an_empty_answer_where_no_cell_of_it_is_left():
    sample, keep = packed([20, 21, 22, 23], [0, 0, 1, 1], [LETTER, LETTER, 0, LETTER], [(0.0, 32.0)], [(64.0, 96.0)])
    logits = torch.zeros(1, 4, 30)
    logits[0, [0, 1, 3], [20, 21, vocabulary.IM_END]] = 9.0
    found = objectives.open_losses(logits, sample, keep)
    assert found["silence"].item() < 0.01
    assert found["letters"].item() < 0.01
    logits[0, 3] = 0.0
    assert objectives.open_losses(logits, sample, keep)["silence"].item() > 1.0
    assert objectives.open_losses(logits, sample, torch.ones_like(keep))["silence"].item() == 0.0


def test_language_leg_leaves_vision_and_embeddings(tmp_path):
    leg(tmp_path / "one", "0.4:0.5", "--minutes", "0.04")
    leg(tmp_path / "two", "0.5:1", "--resume", str(tmp_path / "one"), "--language-only", "--minutes", "0.06")
    before, after = (read_state(tmp_path / name)[0] for name in ("one", "two"))
    moved = {name for name in before if name.startswith("weight.") and not torch.equal(before[name], after[name])}
    assert moved
    assert all(".language_model.layers." in name or ".language_model.norm." in name for name in moved)


def test_the_rate_warms_holds_and_falls_and_the_clock_ends_in_spite_of_a_pause(monkeypatch):
    assert learning_rate(0.0, 0, 1.0) == pytest.approx(1 / WARM_UP)
    assert learning_rate(VISION_SHARE, WARM_UP, 1.0) == pytest.approx(1.0)
    assert learning_rate(1.0, 9999, 1.0) == pytest.approx(0.01)
    rates = [learning_rate(progress / 100, 9999, 1.0) for progress in range(101)]
    assert rates == sorted(rates, reverse=True)

    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    clock = Clock(0.2, 0.6, 100.0)
    for seconds, pause, progress in ((50.0, True, 0.2), (75.0, False, 0.4), (100.0, False, 0.6)):
        now[0] = seconds
        clock.tick(pause=pause)
        assert clock.progress == pytest.approx(progress)
    assert clock.over


def test_target_scores_follow_the_formula():
    generator = torch.Generator().manual_seed(0)
    tokens, embedding = torch.randn(1, 196, 8, generator=generator), torch.randn(20, 8, generator=generator)
    ids = [3, 3, 7, 9]
    targets = torch.full((1, 1, 6), -1)
    targets[0, 0, :4] = torch.tensor(ids)
    cosines = torch.cosine_similarity(tokens[0][:, None], embedding[ids][None], dim=-1)
    relevance, norm = cosines.topk(2, dim=1).values.mean(1), tokens[0].norm(dim=1)

    def minmax(values):
        return (values - values.min()) / (values.max() - values.min())

    expected = 0.85 * minmax(relevance) + 0.15 * minmax(norm)
    scores = objectives.target_scores(tokens, embedding, targets)[0, 0]
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=0)
    keep = objectives.apply_target_choice(torch.ones(1, 196, dtype=torch.bool), torch.tensor([59]), scores[None])
    assert sorted(keep[0].nonzero().flatten().tolist()) == sorted(expected.topk(59).indices.tolist())


def test_training_imports_no_heavy_packages():
    blocked = "dict.fromkeys(('pydantic', 'pyarrow', 'shapely', 'typer', 'pandas'))"
    script = f"import sys; sys.modules.update({blocked}); import lab.reader.train"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_trained_with_is_said_before_anything_is_drawn(tmp_path):
    for flag, values in (
        ("--progress", ("half", "1:0", "nan:1", "0:2")), ("--batch", ("0",)), ("--lr", ("nan", "0")),
        ("--minutes", ("nan", "inf")), ("--workers", ("-1",)), ("--log-every", ("0",)), ("--eval-images", ("0",)),
        ("--reserve", ("-1",)),
    ):  # fmt: skip
        for value in values:
            with pytest.raises(SightlineError, match=flag):
                parse(["--out", str(tmp_path), flag, value])
