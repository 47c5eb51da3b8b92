"""Methods with a trained head: what a wrong file is refused with, and audits with heads of drawn weights."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from sightline import AuditConfig, audit
from sightline.answering.answerer import ask
from sightline.arms.arm import parse_arm
from sightline.backbones import load_backbone
from sightline.backbones.loading import Served, methods_that_run
from sightline.report.build import build_report
from sightline.selectors import SELECTORS
from sightline.store.folder import RunFolder
from tests.heads import HEADED, drawn_head
from tests.refusals import Refused


def heads_for(folder: Path, model: Path, seed: int = 0) -> dict[str, str]:
    """Arms of all methods with a head, by name."""
    sizes = Served.by_description(model).sizes
    arms = {}
    for name in HEADED:
        file = drawn_head(name, folder / f"{name}.safetensors", sizes, seed)
        arms[name] = f"{name}:0.3:head={file}"
    return arms


@pytest.mark.parametrize("model", ["llava", "qwen3vl"])
def test_an_audit_runs_with_heads_and_its_rows_belong_to_their_content(
    config: Callable[..., AuditConfig], data: Path, tmp_path: Path, model: str, refused: Refused
) -> None:
    arms = heads_for(tmp_path, data / "tiny" / model)
    settings = config(model, arms=["full", *arms.values()], limit=2)
    frame = audit(settings).frame()
    assert set(frame["arm"]) == {"full", *arms.values()}
    pruned = frame[frame["arm"] != "full"]
    assert (pruned["k_tokens"] == (-(-3 * pruned["n_tokens"] // 10))).all()
    assert (pruned["signal_ms"] + pruned["select_ms"] > 0).all()
    masks = {arm: rows["kept_mask"].tolist() for arm, rows in frame.groupby("arm")}
    assert len({str(mask) for mask in masks.values()}) == len(masks), "each head has its own say"
    recorded = RunFolder(settings.out).manifest()["inputs"]
    assert set(recorded) == set(arms.values())
    assert recorded == {arm: parse_arm(arm).input_digest() for arm in arms.values()}
    heads_for(tmp_path, data / "tiny" / model, seed=1)
    refused("made from other content of its file", audit, settings)
    other = audit(config(model, arms=[*arms.values()], limit=2, out=tmp_path / "other")).frame()
    for file in tmp_path.glob("*.safetensors"):
        file.unlink()
    later = audit(config(model, arms=["full", "center:0.3"], limit=2))
    assert set(later.frame()["arm"]) == {"full", "center:0.3", *arms.values()}, "a finished arm needs its file no more"
    assert build_report([later.path], tmp_path / "report", draws=50, cases=0).exists()
    for name, arm in arms.items():
        assert other[other["arm"] == arm]["kept_mask"].tolist() != masks[arm], f"{name}: another head, other tokens"


def test_a_batch_chooses_as_each_prompt_alone(config: Callable[..., AuditConfig], data: Path, tmp_path: Path) -> None:
    """The glimpse token of one prompt sees nothing of the others, nor of the answers behind its own."""
    arm = heads_for(tmp_path, data / "tiny" / "llava")["glimpseprune"]
    together, alone = (
        audit(config("llava", arms=[arm], limit=3, batch_tokens=tokens, out=tmp_path / str(tokens))).frame()
        for tokens in (16384, 1)
    )
    assert together["kept_mask"].tolist() == alone["kept_mask"].tolist()
    torch.testing.assert_close(torch.tensor(together["margin"]), torch.tensor(alone["margin"]), atol=1e-4, rtol=1e-4)


def changed(file: Path, *, without: str = "", config: Mapping[str, Any] | None = None, **tensors: Any) -> Path:
    """The same head with other tensors or settings."""
    with safe_open(file, "pt") as opened:
        settings = {**json.loads(opened.metadata()["config"]), **(config or {})}
    kept = {name: tensor for name, tensor in load_file(file).items() if not without or without not in name}
    save_file(kept | tensors, file, {"config": json.dumps(settings)})
    return file


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "has no tensor le_norm": ("glimpseprune", {"without": "le_norm"}),
    "is 9, and not inner size": ("visionselector", {"model.visual.importance_scorer.q_proj.bias": torch.zeros(9)}),
    "is 3, and not inner size x width": ("twigvlm", {"layers.0.mlp.gate_proj.weight": torch.zeros(3)}),
    "is stored as I8": ("twigvlm", {"layers.0.input_layernorm.weight": torch.ones(64, dtype=torch.int8)}),
    "le_norm_type = layernorm": ("glimpseprune", {"config": {"le_norm_type": "layernorm"}}),
    "selected_layers = [0, 1]": ("glimpseprune", {"config": {"selected_layers": [0, 1]}}),
    "other numbers of layers": ("glimpseprune", {"config": {"selected_visual_layers": [1, 2]}}),
}
"""What is said -> of which method, and how its head was changed."""


def test_a_wrong_file_is_refused_before_a_model_is_loaded(
    config: Callable[..., AuditConfig], data: Path, tmp_path: Path, no_weights: None, refused: Refused
) -> None:
    def tried(name: str, file: Path | str) -> None:
        audit(config("llava", arms=[f"{name}:0.3:head={file}"]))

    refused("needs head", lambda: audit(config("llava", arms=["twigvlm:0.3"])))
    refused("cannot read", tried, "visionselector", tmp_path / "none.safetensors")
    refused("it is a folder", tried, "visionselector", tmp_path)
    (tmp_path / "text").write_text("not tensors")
    refused("is not a safetensors file", tried, "twigvlm", tmp_path / "text")
    for words, (name, changes) in WRONG.items():
        heads_for(tmp_path, data / "tiny" / "llava")
        refused(words, tried, name, changed(tmp_path / f"{name}.safetensors", **changes))
    refused("has no tensor model.layers.0", tried, "twigvlm", tmp_path / "visionselector.safetensors")
    bare = tmp_path / "glimpseprune.safetensors"
    save_file(load_file(bare), bare)
    refused("has no model_type in the config", tried, "glimpseprune", bare)


@pytest.mark.parametrize("name", HEADED)
def test_a_head_without_finite_weights_or_of_another_model_chooses_nothing(
    config: Callable[..., AuditConfig], data: Path, tmp_path: Path, name: str, no_weights: None, refused: Refused
) -> None:
    tiny, image = str(data / "tiny" / "llava"), data / "mini_textocr" / "train" / "02ac65de9eec83e1.jpg"
    arm = heads_for(tmp_path, Path(tiny))[name]
    file = tmp_path / f"{name}.safetensors"
    first, weights = sorted(load_file(file).items())[0]
    spoilt: Any = {first: weights.fill_(float("nan"))}
    changed(file, **spoilt)
    refused(f"{first} of", ask, tiny, image, "What is it?", arm)
    sizes = {**Served.by_description(Path(tiny)).sizes, "width": 32}
    arm = f"{name}:0.3:head={drawn_head(name, tmp_path / 'head.safetensors', sizes)}"
    refused(f"{name} cannot run on", lambda: audit(config("llava", arms=[arm])))
    refused(f"{name} cannot run on", ask, tiny, image, "What is it?", arm)


def test_a_method_that_waits_for_its_file_is_listed_as_such_and_nowhere_run(
    data: Path, zoo: Callable[[str], Path]
) -> None:
    listed = methods_that_run(Served.by_description(data / "tiny" / "llava"))
    assert {name for name, answer in listed.items() if answer == "yes, with head=FILE"} == set(HEADED)
    assert listed["masks"] == "yes, with file=FILE"
    assert {name for name, kind in SELECTORS.items() if kind.needs_file} == {*HEADED, "masks"}
    listed = methods_that_run(Served.by(load_backbone(str(zoo("gemma3")), dtype="float32", device="cpu")))
    assert {listed[name] for name in HEADED} == {"yes, with head=FILE"}, "also of a decoder that runs itself"
