"""Bad input: one clear line that says what, where and what to do; nothing already computed is lost."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from sightline import cli
from sightline.auditing.audit import audit
from sightline.backbones.language import LanguageModel
from sightline.errors import SightlineError
from tests.integration.test_resume import command


def refused(work: Callable[[], object], *words: str) -> None:
    with pytest.raises(SightlineError) as caught:
        work()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def with_probe(path: Path, out: Path, **changes: Any) -> Path:
    """A probe file with one changed probe and a header without digest, so that only the change is wrong."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if "sightline_probes" not in row]
    rows[0] = {**rows[0], **changes}
    out.write_text("".join(json.dumps(row) + "\n" for row in [{"sightline_probes": 1}, *rows]), encoding="utf-8")
    return out


@pytest.fixture
def images(data: Path, tmp_path: Path, mini_probes: Path) -> Path:
    """A private copy of the first images, to be damaged."""
    root = tmp_path / "pictures"
    for line in mini_probes.read_text(encoding="utf-8").splitlines()[1:9]:
        name = json.loads(line)["image"]
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(data / "mini_textocr" / name, root / name)
    return root


def first_image(mini_probes: Path) -> str:
    return str(json.loads(mini_probes.read_text(encoding="utf-8").splitlines()[1])["image"])


def test_missing_image(config: Any, images: Path, mini_probes: Path) -> None:
    (images / first_image(mini_probes)).unlink()
    refused(lambda: audit(config("llava", images=images)), first_image(mini_probes), "does not exist")


def test_truncated_image_is_named_and_finished_shards_stay(config: Any, images: Path, mini_probes: Path) -> None:
    names = [json.loads(line)["image"] for line in mini_probes.read_text(encoding="utf-8").splitlines()[1:7:2]]
    victim = images / names[2]
    data = victim.read_bytes()
    victim.write_bytes(data[: len(data) // 2])
    settings = config("llava", images=images, shard_images=1)
    refused(lambda: audit(settings), names[2])
    done = list((settings.out / "rows").glob("*/*.parquet"))
    assert done, "shards before the damaged image are kept"
    victim.write_bytes(data)
    assert audit(settings).missing == 0


def test_image_bomb(config: Any, images: Path, mini_probes: Path) -> None:
    Image.new("1", (20000, 20000)).save(images / first_image(mini_probes), format="PNG")
    refused(lambda: audit(config("llava", images=images)), first_image(mini_probes), "pixels")


@pytest.mark.parametrize("name", ["../outside.jpg", "/etc/passwd"])
def test_image_name_leaving_the_root(config: Any, mini_probes: Path, tmp_path: Path, name: str) -> None:
    probes = with_probe(mini_probes, tmp_path / "p.jsonl", image=name)
    refused(lambda: audit(config("llava", probes=probes)), name)


def test_box_outside_the_image(config: Any, mini_probes: Path, tmp_path: Path) -> None:
    probes = with_probe(mini_probes, tmp_path / "p.jsonl", regions=[[0.5, 0.5, 1.5, 0.6]])
    refused(lambda: audit(config("llava", probes=probes)), "1.5")


def test_empty_and_duplicate_ids(config: Any, mini_probes: Path, tmp_path: Path) -> None:
    second = json.loads(mini_probes.read_text(encoding="utf-8").splitlines()[2])["id"]
    probes = with_probe(mini_probes, tmp_path / "p.jsonl", id="")
    refused(lambda: audit(config("llava", probes=probes)), "id")
    probes = with_probe(mini_probes, tmp_path / "p.jsonl", id=second)
    refused(lambda: audit(config("llava", probes=probes)), second)


def test_probe_file_with_a_wrong_digest(config: Any, mini_probes: Path, tmp_path: Path) -> None:
    text = mini_probes.read_text(encoding="utf-8")
    changed = tmp_path / "changed.jsonl"
    changed.write_text(text.replace('"label": "yes"', '"label": "no"', 1), encoding="utf-8")
    refused(lambda: audit(config("llava", probes=changed)), "digest")


def test_unknown_selector_and_bad_budgets(config: Any) -> None:
    refused(lambda: audit(config("llava", arms=["targt:0.3"])), "targt", "did you mean 'target'")
    refused(lambda: audit(config("llava", arms=["target:1.5"])), "target:1.5", "(0, 1]")
    refused(lambda: audit(config("llava", arms=["target:0"])), "(0, 1]")
    refused(lambda: audit(config("llava", arms=["target"])), "budget")
    refused(lambda: audit(config("llava", arms=["target:0.3:wieght=1"])), "wieght", "weight")


def test_model_folder_of_another_architecture(config: Any, data: Path, tmp_path: Path) -> None:
    refused(lambda: audit(config("llava", model=str(data / "tiny" / "clip"))), "clip", "llava")
    refused(lambda: audit(config("llava", model=str(tmp_path / "nowhere"))), "nowhere", "does not exist")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(lambda: audit(config("llava", model=str(empty))), "config.json")


def test_an_image_option_of_another_architecture(config: Any) -> None:
    line = "llava has no image option 'max_pixels'; it has crop_blind"
    refused(lambda: audit(config("llava", image_options={"max_pixels": 100352})), line)
    former = [*command(config("llava")), "--max-pixels", "100352"]
    done = subprocess.run(former, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"error: {line}"


def test_pickle_weights_are_not_loaded(config: Any, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pickled"
    shutil.copytree(data / "tiny" / "llava", folder, ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "pytorch_model.bin").write_bytes(b"not loaded")
    refused(lambda: audit(config("llava", model=str(folder))), "safetensors")


def test_a_method_the_backbone_cannot_serve_is_refused_by_name(config: Any) -> None:
    refused(lambda: audit(config("internvl", arms=["visionzip:0.3"])), "visionzip", "InternVL", "class token")
    refused(lambda: audit(config("llava", arms=["anchorprune:0.3"])), "anchorprune", "--clip")


def test_run_folder_of_another_model_dtype_or_probes(config: Any, mini_probes: Path, tmp_path: Path) -> None:
    audit(config("llava", arms=["full"], limit=1))
    refused(lambda: audit(config("qwen3vl", arms=["full"], limit=1)), "weight_digest", "--out")
    refused(lambda: audit(config("llava", arms=["full"], limit=1, dtype="bfloat16")), "dtype", "bfloat16")
    other = with_probe(mini_probes, tmp_path / "p.jsonl", question="Is it there?")
    refused(lambda: audit(config("llava", arms=["full"], limit=1, probes=other)), "probe_digest")


def test_a_folder_that_is_no_run_is_left_alone(config: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("precious")
    refused(lambda: audit(config("llava")), "not a run folder", "--out")
    assert (tmp_path / "run" / "thesis.tex").read_text() == "precious"


def test_losses_that_are_not_numbers(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = LanguageModel.run
    calls = {"n": 0}

    def poisoned(self: LanguageModel, batch: Any, cutter: Any = None, cache: Any = None) -> Any:
        result = plain(self, batch, cutter, cache)
        calls["n"] += 1
        if calls["n"] > 3:
            result.hidden = torch.full_like(result.hidden, float("nan"))
        return result

    monkeypatch.setattr(LanguageModel, "run", poisoned)
    settings = config("llava", shard_images=1)
    refused(lambda: audit(settings), "not a number", "--dtype float32")
    assert list((settings.out / "rows").glob("*/*.parquet")), "shards before the failure are kept"


def test_disk_full_while_writing(config: Any) -> None:
    """The file size limit stands in for a full disk: the same failing write, without filling one."""
    settings = config("llava", shard_images=1)

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    limited = subprocess.run(command(settings), capture_output=True, text=True, preexec_fn=small_files)
    assert limited.returncode == 2
    assert "Traceback" not in limited.stderr
    assert limited.stderr.strip().splitlines()[-1].startswith("error: cannot write")
    assert audit(settings).missing == 0


def test_no_traceback_unless_asked(config: Any) -> None:
    settings = config("llava", arms=["targt:0.3"])
    short = subprocess.run(command(settings), capture_output=True, text=True)
    assert short.returncode == 2
    assert len(short.stderr.strip().splitlines()) == 1
    words = command(settings)
    words.insert(words.index("run"), "--debug")
    full = subprocess.run(words, capture_output=True, text=True)
    assert "Traceback" in full.stderr


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB free.\nMore"),
            "error: CUDA out of memory. Tried to allocate 2.00 GiB; use a smaller model, dtype, image size or batch",
        ),
        (MemoryError(), "error: out of memory; use a smaller model, dtype, image size or batch"),
    ],
)
def test_memory_that_runs_out_anywhere_is_one_line(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    monkeypatch.setattr(sys, "argv", ["sightline", "run"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == line + "\n"
    monkeypatch.setattr(sys, "argv", ["sightline", "--debug", "run"])
    with pytest.raises(type(error)):
        cli.main()


def test_other_errors_of_the_library_show_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        cli.main()


def test_help_is_quick_and_does_not_import_torch() -> None:
    code = (
        "import sys; sys.argv = ['sightline', '--help']\n"
        "from sightline.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "run" in done.stdout
