"""Bad input: one clear line that says what, where and what to do; nothing already computed is lost."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, cast
from unittest.mock import Mock

import pandas as pd
import pytest
import torch
from PIL import Image

from sightline import SELECTORS, Selection, Selector, TokenView, audit, cli, load_run
from sightline.backbones.general import General
from sightline.backbones.language import LanguageModel
from sightline.boxes.sources import BOX_SOURCES
from sightline.rows.source import read_source
from sightline.store.folder import RunFolder
from tests.changed_run import edited
from tests.command_line import sightline
from tests.integration.conftest import command, facts, refused_with
from tests.refusals import Refused
from tests.unit.boxes.test_sources import Sweeping
from tests.warm_python import run_python


@dataclass(frozen=True)
class Given:
    """What a user gives, free to be spoiled: probes, and a private copy of the first images."""

    folder: Path
    data: Path
    probes: Path

    @property
    def images(self) -> Path:
        return self.folder / "pictures"

    @property
    def names(self) -> list[str]:
        """Of images, as the probes ask about them."""
        lines = self.probes.read_text(encoding="utf-8").splitlines()[1:]
        return list(dict.fromkeys(json.loads(line)["image"] for line in lines))

    def with_probe(self, **changes: Any) -> dict[str, Any]:
        """One changed probe, and a header without digest, so that only the change is wrong."""
        rows = [json.loads(line) for line in self.probes.read_text(encoding="utf-8").split("\n") if line][1:]
        rows = [{"sightline_probes": 1}, {**rows[0], **changes}, *rows[1:]]
        return self.written("probes", "p.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))

    def with_image(self, spoil: Callable[[Path], object]) -> dict[str, Any]:
        spoil(self.images / self.names[0])
        return {"images": self.images}

    def written(self, setting: str, name: str, text: str) -> dict[str, Any]:
        """The setting that names such a file."""
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return {setting: [file] if setting == "imports" else file}

    def damage(self, index: int) -> tuple[str, bytes]:
        """Cuts the body of the image of that index in half, header and all else as they were; name and old content."""
        file = self.images / self.names[index]
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
        return self.names[index], content

    def tiny(self, name: str) -> dict[str, Any]:
        return {"model": str(self.data / "tiny" / name)}

    def pickled(self) -> dict[str, Any]:
        folder = self.folder / "pickled"
        shutil.copytree(self.data / "tiny" / "llava", folder, ignore=shutil.ignore_patterns("*.safetensors"))
        (folder / "pytorch_model.bin").write_bytes(b"not loaded")
        return {"model": str(folder)}


@pytest.fixture
def given(data: Path, tmp_path: Path, mini_probes: Path) -> Given:
    made = Given(tmp_path, data, mini_probes)
    for name in made.names[:4]:
        (made.images / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(data / "mini_textocr" / name, made.images / name)
    return made


REFUSED: dict[str, dict[str, Any] | Callable[[Given], dict[str, Any]]] = {
    "does not exist": lambda given: given.with_image(Path.unlink),
    "pixels": lambda given: given.with_image(lambda file: Image.new("1", (20000, 20000)).save(file, format="PNG")),
    "../outside.jpg": lambda given: given.with_probe(image="../outside.jpg"),
    "1.5": lambda given: given.with_probe(regions=[[0.5, 0.5, 1.5, 0.6]]),
    "id": lambda given: given.with_probe(id=""),
    "digest": lambda given: given.written("probes", "p.jsonl", given.probes.read_text().replace('"yes"', '"no"', 1)),
    "did you mean 'target'": {"arms": ["targt:0.3"]},
    "cannot read nowhere.jsonl": {"arms": ["masks:file=nowhere.jsonl"]},
    "has no image-text type 'clip'": lambda given: given.tiny("clip"),
    "lava does not exist": lambda given: given.tiny("lava"),
    "config.json": lambda given: {"model": str(given.written("", "empty/x", "")[""].parent)},
    "safetensors": Given.pickled,
    "llava has no image option 'max_pixels'; it has crop_blind": {"image_options": {"max_pixels": 100352}},
    "prumerge cannot run on InternVL": lambda given: {"arms": ["prumerge:0.3"], **given.tiny("internvl")},
    "scope cannot run on Qwen3VL": lambda given: {"arms": ["scope:0.3"], **given.tiny("qwen3vl")},
    "nuwa cannot run on Llava": {"arms": ["nuwa:0.3"]},
    "--clip": {"arms": ["anchorprune:0.3"]},
    "unknown --device 'gpu'": {"device": "gpu"},
    "unknown --device 'meta'": {"device": "meta"},
    "unknown launcher 'nonsense'": {"launcher": "nonsense"},
    "unknown scorer 'nonsense'": {"scorer": "nonsense"},
    "--workers is for --launcher local and ray": {"workers": 2},
    "--workers is for --launcher local and ray;": {"workers": 2, "launcher": "queue"},
    "the run has 3 shards, so that this part is empty": {"shard_images": 1, "part": "4/4"},
    "fastv prunes between layers, which are one in a graph": {"arms": ["full", "fastv:0.5"], "execution": "graph"},
    "--import nowhere.py": {"imports": ["nowhere.py"]},
    "No module named": lambda given: given.written("imports", "broken.py", "import no_such_module\n"),
    "not a run folder": lambda given: {"out": given.written("", "mine/thesis.tex", "precious")[""].parent},
}
"""What the sentence is about -> what is wrong. Whole sentences: tests/refusals.yaml."""
OF_LIBRARIES = ("pixels", "has no image-text type 'clip'")
"""Sentences with words of Pillow, or with the version of transformers."""


@pytest.mark.parametrize("about", REFUSED)
def test_what_is_wrong_is_said_in_one_line_before_a_model_is_loaded(
    config: Any, given: Given, about: str, refused: Refused, request: pytest.FixtureRequest
) -> None:
    spoil = REFUSED[about]
    if about != "safetensors":  # whoever loads them says so
        request.getfixturevalue("no_weights")
    settings = config("llava", **{"arms": ["full"], **(spoil(given) if callable(spoil) else spoil)})
    if about in OF_LIBRARIES:
        refused_with(lambda: audit(settings), about)
    else:
        refused(about, audit, settings)
    if about == "not a run folder":
        assert (settings.out / "thesis.tex").read_text() == "precious"


def test_a_bad_image_is_an_exit_code_unless_it_is_to_be_skipped(config: Any, given: Given, tmp_path: Path) -> None:
    settings = config("llava", images=given.images, limit=3, shard_images=2)
    name, _ = given.damage(1)
    failed = run_python(command(settings))
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr
    assert name in failed.stderr.splitlines()[-1]
    assert "--skip-bad-images" in failed.stderr.splitlines()[-1]
    skipped = settings.model_copy(update={"out": tmp_path / "skipped", "skip_bad_images": True})
    done = run_python(command(skipped))
    assert done.returncode == 0, done.stderr
    assert f"note: 1 image could not be read ({name}), so that 2 probes have no rows" in done.stderr
    run = load_run(skipped.out)
    assert list(RunFolder(skipped.out).manifest()["bad_images"]) == [name]
    assert run.unfinished == ""
    assert run.left_out in read_source([run.path]).notes


BAD = {
    "damaged, in a shard of its own": (1, None, "", "is damaged"),
    "damaged, beside another": (2, None, "", "is damaged"),
    "damaged, in the one shard": (4, None, "", "is damaged"),
    "too small": (2, (20, 20), "", "makes a single visual token, which the model's own code cannot read"),
    "not for the processor": (2, (30, 50), "image_inputs", "IndexError: list index out of range"),
    "not for the tower": (2, (20, 50), "features", "RuntimeError: shape '[3, 805, 32]' is invalid"),
}
"""What an image is -> images of a shard, its size where it is whole but unreadable, what fails on it, what is said."""


def fail_for(size: tuple[int, int], where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own code fails over an image of this size, whose limits need no help."""
    own_code = getattr(General, where)

    def failing(backbone: General, shown: Any) -> Any:
        if where == "image_inputs" and shown.size == size:
            raise IndexError("list index out of range")
        if where == "features" and shown["image_sizes"][0].tolist() == [56, 28]:
            raise RuntimeError("shape '[3, 805, 32]' is invalid for input of size 77312")
        return own_code(backbone, shown)

    monkeypatch.setattr(General, where, failing)


@pytest.mark.parametrize("what", BAD)
def test_a_damaged_image_costs_its_own_probes_and_is_made_up_for_when_mended(
    config: Any, given: Given, zoo: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    shard_images, size, where, reason = BAD[what]
    images = given.images
    settings = config("llava", images=images, limit=4, shard_images=shard_images)
    if size is not None:
        settings = settings.model_copy(update={"model": str(zoo("mistral3"))})
    whole = audit(settings.model_copy(update={"out": settings.out.with_name("whole")}))
    rows = facts(whole.frame())
    name, data = given.damage(2)
    if size is not None:
        Image.new("RGB", size, (90, 120, 30)).save(images / name)
        if where:
            fail_for(size, where, monkeypatch)
    bad = audit(settings)
    assert list(bad.bad_images) == [name]
    assert bad.bad_images[name].startswith(f"image {images / name}")
    assert reason in bad.bad_images[name]
    assert f"1 image could not be read ({name}), so that 2 probes have no rows" in bad.unfinished
    about = {probe["id"] for probe in whole.probes if probe["image"] == name}
    kept = rows[~rows["probe_id"].isin(about)].reset_index(drop=True)
    assert facts(bad.frame())["probe_id"].tolist() == kept["probe_id"].tolist()
    if size is not None:
        before = {file: file.stat().st_mtime_ns for file in (settings.out / "rows").rglob("*.parquet")}
        more = audit(settings.model_copy(update={"arms": [*settings.arms, "grid:0.3"], "skip_bad_images": True}))
        assert list(more.bad_images) == [name], "the same file is not tried in vain"
        assert {file: file.stat().st_mtime_ns for file in before} == before, "what was computed stays"
        assert more.unfinished == ""
    (images / name).write_bytes(data)
    mended = audit(settings)
    assert mended.bad_images == {}
    assert mended.unfinished == ""
    pd.testing.assert_frame_equal(facts(mended.frame().query("arm != 'grid:0.3'")), rows)
    assert set(mended.images.column("image").to_pylist()) == set(whole.images.column("image").to_pylist())


def test_where_images_are_searched_for_boxes_a_damaged_one_is_found_before_all_else(
    config: Any, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BOX_SOURCES, "_entries", {**BOX_SOURCES._entries, "sweeping": Sweeping()})
    name, _ = given.damage(1)
    settings = config("llava", images=given.images, limit=3, shard_images=2, box_source="sweeping")
    with monkeypatch.context() as without:
        without.setattr("sightline.auditing.worker.load_backbone", lambda *_, **__: pytest.fail("a model was loaded"))
        refused_with(lambda: audit(settings), name, "is damaged", "--skip-bad-images")
    run = audit(settings.model_copy(update={"skip_bad_images": True}))
    assert run.left_out == f"1 image could not be read ({name}), so that 2 probes have no rows"
    assert len(run.frame()["image_id"].unique()) == 2
    assert run.missing == 0


def test_an_image_that_is_damaged_later_or_missing_costs_no_other_row(
    config: Any, given: Given, tmp_path: Path
) -> None:
    settings = config("llava", images=given.images, limit=2, arms=["full"])
    audit(settings)
    name, _ = given.damage(0)
    refused_with(lambda: audit(settings.model_copy(update={"arms": ["center:0.3"]})), name, "restore the file")
    without = given.with_image(Path.unlink)
    run = audit(config("llava", limit=2, skip_bad_images=True, out=tmp_path / "missing", **without))
    assert list(run.bad_images) == [name], "left out up front"
    assert len(run.frame()["image_id"].unique()) == 1


def test_a_run_folder_of_another_run_is_refused_before_a_model_is_loaded(
    config: Any, given: Given, request: pytest.FixtureRequest
) -> None:
    audit(config("llava", arms=["full"], limit=1))
    request.getfixturevalue("no_weights")
    for model, changes, words in (
        ("qwen3vl", {}, ["holds a run of llava (llava), this command has qwen3vl (qwen3_vl)", "--out"]),
        ("llava", {"dtype": "bfloat16"}, ["dtype", "bfloat16"]),
        ("llava", given.with_probe(question="Is it there?"), ["over other probes"]),
        ("llava", {"limit": 2}, ["with limit 1, this command has 2"]),
    ):
        settings = config(model, **{"arms": ["full"], "limit": 1, **changes})
        refused_with(partial(audit, settings), *words)


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
    refused_with(lambda: audit(settings), "not a number", "--dtype float32")
    assert list((settings.out / "rows").glob("*/*.parquet")), "shards before the failure are kept"


def test_disk_full_while_writing(config: Any) -> None:
    """The file size limit stands in for a full disk: the same failing write, without filling one."""
    settings = config("llava", shard_images=1)
    _, script, *words = command(settings)
    small_files = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
    # Nor may it write bytecode, which Python cuts without a word: every later process would fail to import it.
    small_files += "import sys; sys.dont_write_bytecode = True\n"
    limited = run_python(["-c", small_files + script, *words])
    assert limited.returncode == 2
    assert "Traceback" not in limited.stderr
    assert limited.stderr.strip().splitlines()[-1].startswith("error: cannot write")
    assert audit(settings).missing == 0


SMALLER = "use a smaller model, dtype, image size or batch"
SHORT = "CUDA out of memory. Tried to allocate 2.00 GiB"


def test_memory_that_runs_out_anywhere_is_one_line_and_other_errors_show_themselves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, line in (
        (torch.cuda.OutOfMemoryError(f"{SHORT}. GPU 0 has 1 GiB free.\nMore"), f"error: {SHORT}; {SMALLER}\n"),
        (MemoryError(), f"error: out of memory; {SMALLER}\n"),
    ):
        monkeypatch.setattr(sys, "argv", ["sightline", "run"])
        with pytest.raises(SystemExit) as stopped:
            cli.main(Mock(side_effect=error))
        assert (stopped.value.code, capsys.readouterr().err) == (2, line)
        monkeypatch.setattr(sys, "argv", ["sightline", "--debug", "run"])
        with pytest.raises(type(error)):
            cli.main(Mock(side_effect=error))
    monkeypatch.setattr(sys, "argv", ["sightline", "run"])
    with pytest.raises(RuntimeError, match="shapes do not match"):
        cli.main(Mock(side_effect=RuntimeError("shapes do not match")))


def test_help_is_quick_and_does_not_import_torch() -> None:
    for words, said in ((["--help"], "run"), (["run", "--help"], "--image-option")):
        code = (
            f"import sys; sys.argv = ['sightline', *{words}]\n"
            "from sightline.cli import main\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\n"
            "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert said in done.stdout


@pytest.mark.usefixtures("no_weights")
def test_a_slip_in_a_relative_model_folder_is_not_looked_up_on_the_hub(
    config: Any, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*_: Any, **__: Any) -> None:
        pytest.fail("the hub was asked")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    settings = {name: Path(getattr(config("llava"), name)).resolve() for name in ("probes", "images", "out")}
    monkeypatch.chdir(data)
    refused_with(
        lambda: audit(config("llava", model="tiny/lava", **settings)), "tiny/lava does not exist", "tiny/llava?"
    )


WRITING = (
    "demo --out OUT",
    "controls build occlusion PROBES --out OUT",
    "report RUN --out OUT --draws 100",
    "rows RUN --out OUT/rows.csv",
    "bench select --method grid --n 16 --batch 1 --csv OUT/rows.csv",
)


@pytest.mark.usefixtures("no_weights")
def test_a_folder_that_cannot_be_or_may_not_be_written_to_is_refused_by_every_command(
    config: Any, mini_probes: Path, small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for out in (tmp_path / name for name in ("file", "file/below", "link", "link/below")):
        refused_with(partial(audit, config("llava", out=out)), str(out), "choose another --out")
        for command_line in WRITING:
            meant = {"RUN": str(small_run), "PROBES": str(mini_probes)}
            words = [meant.get(word, word.replace("OUT", str(out))) for word in command_line.split()]
            refused_with(partial(sightline, *words), "cannot")
    assert (tmp_path / "file").read_text() == "precious"
    # Whoever runs the tests may be allowed to write everywhere, so the answer to the question is replaced.
    monkeypatch.setattr("os.access", lambda place, mode: Path(place) != tmp_path)
    refused_with(lambda: audit(config("llava", out=tmp_path / "run")), f"{tmp_path} is not writable", "--out")


CARELESS: dict[str, tuple[Callable[[int, int], Any], str]] = {
    "tensor": (lambda k, n: torch.arange(k), "returned a Tensor; it must return Selection(anchors)"),
    "none": (lambda k, n: None, "returned a NoneType"),
    "list": (lambda k, n: Selection(cast(Any, list(range(k)))), "anchors that are a list"),
    "floats": (lambda k, n: Selection(torch.arange(k).float()), "of float32"),
    "mix": (lambda k, n: Selection(torch.arange(k), mix=torch.ones(k, n, dtype=torch.long)), "a mix that is"),
    "exit": (lambda k, n: sys.exit(0), "failed (SystemExit: 0)"),
    "raise": (lambda k, n: {"shape": k}["colour"], "failed (KeyError: 'colour')"),
}
"""What somebody's selector may do wrong with a budget and a number of tokens, and what is said of it."""


@dataclass(frozen=True)
class Careless(Selector):
    how: str = "tensor"
    name: ClassVar[str] = "careless"

    def select(self, view: TokenView, k: int) -> Selection:
        return cast(Selection, CARELESS[self.how][0](k, view.tokens.shape[0]))


def test_a_selector_that_does_something_wrong_is_named_and_spoils_nothing(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    SELECTORS.names()
    monkeypatch.setattr(SELECTORS, "_entries", {**SELECTORS._entries, "careless": Careless})
    done = "center:0.3"
    for how, (_, words) in CARELESS.items():
        failing = config("llava", arms=[done, f"careless:0.3:how={how}"], limit=2)
        refused_with(partial(audit, failing), "selector careless", words)
        alone = audit(config("llava", arms=["full"], limit=2))
        assert alone.arms == [done, "full"]
        assert alone.missing == 0
        assert words in alone.manifest["set_aside"][failing.arms[1] if how != "tensor" else "careless:0.3"]
    monkeypatch.setattr(Careless, "select", lambda self, view, k: Selection(torch.arange(k)))
    again = audit(config("llava", arms=["careless:0.3"], limit=2))
    assert again.arms == [done, "full", "careless:0.3"], "an arm that failed is tried again when it is named"
    assert again.missing == 0
    assert "careless:0.3" not in again.manifest["set_aside"]


def test_an_arm_that_an_earlier_release_accepted_and_never_ran_does_not_stop_others(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = config("llava", arms=["full"], limit=1)
    audit(settings)
    edited(settings.out, arms=["full", "hybrid:0.3:core=nan"])
    assert audit(config("llava", arms=["center:0.3"], limit=1)).arms == ["full", "center:0.3"]
    assert "note: hybrid:0.3:core=nan of an earlier command is left out" in capsys.readouterr().err


def test_line_ends_that_only_unicode_knows_may_stand_in_a_question(config: Any, given: Given, tmp_path: Path) -> None:
    question = 'Does the image\u2028contain\u2029the exact\u0085text "A"?'
    run = audit(config("llava", **given.with_probe(question=question), arms=["full"], limit=2))
    assert run.probes[0]["question"] == question
    sightline("gate", run.path, "--rule", "accuracy(full) > 0", code=1)
    sightline("report", run.path, "--out", tmp_path / "r", "--draws", 100)


def test_a_budget_of_all_tokens_and_controls_that_nobody_named_are_announced_once(
    config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for model, arm, why in (
        ("llava", "center:100000t", "its budget is larger"),
        ("internvl", "random:5000t/tile", "no tile has more than its budget"),
    ):
        frame = audit(config(model, arms=[arm], limit=1, out=tmp_path / model)).frame()
        assert set(frame["keep"]) == {1.0}
        notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note:")]
        assert notes == [f"note: {arm} keeps all {frame['n_tokens'].iloc[0]} tokens of an image: {why}"]

    settings = config("llava", arms=["target:0.3"], limit=1, matched_controls=True)
    audit(settings)
    line = "added as matched controls: random:0.3, grid:0.3 (--no-matched-controls leaves them out)"
    assert line in capsys.readouterr().err.splitlines()
    audit(settings)
    assert "matched controls" not in capsys.readouterr().err


def test_a_selector_in_a_file_is_imported_recorded_and_held_to(config: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar\nimport torch\n"
        "from sightline.core.selection import Selection, Selector\nfrom sightline.selectors import SELECTORS\n\n"
        "@SELECTORS.register('mine')\n@dataclass(frozen=True)\nclass Mine(Selector):\n"
        "    name: ClassVar[str] = 'mine'\n"
        "    def select(self, view, k):\n        n = view.tokens.shape[0]\n"
        "        return Selection(torch.arange(n - k, n))\n"
    )
    try:
        run = audit(config("llava", arms=["mine:0.3"], imports=[file], limit=1, matched_controls=False))
        digest = f"sha256:{sha256(file.read_bytes()).hexdigest()}"
        assert run.manifest["imports"] == {"mine.py": digest}
        assert run.manifest["inputs"] == {"mine:0.3": digest}
        assert run.frame()["selector"].unique().tolist() == ["mine"]
    finally:
        del SELECTORS._entries["mine"]
