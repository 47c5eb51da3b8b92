"""Checkpoints: weights as they are in the file, all of them or none; damaged, pickled and foreign ones in one line."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig
from typer.testing import CliRunner

import sightline
from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.backbones import BACKBONES, load_backbone
from sightline.backbones.clip import ClipSpace, clip_trouble
from sightline.backbones.from_transformers import AbsentPart, hollow_package, processor_of
from sightline.backbones.llava import Llava
from sightline.backbones.loading import Served, checkpoint_folder, convert
from sightline.cli import app
from sightline.errors import SightlineError
from sightline.probes import HardPairRules, build_hard_pairs, write_probes
from sightline.probes.annotations import load_regions
from sightline_paper.models import named_models
from tests.refusals import Refused
from tests.zoo import build

HOST = torch.device("cpu")

Copied = Callable[..., Path]


@pytest.fixture
def copied(data: Path, tmp_path: Path) -> Copied:
    """A copy of one of the tiny checkpoints, to be changed, by its name or another."""
    return lambda model, name="": Path(shutil.copytree(data / "tiny" / model, tmp_path / "copy" / (name or model)))


def settings(file: Path, **changes: Any) -> None:
    """Changes entries of a JSON file; those that become None are taken out."""
    merged = {**json.loads(file.read_text(encoding="utf-8")), **changes}
    kept = {name: value for name, value in merged.items() if value is not None}
    file.write_text(json.dumps(kept), encoding="utf-8")


# Weights are those of the file: under another name of the architecture, and all of them or none.


def test_weights_are_those_of_the_file_whatever_the_checkpoint_calls_its_type(
    copied: Copied, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tiny LLaVA as ``other_llava``, which a subclass of LLaVA's serves."""
    renamed = copied("llava")
    settings(renamed / "config.json", model_type="other_llava")
    BACKBONES.names()
    monkeypatch.setitem(BACKBONES._entries, "other_llava", type("OtherLlava", (Llava,), {}))
    known, other = (load_backbone(str(folder), device="cpu") for folder in (data / "tiny" / "llava", renamed))
    before, after = known.model.state_dict(), other.model.state_dict()
    assert other.model.config.model_type == "other_llava"
    # The file names its output head as older versions of transformers did; the rename goes by the type.
    assert torch.equal(after["lm_head.weight"], load_file(renamed / "model.safetensors")[HEAD])
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert type(other.tokenizer) is type(known.tokenizer)
    assert other.tokenizer("Is the word visible?").input_ids == known.tokenizer("Is the word visible?").input_ids


Weights = dict[str, Tensor]
HEAD = "language_model.lm_head.weight"
"""Of LLaVA, as its file calls it; not tied to the embeddings in this checkpoint."""


def every_second(weights: Weights) -> Weights:
    return {name: weights[name] for name in sorted(weights)[::2]}


@pytest.mark.parametrize(("model", "change", "words"), [
    *((model, every_second, f"{model} lacks") for model in ("qwen3vl", "llava", "internvl", "clip")),
    ("llava", lambda weights: {name: weights[name] for name in weights if name != HEAD}, "llava lacks 1 tensor"),
    ("llava", lambda weights: {**weights, HEAD: weights[HEAD][:7].clone()}, "lm_head.weight is 7 x"),
])  # fmt: skip
def test_a_checkpoint_that_lacks_tensors_is_refused_by_their_names(
    model: str, change: Callable[[Weights], Weights], words: str, copied: Copied, refused: Refused
) -> None:
    folder = copied(model)
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, {"format": "pt"})
    if model == "clip":
        refused(words, ClipSpace, str(folder), HOST)
    else:
        refused(words, load_backbone, str(folder), device="cpu")


def test_an_output_head_that_is_the_embeddings_is_not_missing() -> None:
    reader = Path(sightline.__file__).parent / "assets/reader"
    assert "lm_head.weight" not in load_file(reader / "model.safetensors")
    model = load_backbone(str(reader), device="cpu").model
    assert torch.equal(model.lm_head.weight, model.get_input_embeddings().weight)


# Checkpoints with a file that is not what it should be: one line that names the checkpoint. All were tracebacks.


DAMAGED = [
    ("model.safetensors", b"", "checkpoint"), ("model.safetensors", b"\xff" * 64, "checkpoint"),
    ("model.safetensors", None, "cannot load checkpoint"),  # without its end
    ("tokenizer.json", b"{}", "checkpoint"), ("tokenizer.json", b"", "checkpoint"),
    ("tokenizer_config.json", b"[]", "checkpoint"), ("preprocessor_config.json", b"[]", "checkpoint"),
    ("generation_config.json", b"null", "checkpoint"), ("config.json", b"[", "checkpoint"),
    ("config.json", b'{"model_type": "llava", "vision_config": 5}', "checkpoint.*vision_config is no JSON object"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "name", "content", "words"), [
    *((model, *row) for model in ("llava", "qwen3vl", "internvl") for row in DAMAGED),
    ("clip", "model.safetensors", b"\0" * 100, "cannot load CLIP from checkpoint"),
])  # fmt: skip
def test_a_damaged_file_is_one_line(copied: Copied, model: str, name: str, content: bytes | None, words: str) -> None:
    folder = copied(model, "checkpoint")
    file = folder / name
    file.write_bytes(file.read_bytes()[:-1000] if content is None else content)
    with pytest.raises(SightlineError, match=words):
        ClipSpace(str(folder), HOST) if model == "clip" else load_backbone(str(folder), device="cpu")
    if name == "config.json":
        with pytest.raises(SightlineError, match=words):
            Served.by_description(folder)


def test_code_that_comes_with_a_checkpoint_is_never_run(copied: Copied, tmp_path: Path) -> None:
    folder, ran = copied("llava"), tmp_path / "ran"
    (folder / "modeling_llava.py").write_text(f"open({str(ran)!r}, 'w').write('x')\n")
    own = {"AutoModel": "modeling_llava.X", "AutoConfig": "modeling_llava.X"}
    settings(folder / "config.json", auto_map=own)
    load_backbone(str(folder), device="cpu")
    assert not ran.exists()


# Checkpoints with pickled weights alone: named with the way out, converted, and loaded as what they were.


@pytest.fixture
def pickled(copied: Copied) -> Path:
    """The tiny CLIP checkpoint as older repositories have it, a tied tensor among its weights."""
    folder = copied("clip")
    (weights,) = folder.glob("*.safetensors")
    tensors = load_file(weights)
    torch.save({**tensors, "tied": tensors[next(iter(tensors))]}, folder / "pytorch_model.bin")
    weights.unlink()
    return folder


def test_pickled_weights_are_refused_with_the_command_that_makes_the_same_model_of_them(
    copied: Copied, data: Path, pickled: Path, tmp_path: Path, refused: Refused
) -> None:
    refused("pickle files are not loaded; `sightline convert TMP/copy/clip", ClipSpace, str(pickled), HOST)
    folder = copied("llava")
    (folder / "model.safetensors").unlink()
    refused("weights; fetch the checkpoint again", load_backbone, str(folder), device="cpu")
    (folder / "pytorch_model.bin").touch()
    refused("`sightline convert TMP/copy/llava", load_backbone, str(folder), device="cpu")
    result = CliRunner().invoke(app, ["convert", str(pickled), "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert not list((tmp_path / "new").glob("*.bin"))
    spaces = [ClipSpace(str(folder), HOST) for folder in (data / "tiny" / "clip", tmp_path / "new")]
    before, after = (space.model.state_dict() for space in spaces)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(*(space.text("where is the total?") for space in spaces))


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("harm-was-done"),)


def test_what_cannot_be_converted_is_one_clear_line(
    data: Path, pickled: Path, tmp_path: Path, refused: Refused
) -> None:
    new, bare = tmp_path / "new", tmp_path / "bare"
    bare.mkdir()
    for source, target, words in [
        (data / "tiny" / "clip", new, "it has safetensors already"),
        (pickled, pickled, "exists and is not empty"),
        (bare, new, "it has no pytorch_model*.bin"),
    ]:
        refused(words, convert, str(source), target)


def test_a_pickle_that_holds_more_than_tensors_is_not_opened(
    pickled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.chdir(tmp_path)
    something_else = [({"epoch": 3}, "it holds something else"), ([1, 2], "it holds something else")]
    for content, words in (({"weight": Harmful()}, "could run code"), *something_else):
        torch.save(content, pickled / "pytorch_model.bin")
        refused(words, convert, str(pickled), tmp_path / "new")
        assert not (tmp_path / "harm-was-done").exists()
        assert not (tmp_path / "new").exists()


# Processors put together from their parts: which class, which parts, and nothing left behind.


ABSENT = "a_package_that_nobody_has"


def test_a_file_that_asks_for_a_missing_package_is_imported_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asks_for_it.py").write_text(
        f"from {ABSENT}.deep.below import thing\nimport {ABSENT}\n"
        f"default = {ABSENT}.Mode.NEAREST\ndef two(): return 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with hollow_package(ABSENT):
        assert importlib.import_module("asks_for_it").two() == 2
    assert not [name for name in sys.modules if name.startswith(("asks_for_it", ABSENT))]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("asks_for_it")
    with hollow_package("json"):
        assert sys.modules["json"] is json, "a package that is there is not stood in"


def test_a_processor_has_the_checkpoints_own_class_and_settings(tmp_path: Path) -> None:
    folder = build("smolvlm", tmp_path / "smolvlm")
    processor = processor_of(folder, AutoConfig.from_pretrained(folder))
    assert type(processor).__name__ == "SmolVLMProcessor"
    assert type(processor.image_processor).__name__ == "SmolVLMImageProcessorPil"
    assert isinstance(processor.video_processor, AbsentPart)
    assert processor.image_seq_len == 4
    assert processor.chat_template == (folder / "chat_template.jinja").read_text(encoding="utf-8")
    if importlib.util.find_spec("num2words") is None:
        from transformers.models.smolvlm import processing_smolvlm

        assert processing_smolvlm.num2words is None


def test_the_class_of_a_type_is_found_where_the_checkpoint_names_none(tmp_path: Path) -> None:
    folder = build("mistral3", tmp_path / "mistral3")
    for name in ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json"):
        settings(folder / name, processor_class=None, image_processor_type=None)
    processor = processor_of(folder, AutoConfig.from_pretrained(folder))
    assert type(processor).__name__ == "PixtralProcessor"
    assert type(processor.image_processor).__name__ == "PixtralImageProcessorPil"


def test_a_class_that_transformers_does_not_have_is_named(tmp_path: Path, refused: Refused) -> None:
    folder = build("mistral3", tmp_path / "mistral3")
    settings(folder / "processor_config.json", processor_class="OddProcessor")
    words = "mistral3: OddProcessor cannot be imported: transformers does not have it"
    refused(words, processor_of, folder, AutoConfig.from_pretrained(folder))


# ``MODEL@REVISION``: one commit of a hub's repository, wherever a model is named.


COMMIT = "b234b804b114d9e37bb655e11cbbb5f5e971b7a9"


@pytest.fixture
def hub(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """A hub of tiny checkpoints, unpacked as its cache does; what was asked of it."""
    asked: list[tuple[str, str | None]] = []

    def fetch(name: str, revision: str | None = None, **_: Any) -> str:
        asked.append((name, revision))
        folder = tmp_path / "hub" / name.replace("/", "--") / "snapshots" / (revision or "0" * 40)
        if not folder.exists():
            shutil.copytree(data / "tiny" / name.split("/")[1], folder)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    return asked


def test_a_revision_is_fetched_and_without_one_the_newest(hub: list[tuple[str, str | None]]) -> None:
    assert checkpoint_folder(f"org/llava@{COMMIT}").name == COMMIT
    checkpoint_folder("org/llava")
    assert hub == [("org/llava", COMMIT), ("org/llava", None)]


def test_a_revision_is_understood_wherever_a_model_is_named(hub: list[tuple[str, str | None]]) -> None:
    name = f"org/llava@{COMMIT}"
    assert named_models([name]) == {"llava": name}
    assert named_models([f"llava={name}"]) == {"llava": name}
    assert clip_trouble(f"org/clip@{COMMIT}", name) == ""
    assert load_backbone(name, device="cpu", dtype="float32").title
    assert {revision for _, revision in hub} == {COMMIT}


def test_a_local_folder_may_have_the_sign_in_its_name_and_has_no_revision(
    data: Path, tmp_path: Path, refused: Refused
) -> None:
    folder = tmp_path / "llava@home"
    folder.mkdir()
    assert checkpoint_folder(str(folder)) == folder
    refused("llava is a local folder, which has no revision 'main'", checkpoint_folder, f"{data / 'tiny/llava'}@main")


def test_a_run_records_the_revision_and_calls_the_model_by_its_name(
    hub: list[tuple[str, str | None]], data: Path, tmp_path: Path
) -> None:
    images = data / "mini_textocr"
    (file,) = images.glob("*.json")
    records = load_regions(file, file_format="textocr").records
    write_probes(tmp_path / "probes.jsonl", build_hard_pairs(records, HardPairRules(limit_images=1)).probes)
    config = AuditConfig(
        model=f"org/llava@{COMMIT}", probes=tmp_path / "probes.jsonl", images=images, arms=["full"],
        out=tmp_path / "run", device="cpu", dtype="float32", matched_controls=False,
    )  # fmt: skip
    manifest = audit(config).manifest
    assert (manifest["model"], manifest["model_revision"]) == ("llava", COMMIT)
