"""What a run is asked for: fields, flags and config files, places by URL, boxes under each profile."""

import json
import pickle
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


def test_keys_are_spelled_as_fields_or_as_their_flags_and_places_may_be_urls(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(NEEDED + "arms: [full, 'target:0.3']\nimage_options: {max_pixels: 3}\nbox_source: missing\n")
    plural = read_config(file, {})
    file.write_text(NEEDED + "arm: [full, 'target:0.3']\nimage-option: {max_pixels: 3}\nbox-source: missing\n")
    assert read_config(file, {}) == plural
    file.write_text(NEEDED + "arm: full\nimport: mine.py\n")
    single = read_config(file, {})
    assert single.arms == ["full"]
    assert single.imports == [Path("mine.py")]
    file.write_text("model: m\narms: [full]\nprobes: memory://b/p.jsonl\nimages: memory://b/i\nout: runs/first\n")
    settings = read_config(file, {"out": "memory://b/runs"})
    assert [str(getattr(settings, name)) for name in PLACES] == [f"memory://b/{x}" for x in ("p.jsonl", "i", "runs")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
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
    ],
)
def test_a_file_that_is_no_config_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes(content)
    overrides = {"probes": "p", "images": "i", "out": "o", **({} if b"model" in content else {"model": "m"})}
    with pytest.raises(SightlineError) as caught:
        read_config(file, {**overrides, **({} if b"arm" in content else {"arms": ["full"]})})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


GIVEN = {"model": "m", "probes": Path("p"), "images": Path("i"), "out": Path("o"), "arms": ["full"]}


def test_flags_win_over_the_file_and_what_is_wrong_is_refused(tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model: m\nprobes: p.jsonl\nimages: i\nout: o\narms: [full]\nseed: 3\n")
    assert read_config(file, {"seed": None}).seed == 3
    assert read_config(file, {"seed": 4, "arms": []}).seed == 4
    file.write_text("modle: m\n")
    refused("modle", read_config, file, {"model": "m", "probes": "p", "images": "i", "out": "o", "arms": ["full"]})
    refused("--probes is needed", read_config, None, {"model": "m"})
    refused("cannot read config TMP: Is a directory", read_config, tmp_path, {})
    refused("none.yaml: No such file", read_config, tmp_path / "none.yaml", {})
    with pytest.raises(ValueError, match="there is no part 3/2"):
        AuditConfig(**GIVEN, part="3/2")
    file.write_text("image_options: [max_tiles]\n")
    for overrides in ({}, {"image_options": {"max_tiles": 2}}):
        refused("--image-option: Input should be a valid dictionary", read_config, file, {**GIVEN, **overrides})
    file.write_text("image_options: [max_tiles]\nmax_tiles: 2\n")
    refused("--image-option: Input should be a valid dictionary", read_config, file, GIVEN)


@pytest.mark.parametrize(("device", "gpu", "shard", "tokens", "probes"), [
    ("auto", False, 8, 16384, 512), ("auto", True, 64, 32768, 4096),
    ("cpu", True, 8, 16384, 512), ("cuda:1", False, 64, 32768, 4096),
])  # fmt: skip
def test_a_gpu_gets_longer_stretches_of_work(
    monkeypatch: pytest.MonkeyPatch, device: str, gpu: bool, shard: int, tokens: int, probes: int
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    config = AuditConfig(**GIVEN, device=device)
    assert (config.shard_images, config.batch_tokens, config.shard_probes) == (shard, tokens, probes)
    assert AuditConfig(**GIVEN, device=device, shard_images=3).shard_images == 3


def test_the_artifact_profile_has_its_own_seed_and_interventions_may_be_separated_by_commas() -> None:
    assert choose_seed(AuditConfig(**GIVEN), {}) == 17
    assert choose_seed(AuditConfig(**GIVEN, profile="artifact"), {}) == 13
    assert choose_seed(AuditConfig(**GIVEN, profile="artifact", seed=17), {}) == 17
    assert choose_seed(AuditConfig(**GIVEN, profile="artifact"), {"seed": 17}) == 17, "a run goes on as it was begun"
    assert choose_seed(AuditConfig(**GIVEN, seed=5), {"seed": 17}) == 5
    for given in ("deletion, occlusion", ["deletion,occlusion"], ["deletion", "occlusion"]):
        assert AuditConfig(**GIVEN, interventions=given).interventions == ["deletion", "occlusion"]


PLACES = ("probes", "images", "out")


def with_places(**changes: Any) -> AuditConfig:
    return AuditConfig(**{"model": "m", "arms": ["full"], "device": "cpu", **dict.fromkeys(PLACES, "local"), **changes})


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("given", [str, place])
def test_a_field_takes_a_url_or_a_path_and_keeps_it(name: str, given: Any) -> None:
    settings = with_places(**{name: given("memory://b/x")})
    found = getattr(settings, name)
    assert is_remote(found)
    assert str(found) == "memory://b/x"
    assert json.loads(settings.model_dump_json())[name] == "memory://b/x"
    assert str(settings.model_dump()[name]) == "memory://b/x"
    assert getattr(pickle.loads(pickle.dumps(settings)), name) == found
    assert getattr(AuditConfig(**settings.model_dump()), name) == found


@pytest.mark.parametrize("name", PLACES)
def test_a_path_stays_a_path(name: str) -> None:
    assert getattr(with_places(), name) == Path("local")
    assert getattr(with_places(**{name: Path("a/b")}), name) == Path("a/b")
    with pytest.raises(SightlineError, match=f"^--{name}: Input is not a valid path"):
        read_config(None, {"model": "m", "arms": ["full"], **dict.fromkeys(PLACES, "local"), name: 5})


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["run", "--out", "nowhere://b/x"], "error: nowhere://b/x: nobody knows the scheme nowhere://"),
        (["report", "nowhere://b/x"], "error: nowhere://b/x: nobody knows the scheme nowhere://"),
        (["rows", "memory://b/none"], "error: memory://b/none is not a run folder: it has no run.json"),
        (["gate", "runs", "memory://b/none", "--rule", "accuracy(full) > 0"], "error: "),
    ],
)
def test_a_place_that_cannot_be_is_one_line_on_the_command_line(words: list[str], line: str) -> None:
    done = run_python(["-m", "sightline", *words])
    assert done.returncode == 2
    assert done.stderr.startswith(line)
    assert len(done.stderr.strip().splitlines()) == 1
    assert run_python(["-m", "sightline", "run", "--help"]).stdout.count("PATH_OR_URL") == len(PLACES)


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EasyOcr, "require", classmethod(lambda cls: "1.7"))


def planned_config(data: Path, out: Path, **options: Any) -> AuditConfig:
    return AuditConfig(
        model=str(data / "tiny" / "qwen3vl"),
        probes=data / "recorded_run" / "probes.jsonl",
        images=data / "mini_textocr",
        out=out,
        arms=["protected:0.4"],
        **options,
    )


@pytest.mark.parametrize(
    ("profile", "asked", "meant"),
    [
        ("paper", "easyocr", "easyocr"),
        ("artifact", "easyocr", "easyocr:confidence=0.2"),
        ("artifact", "easyocr:confidence=0", "easyocr:confidence=0"),
    ],
)
def test_a_profile_decides_which_detections_count(
    data: Path, tmp_path: Path, profile: Any, asked: str, meant: str
) -> None:
    job = plan_audit(planned_config(data, tmp_path / "run", profile=profile, box_source=asked))
    assert job.config.box_source == meant
