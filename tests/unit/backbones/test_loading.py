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
from sightline.backbones.from_transformers import Absent, processor_of, stood_in
from sightline.backbones.llava import Llava
from sightline.backbones.loading import Served, checkpoint_folder, convert
from sightline.cli import app
from sightline.errors import SightlineError
from sightline_paper.models import named_models
from tests.zoo import build

HOST = torch.device("cpu")
TRUNCATED = None
"""The file without its end."""

# Weights are those of the file: under another name of the architecture, and all of them or none.


@pytest.fixture
def renamed(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny LLaVA as ``other_llava``, which a subclass of LLaVA's serves."""
    folder = Path(shutil.copytree(data / "tiny" / "llava", tmp_path / "renamed"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "other_llava"}), encoding="utf-8")
    BACKBONES.names()
    monkeypatch.setitem(BACKBONES._entries, "other_llava", type("OtherLlava", (Llava,), {}))
    return folder


def test_weights_are_those_of_the_file_whatever_the_checkpoint_calls_its_type(renamed: Path, data: Path) -> None:
    # The file names its output head as older versions of transformers did; the rename goes by the type.
    stored = load_file(renamed / "model.safetensors")["language_model.lm_head.weight"]
    known = load_backbone(str(data / "tiny" / "llava"), device="cpu").model.state_dict()
    model = load_backbone(str(renamed), device="cpu").model
    loaded = model.state_dict()
    assert model.config.model_type == "other_llava"
    assert torch.equal(loaded["lm_head.weight"], stored)
    assert loaded.keys() == known.keys()
    assert all(torch.equal(loaded[name], known[name]) for name in known)


def test_the_tokenizer_is_the_one_of_the_known_type(renamed: Path, data: Path) -> None:
    known, other = (load_backbone(str(folder), device="cpu").tokenizer for folder in (data / "tiny" / "llava", renamed))
    assert type(other) is type(known)
    assert other("Is the word exit visible?").input_ids == known("Is the word exit visible?").input_ids


def with_weights(folder: Path, copy: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Path:
    """A copy of a checkpoint whose tensors were changed."""
    shutil.copytree(folder, copy)
    save_file(change(load_file(folder / "model.safetensors")), copy / "model.safetensors", {"format": "pt"})
    return copy


def every_second(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: weights[name] for name in sorted(weights)[::2]}


HEAD = "language_model.lm_head.weight"
"""Of LLaVA, as its file calls it; not tied to the embeddings in this checkpoint."""
LACKING = r"^copy lacks \d+ tensors that its config\.json asks for: \S+, \S+, "


@pytest.mark.parametrize(
    ("model", "change", "words"),
    [
        ("qwen3vl", every_second, LACKING),
        ("llava", every_second, LACKING),
        ("internvl", every_second, LACKING),
        ("clip", every_second, LACKING),
        (
            "llava",
            lambda weights: {name: weights[name] for name in weights if name != HEAD},
            r"^copy lacks 1 tensor that its config\.json asks for: lm_head\.weight;",
        ),
        (
            "llava",
            lambda weights: {**weights, HEAD: weights[HEAD][:7].clone()},
            r"lm_head\.weight is 7 x (\d+), its config\.json asks for \d+ x \1;",
        ),
    ],
    ids=["qwen3vl", "llava", "internvl", "clip", "one missing tensor is enough", "another shape"],
)
def test_a_checkpoint_that_lacks_tensors_is_refused_by_their_names(
    model: str, change: Callable[[dict[str, Tensor]], dict[str, Tensor]], words: str, data: Path, tmp_path: Path
) -> None:
    folder = str(with_weights(data / "tiny" / model, tmp_path / "copy", change))
    with pytest.raises(SightlineError, match=words):
        ClipSpace(folder, HOST) if model == "clip" else load_backbone(folder, device="cpu")


def test_an_output_head_that_is_the_embeddings_is_not_missing() -> None:
    assert "lm_head.weight" not in load_file(Path(sightline.__file__).parent / "assets/reader/model.safetensors")
    model = load_backbone(str(Path(sightline.__file__).parent / "assets/reader"), device="cpu").model
    assert torch.equal(model.lm_head.weight, model.get_input_embeddings().weight)


# Checkpoints with a file that is not what it should be: one line that names the checkpoint. All were tracebacks.


@pytest.mark.parametrize("model", ["llava", "qwen3vl", "internvl"])
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.safetensors", b"", "checkpoint"),
        ("model.safetensors", b"\xff" * 64, "checkpoint"),
        ("model.safetensors", TRUNCATED, "cannot load checkpoint"),
        ("tokenizer.json", b"{}", "checkpoint"),
        ("tokenizer.json", b"", "checkpoint"),
        ("tokenizer_config.json", b"[]", "checkpoint"),
        ("preprocessor_config.json", b"[]", "checkpoint"),
        ("generation_config.json", b"null", "checkpoint"),
        ("config.json", b"[", "checkpoint"),
        ("config.json", b'{"model_type": "llava", "vision_config": 5}', "checkpoint.*vision_config is no JSON object"),
    ],
)
def test_a_damaged_file_is_one_line(
    data: Path, tmp_path: Path, model: str, name: str, content: bytes | None, words: str
) -> None:
    folder = Path(shutil.copytree(data / "tiny" / model, tmp_path / "checkpoint"))
    (folder / name).write_bytes((folder / name).read_bytes()[:-1000] if content is TRUNCATED else content)
    with pytest.raises(SightlineError, match=words):
        load_backbone(str(folder), device="cpu")
    if name == "config.json":
        with pytest.raises(SightlineError, match=words):
            Served.by_description(folder)


def test_a_damaged_clip_checkpoint_is_one_line(data: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(data / "tiny" / "clip", tmp_path / "clip"))
    (folder / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(SightlineError, match="cannot load CLIP from clip"):
        ClipSpace(str(folder), HOST)


def test_code_that_comes_with_a_checkpoint_is_never_run(data: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(data / "tiny" / "llava", tmp_path / "checkpoint"))
    ran = tmp_path / "ran"
    (folder / "modeling_llava.py").write_text(f"open({str(ran)!r}, 'w').write('x')\n")
    text = (folder / "config.json").read_text(encoding="utf-8").strip()
    (folder / "config.json").write_text(
        text[:-1] + ', "auto_map": {"AutoModel": "modeling_llava.X", "AutoConfig": "modeling_llava.X"}}'
    )
    load_backbone(str(folder), device="cpu")
    assert not ran.exists()


# Checkpoints with pickled weights alone: named with the way out, converted, and loaded as what they were.


@pytest.fixture
def pickled(data: Path, tmp_path: Path) -> Path:
    """The tiny CLIP checkpoint as older repositories have it, a tied tensor among its weights."""
    folder = Path(shutil.copytree(data / "tiny" / "clip", tmp_path / "pickled"))
    (weights,) = folder.glob("*.safetensors")
    tensors = load_file(weights)
    first = next(iter(tensors))
    torch.save({**tensors, "tied": tensors[first]}, folder / "pytorch_model.bin")
    weights.unlink()
    return folder


def test_pickled_weights_are_refused_with_the_command_that_converts_them(
    data: Path, pickled: Path, tmp_path: Path
) -> None:
    with pytest.raises(SightlineError, match=rf"pickle files are not loaded; `sightline convert {pickled} --out"):
        ClipSpace(str(pickled), HOST)
    folder = Path(shutil.copytree(data / "tiny" / "llava", tmp_path / "llava"))
    (folder / "model.safetensors").unlink()
    with pytest.raises(SightlineError, match=r"`sightline convert .* --out NEW_FOLDER` makes safetensors"):
        load_backbone(str(folder), device="cpu")


def test_the_converted_checkpoint_is_the_same_model(data: Path, pickled: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["convert", str(pickled), "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert not list((tmp_path / "new").glob("*.bin"))
    spaces = [ClipSpace(str(folder), HOST) for folder in (data / "tiny" / "clip", tmp_path / "new")]
    before, after = (space.model.state_dict() for space in spaces)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(*(space.text("where is the total?") for space in spaces))


def test_what_cannot_be_converted_is_one_clear_line(data: Path, pickled: Path, tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="it has safetensors already"):
        convert(str(data / "tiny" / "clip"), tmp_path / "new")
    with pytest.raises(SightlineError, match="exists and is not empty"):
        convert(str(pickled), pickled)
    (tmp_path / "bare").mkdir()
    with pytest.raises(SightlineError, match=r"it has no pytorch_model\*\.bin"):
        convert(str(tmp_path / "bare"), tmp_path / "new")


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("harm-was-done"),)


@pytest.mark.parametrize("content", [{"weight": Harmful()}, {"epoch": 3}, [1, 2]])
def test_a_pickle_that_holds_more_than_tensors_is_not_opened(
    pickled: Path, tmp_path: Path, content: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(content, pickled / "pytorch_model.bin")
    with pytest.raises(SightlineError, match=r"pytorch_model\.bin is not a plain file of tensors"):
        convert(str(pickled), tmp_path / "new")
    assert not (tmp_path / "harm-was-done").exists()
    assert not (tmp_path / "new").exists()


# Processors put together from their parts: which class, which parts, and nothing left behind.


ABSENT = "a_package_that_nobody_has"


@pytest.fixture
def module_that_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "asks_for_it.py").write_text(
        f"from {ABSENT}.deep.below import thing\nimport {ABSENT}\n"
        f"default = {ABSENT}.Mode.NEAREST\ndef two(): return 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "asks_for_it"


def test_a_file_that_asks_for_a_missing_package_is_imported_and_forgotten(module_that_asks: str) -> None:
    with stood_in(ABSENT):
        module = importlib.import_module(module_that_asks)
    assert module.two() == 2
    assert not [name for name in sys.modules if name.startswith((ABSENT, module_that_asks))]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(module_that_asks)


def test_a_package_that_is_there_is_not_stood_in() -> None:
    with stood_in("json"):
        assert sys.modules["json"] is json


def test_a_processor_has_the_checkpoints_own_class_and_settings(tmp_path: Path) -> None:
    folder = build("smolvlm", tmp_path / "smolvlm")
    processor = processor_of(folder, AutoConfig.from_pretrained(folder))
    assert type(processor).__name__ == "SmolVLMProcessor"
    assert type(processor.image_processor).__name__ == "SmolVLMImageProcessorPil"
    assert isinstance(processor.video_processor, Absent)
    assert processor.image_seq_len == 4
    assert processor.chat_template == (folder / "chat_template.jinja").read_text(encoding="utf-8")
    if importlib.util.find_spec("num2words") is None:
        from transformers.models.smolvlm import processing_smolvlm

        assert processing_smolvlm.num2words is None


def test_the_class_of_a_type_is_found_where_the_checkpoint_names_none(tmp_path: Path) -> None:
    folder = build("mistral3", tmp_path / "mistral3")
    for name in ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json"):
        content = json.loads((folder / name).read_text())
        content.pop("processor_class")
        content.pop("image_processor_type", None)
        (folder / name).write_text(json.dumps(content))
    processor = processor_of(folder, AutoConfig.from_pretrained(folder))
    assert type(processor).__name__ == "PixtralProcessor"
    assert type(processor.image_processor).__name__ == "PixtralImageProcessorPil"


def test_a_class_that_transformers_does_not_have_is_named(tmp_path: Path) -> None:
    folder = build("qwen2_vl", tmp_path / "odd")
    file = folder / "processor_config.json"
    file.write_text(json.dumps({"processor_class": "OddProcessor"}))
    with pytest.raises(SightlineError, match="odd: OddProcessor cannot be imported: transformers does not have it"):
        processor_of(folder, AutoConfig.from_pretrained(folder))


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


def test_it_is_understood_wherever_a_model_is_named(hub: list[tuple[str, str | None]]) -> None:
    name = f"org/llava@{COMMIT}"
    assert named_models([name]) == {"llava": name}
    assert named_models([f"llava={name}"]) == {"llava": name}
    assert clip_trouble(f"org/clip@{COMMIT}", name) == ""
    assert load_backbone(name, device="cpu", dtype="float32").title
    assert {revision for _, revision in hub} == {COMMIT}


def test_a_run_records_the_revision_and_calls_the_model_by_its_name(
    hub: list[tuple[str, str | None]], data: Path, tmp_path: Path
) -> None:
    probes = data / "mini_textocr"
    from sightline.probes import HardPairRules, build_hard_pairs, write_probes
    from sightline.probes.annotations import load_regions

    (file,) = probes.glob("*.json")
    records = load_regions(file, file_format="textocr").records
    write_probes(tmp_path / "probes.jsonl", build_hard_pairs(records, HardPairRules(limit_images=1)).probes)
    config = AuditConfig(
        model=f"org/llava@{COMMIT}", probes=tmp_path / "probes.jsonl", images=probes, arms=["full"],
        out=tmp_path / "run", device="cpu", dtype="float32", matched_controls=False,
    )  # fmt: skip
    run = audit(config)
    assert run.manifest["model"] == "llava"
    assert run.manifest["model_revision"] == COMMIT


def test_a_local_folder_may_have_the_sign_in_its_name(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "llava@home"
    shutil.copytree(data / "tiny/llava", folder)
    assert checkpoint_folder(str(folder)) == folder


def test_a_local_folder_has_no_revision(data: Path) -> None:
    with pytest.raises(SightlineError, match=r"llava is a local folder, which has no revision 'main'"):
        checkpoint_folder(f"{data / 'tiny/llava'}@main")
