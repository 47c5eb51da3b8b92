"""A leg of training runs, is resumed, and is exported to a checkpoint that stock classes load."""

import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoTokenizer, Qwen3VLForConditionalGeneration

from sightline.errors import SightlineError
from sightline.reader.export import export
from sightline.reader.objectives import apply_target_choice, target_scores
from sightline.reader.state import SHARD_BYTES, read_state
from sightline.reader.train import VISION_SHARE, WARM_UP, Clock, Trainer, learning_rate, parse


def leg(out, progress, *more):
    flags = [
        "--preset",
        "toy",
        "--batch",
        "2",
        "--workers",
        "0",
        "--eval-images",
        "2",
        "--reserve",
        "0",
        "--log-every",
        "1",
    ]
    trainer = Trainer(parse(["--out", str(out), "--progress", progress, "--minutes", "0.12", *flags, *more]))
    trainer.run()
    return trainer


def test_two_legs_and_export(tmp_path):
    first = leg(tmp_path / "one", "0:0.31")
    assert max(file.stat().st_size for file in (tmp_path / "one").iterdir()) <= SHARD_BYTES + 2**16
    second = leg(tmp_path / "two", "0.31:1", "--resume", str(tmp_path / "one"))
    assert second.history["steps"] > first.history["steps"]
    assert second.curves[: len(first.curves)] == first.curves
    assert second.curves[-1]["joint"] == 1.0
    metrics = json.loads((tmp_path / "two" / "metrics.json").read_text())
    assert set(metrics["final"]["arms"]) >= {"full", "target", "random", "grid", "blank image", "wrong image"}
    assert metrics["final"]["arms"]["full"]["pos_ecr"] == pytest.approx(1.0)

    folder = export(tmp_path / "two", tmp_path / "checkpoint")
    model = Qwen3VLForConditionalGeneration.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    assert len(AutoTokenizer.from_pretrained(folder)) == model.config.text_config.vocab_size
    tensors, _ = read_state(tmp_path / "two")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, tensors[f"weight.model.{name}"]), name


def test_language_leg_leaves_vision_and_embeddings(tmp_path):
    leg(tmp_path / "one", "0.4:0.5", "--minutes", "0.04")
    leg(tmp_path / "two", "0.5:1", "--resume", str(tmp_path / "one"), "--language-only", "--minutes", "0.06")
    before, after = (read_state(tmp_path / name)[0] for name in ("one", "two"))
    moved = {name for name in before if name.startswith("weight.") and not torch.equal(before[name], after[name])}
    assert moved
    assert all(".language_model.layers." in name or ".language_model.norm." in name for name in moved)


def test_resume_needs_a_state(tmp_path):
    with pytest.raises(SightlineError, match="no complete training state"):
        read_state(tmp_path)


def test_learning_rate_warms_holds_and_falls():
    assert learning_rate(0.0, 0, 1.0) == pytest.approx(1 / WARM_UP)
    assert learning_rate(VISION_SHARE, WARM_UP, 1.0) == pytest.approx(1.0)
    assert learning_rate(1.0, 9999, 1.0) == pytest.approx(0.01)
    rates = [learning_rate(progress / 100, 9999, 1.0) for progress in range(101)]
    assert rates == sorted(rates, reverse=True)


def test_clock_reaches_the_end_in_spite_of_a_pause(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    clock = Clock(0.2, 0.6, 100.0)
    now[0] = 50.0
    clock.tick(pause=True)
    assert clock.progress == pytest.approx(0.2)
    now[0] = 75.0
    clock.tick()
    assert clock.progress == pytest.approx(0.4)
    now[0] = 100.0
    clock.tick()
    assert clock.progress == pytest.approx(0.6)
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
    scores = target_scores(tokens, embedding, targets)[0, 0]
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=0)
    keep = apply_target_choice(torch.ones(1, 196, dtype=torch.bool), torch.tensor([59]), scores[None])
    assert sorted(keep[0].nonzero().flatten().tolist()) == sorted(expected.topk(59).indices.tolist())


def test_training_imports_no_heavy_packages():
    blocked = (
        "import sys; sys.modules.update({name: None for name in ('pydantic', 'pyarrow', 'shapely', 'typer', 'pandas')})"
    )
    script = f"{blocked}; import sightline.reader.train"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
