"""What a run is asked for: fields, flags and config files, places by URL, boxes under each profile."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sightline import AuditConfig, SightlineError
from sightline.auditing.audit import choose_seed, plan_audit
from sightline.auditing.config import read_config
from sightline.boxes.detectors import EasyOcr
from sightline.places.listing import is_remote, place
from tests.refusals import Refused
from tests.warm_python import run_python

NEEDED = "model: m\nprobes: p.jsonl\nimages: i\nout: o\n"
GIVEN = {"model": "m", "probes": Path("p"), "images": Path("i"), "out": Path("o"), "arms": ["full"]}
PLACES = ("probes", "images", "out")


Read = Callable[..., AuditConfig]
"""(text of a config file, **flags)"""


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str, **flags: Any) -> AuditConfig:
        (tmp_path / "run.yaml").write_text(text)
        return read_config(tmp_path / "run.yaml", flags)

    return read


def test_keys_are_spelled_as_fields_or_as_their_flags(read: Read) -> None:
    plural = read(NEEDED + "arms: [full, 'target:0.3']\nimage_options: {max_pixels: 3}\nbox_source: missing\n")
    assert plural == read(NEEDED + "arm: [full, 'target:0.3']\nimage-option: {max_pixels: 3}\nbox-source: missing\n")
    single = read(NEEDED + "arm: full\nimport: mine.py\n")
    assert (single.arms, single.imports) == (["full"], [Path("mine.py")])


def test_places_of_a_file_may_be_urls(read: Read) -> None:
    there = "model: m\narms: [full]\nprobes: memory://b/p.jsonl\nimages: memory://b/i\nout: runs/first\n"
    settings = read(there, out="memory://b/runs")
    assert [str(getattr(settings, name)) for name in PLACES] == [f"memory://b/{x}" for x in ("p.jsonl", "i", "runs")]


def test_flags_win_over_the_file_unless_they_say_nothing(read: Read) -> None:
    seeded = NEEDED + "arms: [full]\nseed: 3\n"
    assert read(seeded, seed=None).seed == 3
    assert read(seeded, seed=4, arms=[]).seed == 4


@pytest.mark.parametrize(("content", "words"), [
    (b"arms: [full]\narm: full\n", "names 'arms' twice, once as 'arm'"),
    (b"\xff\xfe\x00model: m", "is not UTF-8 text"),
    (b"1: 2\n", "1 is no option"),
    (b"? [a, b]\n: c\n", "not valid YAML"),
    (b"model: !!python/object:os.system x\n", "not valid YAML"),
    (b"[" * 5000, "nested too deeply"),
    (b"- model\n", "must hold a mapping of options"),
    (b"model: [unclosed\n", "not valid YAML"),
    (b"model: 2001-99-99\n", "not valid YAML"),
    (b"model: &a [*a]\n", "--model"),
    (b"limit: .nan\n", "--limit"),
])  # fmt: skip
def test_a_file_that_is_no_config_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes(content)
    flags = {name: value for name, value in GIVEN.items() if name.removesuffix("s").encode() not in content}
    with pytest.raises(SightlineError) as caught:
        read_config(file, flags)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_missing_misspelt_or_of_another_type_is_refused(tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("modle: m\n")
    refused("modle", read_config, file, GIVEN)
    refused("--probes is needed", read_config, None, {"model": "m"})
    refused("cannot read config TMP: Is a directory", read_config, tmp_path, {})
    refused("none.yaml: No such file", read_config, tmp_path / "none.yaml", {})
    (tmp_path / "open.yaml").write_text("model: x\narms: [full\nlimit: 3\n")
    refused("is not valid YAML: line 3: ", read_config, tmp_path / "open.yaml", {})
    with pytest.raises(ValueError, match="there is no part 3/2"):
        AuditConfig(**GIVEN, part="3/2")
    for extra, flags in (("", {}), ("", {"image_options": {"max_tiles": 2}}), ("max_tiles: 2\n", {})):
        file.write_text(f"image_options: [max_tiles]\n{extra}")
        refused("--image-option: ['max_tiles'] is not a mapping", read_config, file, {**GIVEN, **flags})


def test_a_gpu_gets_longer_stretches_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for device, gpu, stretch in (
        ("auto", False, (8, 16384, 512)),
        ("auto", True, (64, 32768, 4096)),
        ("cpu", True, (8, 16384, 512)),
        ("cuda:1", False, (64, 32768, 4096)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr("torch.cuda.is_available", lambda gpu=gpu: gpu)
            config = AuditConfig(**GIVEN, device=device)
            assert (config.shard_images, config.batch_tokens, config.shard_probes) == stretch, device
            assert AuditConfig(**GIVEN, device=device, shard_images=3).shard_images == 3


def test_a_seed_is_that_of_the_profile_unless_given_or_begun_with() -> None:
    assert choose_seed(AuditConfig(**GIVEN), {}) == 17
    assert choose_seed(AuditConfig(**GIVEN, profile="artifact"), {}) == 13
    assert choose_seed(AuditConfig(**GIVEN, profile="artifact", seed=17), {}) == 17
    assert choose_seed(AuditConfig(**GIVEN, profile="artifact"), {"seed": 17}) == 17, "a run goes on as it was begun"
    assert choose_seed(AuditConfig(**GIVEN, seed=5), {"seed": 17}) == 5


def test_interventions_may_be_separated_by_commas() -> None:
    for given in ("deletion, occlusion", ["deletion,occlusion"], ["deletion", "occlusion"]):
        assert AuditConfig(**GIVEN, interventions=given).interventions == ["deletion", "occlusion"]


def test_a_profile_decides_which_detections_count(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EasyOcr, "require", classmethod(lambda cls: "1.7"))
    settings = {
        "model": str(data / "tiny" / "qwen3vl"),
        "probes": data / "recorded_run" / "probes.jsonl",
        "images": data / "mini_textocr",
        "out": tmp_path / "run",
        "arms": ["protected:0.4"],
    }
    profiles: list[tuple[Any, str, str]] = [
        ("paper", "easyocr", "easyocr"),
        ("artifact", "easyocr", "easyocr:confidence=0.2"),
        ("artifact", "easyocr:confidence=0", "easyocr:confidence=0"),
    ]
    for profile, asked, meant in profiles:
        job = plan_audit(AuditConfig(**settings, profile=profile, box_source=asked))
        assert job.config.box_source == meant


@pytest.mark.parametrize("name", PLACES)
def test_a_field_takes_a_url_or_a_path_and_keeps_it(name: str, refused: Refused) -> None:
    for given in ("memory://b/x", place("memory://b/x")):
        settings = AuditConfig(**{**GIVEN, name: given})
        found = getattr(settings, name)
        assert is_remote(found)
        assert str(found) == json.loads(settings.model_dump_json())[name] == "memory://b/x"
        assert str(settings.model_dump()[name]) == "memory://b/x"
        assert getattr(pickle.loads(pickle.dumps(settings)), name) == found
        assert getattr(AuditConfig(**settings.model_dump()), name) == found
    for path in ("a/b", Path("a/b")):
        assert getattr(AuditConfig(**{**GIVEN, name: path}), name) == Path("a/b")
    refused(f"--{name}: 5 is not a path", read_config, None, {**GIVEN, name: 5})


def test_a_place_that_cannot_be_is_one_line_on_the_command_line() -> None:
    for words, line in (
        (["run", "--out", "nowhere://b/x"], "error: nowhere://b/x: nobody knows the scheme nowhere://"),
        (["report", "nowhere://b/x"], "error: nowhere://b/x: nobody knows the scheme nowhere://"),
        (["rows", "memory://b/none"], "error: memory://b/none is not a run folder: it has no run.json"),
        (["gate", "runs", "memory://b/none", "--rule", "accuracy(full) > 0"], "error: "),
    ):
        done = run_python(["-m", "sightline", *words])
        assert done.returncode == 2
        assert done.stderr.startswith(line)
        assert len(done.stderr.strip().splitlines()) == 1
    assert run_python(["-m", "sightline", "run", "--help"]).stdout.count("PATH_OR_URL") == len(PLACES)
