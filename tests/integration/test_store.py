"""What is on disk, under an audit that goes on: many probes on few images, damage, packs, kept scores, any answers."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from sightline import Run, audit, load_run, read_probes
from sightline.answering.scorers.spoken import Generation, Utterance
from sightline.arms import parse_arm
from sightline.auditing.launchers import LAUNCHERS
from sightline.auditing.launchers.here import Inline
from sightline.auditing.shards import Task
from sightline.backbones import prompting
from sightline.core.row import TIME_COLUMNS, row_schema
from sightline.gate.decisions import run_gate
from sightline.probes import write_probes
from sightline.report.build import build_report
from sightline.rows.picture import TEXTS
from sightline.store.folder import RunFolder, RunPlace
from sightline.store.shard_files import unpack_mask
from sightline.store.verify import compact_run, verify_folder
from tests.integration.conftest import facts
from tests.refusals import Refused

ARMS = ["full", "grid:0.3", "full+blank"]


@pytest.fixture
def crowded(mini_probes: Path, tmp_path: Path) -> Path:
    """Twenty probes on each of two images."""
    probes = read_probes(mini_probes).probes
    images = list(dict.fromkeys(probe.image for probe in probes))[:2]
    first = [next(probe for probe in probes if probe.image == image) for image in images]
    many = [
        replace(probe, id=f"{probe.id}-{i}", question=f"{probe.question} ({i})") for i in range(20) for probe in first
    ]
    write_probes(tmp_path / "crowded.jsonl", many)
    return tmp_path / "crowded.jsonl"


def test_many_probes_on_two_images_are_many_shards_and_are_forgotten_again(
    config: Any, crowded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenised, at_first_write, held = [0], [], []
    tokenise, write = prompting.Prompting._tokenised, RunFolder.write_row_table

    def counted(self: Any, *asked: Any) -> Any:
        tokenised[0] += 1
        held.append(self._prompts.cache_info().currsize)
        return tokenise(self, *asked)

    def noting(self: Any, *args: Any) -> None:
        at_first_write.append(tokenised[0])
        write(self, *args)

    whole = audit(config("llava", probes=crowded, arms=["full", "grid:0.3"], out=tmp_path / "whole", shard_probes=500))
    assert whole.manifest["shards"] == 1
    monkeypatch.setattr(prompting, "PROMPTS", 8)
    monkeypatch.setattr(prompting.Prompting, "_tokenised", counted)
    monkeypatch.setattr(RunFolder, "write_row_table", noting)
    run = audit(config("llava", probes=crowded, arms=["full", "grid:0.3"], shard_probes=4))
    assert run.manifest["shards"] == 10
    assert at_first_write[0] <= 8, "the first rows are written when a shard is done, not when all are"
    assert max(held) == 8, "what is remembered of prompts does not grow with the probes"
    assert tokenised[0] == 40, "and is remembered while it is needed"
    assert run.images.num_rows == whole.images.num_rows == 2, "an image of several shards is one image"
    assert len(list((run.path / "images").glob("*.parquet"))) == 10
    assert verify_folder(run.path).problems == []
    one, other = facts(run.frame()), facts(whole.frame())
    losses = ["loss_yes", "loss_no", "margin"]  # another batch may move them in their last digits, and nothing else
    pd.testing.assert_frame_equal(one.drop(columns=losses), other.drop(columns=losses))
    np.testing.assert_allclose(one[losses], other[losses], atol=1e-5)


def test_what_is_damaged_or_gone_is_computed_again(
    config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    settings = config("llava", arms=ARMS, shard_images=1)
    before = audit(settings)
    whole, images, folder = before.frame(), before.images, RunFolder(settings.out)
    flipped = bytearray(folder.rows_file("grid:0.3", 1).read_bytes())
    flipped[len(flipped) // 3] ^= 16
    folder.rows_file("grid:0.3", 1).write_bytes(flipped)
    refused("its content does not fit its checksum", lambda: load_run(settings.out).rows)
    for problem in verify_folder(settings.out).problems:
        problem.set_aside()
    folder.rows_file("full", 0).write_bytes(folder.rows_file("full", 0).read_bytes()[:200])
    shutil.copy(folder.rows_file("full", 2), folder.rows_file("grid:0.3", 2))
    folder.images_file(0, "orig").unlink()
    for file in (settings.out / "images").glob("*.blank.parquet"):
        file.unlink()
    assert len(verify_folder(settings.out).problems) >= 5
    capsys.readouterr()
    after = audit(settings.model_copy(update={"arms": ["full"]}))
    said = capsys.readouterr().err
    assert said.count("set aside as") == 2
    assert "00000.parquet is damaged (" in said
    assert "00002.parquet holds rows of full, not rows of grid:0.3; set aside" in said
    pd.testing.assert_frame_equal(facts(after.frame()), facts(whole))
    assert after.images.equals(images)
    assert verify_folder(settings.out).problems == []


def test_a_compacted_run_is_amended_and_gone_on_with(config: Any, tmp_path: Path) -> None:
    whole = audit(config("llava", arms=ARMS, shard_images=1, out=tmp_path / "whole")).frame()
    settings = config("llava", arms=["full", "full+blank"], shard_images=1)
    audit(settings)
    folder = RunFolder(settings.out)
    folder.rows_file("full", 2).unlink()
    compact_run(settings.out)
    written = [file.name for file in folder.rows_file("full", 0).parent.iterdir()]
    assert written == ["00000-00001.parquet"]
    amended = audit(settings.model_copy(update={"arms": ARMS}))
    assert amended.missing == 0
    assert sorted(file.name for file in folder.rows_file("full", 0).parent.iterdir()) == [*written, "00002.parquet"]
    order = amended.frame().assign(place=lambda frame: frame["arm"].map(ARMS.index)).sort_values("place", kind="stable")
    pd.testing.assert_frame_equal(facts(order.drop(columns="place").reset_index(drop=True)), facts(whole))
    compact_run(settings.out)
    assert verify_folder(settings.out).problems == []


def test_parts_give_rows_and_figures_of_an_undivided_run_and_may_become_one(config: Any, tmp_path: Path) -> None:
    settings = config("llava", arms=ARMS, limit=5, shard_images=1)
    whole = audit(settings.model_copy(update={"out": tmp_path / "whole"}))
    parts = [tmp_path / "parts" / str(k) for k in (1, 2, 3)]
    for k, place in enumerate(parts, start=1):
        part = audit(settings.model_copy(update={"out": place, "part": f"{k}/3"}))
        assert [len(files) for files in map(part.pieces, ARMS)] == [len(range(k - 1, 5, 3))] * 3
        assert f"the folder is part {k}/3" in part.unfinished
        assert verify_folder(place).problems == []
    joined = load_run(tmp_path / "parts")
    assert joined.unfinished == ""
    pd.testing.assert_frame_equal(facts(joined.frame()), facts(whole.frame()))
    assert joined.images.equals(whole.images)
    places: list[RunPlace] = [whole.path, parts]
    rule = ["accuracy(full) - accuracy(grid:0.3) > -1", "posecr(grid:0.3) > 0"]
    decided = [run_gate(one, rule, least_n=1, draws=100)[0] for one in places]
    assert decided[0] == decided[1]
    for name, one in zip("ab", places, strict=True):
        build_report([one], tmp_path / name, draws=100)
    tables = sorted(file.name for file in (tmp_path / "a" / "tables").glob("*.csv"))
    timed = [name for name in tables if any(part in name for part in ("cost", "runs", "stage"))]
    assert len(tables) > len(timed) + 3
    for name in set(tables) - set(timed):
        assert (tmp_path / "a" / "tables" / name).read_text() == (tmp_path / "b" / "tables" / name).read_text(), name

    rest = audit(settings.model_copy(update={"out": parts[1]}))
    assert (rest.unfinished, rest.manifest["part"]) == ("", None), "the rest of a run may be added to a part"


def rows_by_probe(run: Run, arm: str) -> dict[str, dict[str, Any]]:
    return {row["probe_id"]: row for row in run.rows.to_pylist() if row["arm"] == arm}


def replay(run: Run, own: str, other: str) -> int:
    """From the scores of one arm the masks of another: the K highest of an image, or of every tile, ties to the lower
    index, as the viewer has it. How many tiles the images have at most."""
    budget = parse_arm(other).budget
    layouts = dict(zip(*(run.images.column(name).to_pylist() for name in ("image_key", "layout")), strict=True))
    real, most = rows_by_probe(run, other), 0
    for probe, row in rows_by_probe(run, own).items():
        n = int(row["n_tokens"])
        assert row["scores_rule"] == "top"
        scores = np.frombuffer(row["scores"], "<f4" if len(row["scores"]) == 4 * n else "<f8")
        tiles = [rows * columns for rows, columns in json.loads(layouts[row["image_key"]])]
        kept, start = np.zeros(n, dtype=bool), 0
        for size in tiles if budget.per == "tile" else [n]:
            order = np.argsort(-scores[start : start + size], kind="stable")[: budget.resolve(size)]
            kept[start + order] = True
            start += size
        assert (kept == unpack_mask(real[probe]["kept_mask"], n)).all()
        most = max(most, len(tiles))
    return most


def test_stored_scores_replay_what_a_run_at_another_budget_keeps_or_say_that_they_cannot(config: Any) -> None:
    arms = ["full", "target:0.15", "target:0.3", "target:0.6:score=overlap", "target:0.2:score=overlap", "grid:0.3"]
    others = ["bottom:0.3", "target_grid:0.3"]
    run = audit(config("qwen3vl", arms=[*arms, *others], keep_scores=True))
    assert run.manifest["keep_scores"] is True
    for own, other in (arms[1:3], arms[2:0:-1], arms[3:5]):
        assert replay(run, own, other) == 1
    assert all(row["scores"] is None for row in rows_by_probe(run, "grid:0.3").values())
    for row in (row for arm in others for row in rows_by_probe(run, arm).values()):
        assert row["scores_rule"] == "other"
        assert len(row["scores"]) in (4 * row["n_tokens"], 8 * row["n_tokens"])


def test_stored_scores_replay_budgets_of_every_tile(config: Any) -> None:
    tiled: dict[str, Any] = {
        "arms": ["target:0.5/tile", "target:0.2/tile"],
        "image_options": {"min_tiles": 2},
        "keep_scores": True,
    }
    assert replay(audit(config("internvl", **tiled)), *tiled["arms"]) > 1


def test_answers_do_not_depend_on_whether_scores_are_stored(config: Any, tmp_path: Path, refused: Refused) -> None:
    plain, kept = (
        audit(config("llava", arms=["target:0.3"], limit=1, keep_scores=keep, out=tmp_path / str(keep)))
        for keep in (False, True)
    )
    same = ["probe_id", "margin", "kept_mask", "ecr"]
    assert plain.rows.select(same).equals(kept.rows.select(same))
    assert plain.rows.column("scores").null_count == plain.rows.num_rows
    other = config("llava", arms=["target:0.3"], limit=1, out=kept.path)
    refused("with keep_scores true, this command has false", audit, other)


class Backwards(Inline):
    """The last task first, each arm by itself."""

    name = "backwards"
    handed_out: ClassVar[list[str]] = []

    def run(self, folder: Any, tasks: Sequence[Task], boxes: Any) -> None:
        for task in reversed(tasks):
            for arm in reversed(task.arms):
                self.handed_out.append(f"{task.shard.index} {arm.text}")
                super().run(folder, [Task(task.shard, (arm,))], boxes)


def test_rows_do_not_depend_on_the_launcher(config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAUNCHERS._entries, "backwards", Backwards)
    settings = {"arms": ["full", "target:0.3", "fastv:0.5"], "interventions": ["occlusion"], "shard_images": 2}
    here = audit(config("llava", **settings, out=tmp_path / "here")).rows
    there = audit(config("llava", **settings, out=tmp_path / "there", launcher="backwards")).rows
    assert Backwards.handed_out[0].startswith("1 ")
    assert len(set(Backwards.handed_out)) == len(Backwards.handed_out) == 2 * 9
    assert there.drop_columns(list(TIME_COLUMNS)).equals(here.drop_columns(list(TIME_COLUMNS)))


def test_another_scorer_brings_its_own_columns_which_are_described(config: Any, refused: Refused) -> None:
    run = audit(config("llava", arms=["full", "target:0.3", "fastv:0.5"], scorer="generation", limit=2))
    frame = run.frame()
    assert list(frame.columns) == [*row_schema(Generation.columns).names, *TEXTS]
    assert "margin" not in frame
    assert all(isinstance(text, str) for text in frame["answer"])
    assert (frame["answer_tokens"] <= 32).all()
    assert (frame["correct"] == (frame["predicted"] == frame["label"])).all()
    assert run.manifest["scorer"] == "generation"
    refused("this command has yes_no", audit, config("llava", arms=["full"], limit=2))


def test_a_generated_answer_is_judged_by_its_first_word() -> None:
    scorer = Generation()
    probe: Any = type("Asked", (), {"label": "yes"})
    said = {"Yes, it is.": "yes", '"no"': "no", "yesterday": "yesterday", "": ""}
    for text, predicted in said.items():
        judged = scorer.judge(probe, Utterance(text, 3, 0.5), "full")
        assert judged["predicted"] == predicted
        assert judged["correct"] == (predicted == "yes")
