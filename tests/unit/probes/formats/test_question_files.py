"""Open questions as their publishers ship them: parquet or JSON, images inside or beside, and what can be wrong."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from lab.stand_ins import StandIns
from sightline.contract import check_format
from sightline.probes.annotations import detect_format, load_regions, read_annotations
from sightline.probes.data_rows import data_rows
from sightline.probes.formats.base import FORMATS, configured
from sightline.probes.formats.published_questions import PUBLISHED
from sightline.probes.regions import Ingest
from tests.refusals import Refused
from tests.unit.probes.conftest import Save
from tests.unit.probes.formats.pages import paint


def image(colour: int, form: str = "PNG", **options: Any) -> dict[str, Any]:
    """A cell with an image in it."""
    target = io.BytesIO()
    Image.new("RGB", (40, 20), (colour, 0, 0)).save(target, format=form, **options)
    return {"bytes": target.getvalue(), "path": None}


def row(number: int, **changes: Any) -> dict[str, Any]:
    usual = {"question_id": number, "question": "Who?", "image_id": f"i{number}", "answers": ["Ada"] * 10}
    return {**usual, "image": image(number), **changes}


@pytest.fixture
def parquet(tmp_path: Path) -> Save:
    def write(*rows: dict[str, Any], **options: Any) -> Path:
        table = pa.Table.from_pylist(rows)
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        images = pa.array([row.get("image") for row in rows], kind)
        table = table.set_column(table.column_names.index("image"), pa.field("image", kind), images)
        pq.write_table(table, tmp_path / "t.parquet", **options)
        return tmp_path / "t.parquet"

    return write


def unpack(ingest: Ingest, folder: Path, names: set[str]) -> int:
    assert ingest.packed is not None
    return ingest.packed.unpack(folder, names)


def test_a_file_says_by_itself_what_it_is_and_its_format_keeps_its_promises(stand_ins: StandIns) -> None:
    files = {
        "textvqa/TextVQA_0.5.1_val.json": "textvqa", "docvqa/val_v1.0_withQT.json": "docvqa",
        "ocrbench/OCRBench.json": "ocrbench", "qa/questions.jsonl": "qa", "qa/questions.csv": "qa",
        "docvqa/ocr_results/xnbl0037_1.json": "ms_read",
    }  # fmt: skip
    shards = {
        "textvqa/validation-*.parquet": "textvqa", "textvqa/lite-*.parquet": "textvqa",
        "textvqa/boxes-*.parquet": "textvqa_gt", "docvqa/validation-*.parquet": "docvqa",
        "ocrbench/test-*.parquet": "ocrbench",
    }  # fmt: skip
    found = {stand_ins.file(name): kind for name, kind in files.items()}
    found |= {shard: kind for pattern, kind in shards.items() for shard in stand_ins.shards(pattern)}
    assert {file: detect_format(file) for file in found} == found
    for file, kind in found.items():
        check_format(configured(FORMATS.get(kind), {}), file)


def test_several_files_are_no_shards_of_a_format_that_has_none(data: Path, refused: Refused) -> None:
    file = data / "mini_textocr" / "TextOCR_mini_val.json"
    refused("format textocr reads one file, 2 were given", read_annotations, [file, file], {})


def test_json_and_parquet_shards_ask_the_same(stand_ins: StandIns) -> None:
    for document, pattern in (
        ("textvqa/TextVQA_0.5.1_val.json", "textvqa/validation-*.parquet"),
        ("docvqa/val_v1.0_withQT.json", "docvqa/validation-*.parquet"),
    ):
        beside, files = load_regions(stand_ins.file(document)), stand_ins.shards(pattern)
        inside = read_annotations(files, {})
        assert (len(files), len(beside.probes)) == (2, 24)
        assert inside.probes == beside.probes
        assert inside.source["annotations"] == [file.name for file in files]
        assert beside.images == stand_ins.file(document).parent
        assert beside.packed is None
        assert inside.packed is not None


def test_questions_of_docvqa_keep_their_types(stand_ins: StandIns) -> None:
    docvqa = load_regions(stand_ins.file("docvqa/val_v1.0_withQT.json")).probes
    assert {tuple(probe.extra["question_types"]) for probe in docvqa} == {("form",), ("table/list",)}
    assert {probe.kind for probe in docvqa} == {"docvqa"}
    assert (docvqa[0].image, docvqa[0].image_id) == ("documents/xnbl0037_1.png", "xnbl0037_1")


def test_questions_of_textvqa_keep_all_ten_answers_and_are_those_of_the_lite_set(stand_ins: StandIns) -> None:
    whole = read_annotations(stand_ins.shards("textvqa/validation-*.parquet"), {}).probes
    probe = whole[0]
    assert len(probe.answers) == 10
    assert probe.answers.count(probe.answers[0]) >= 8
    assert probe.answers[-1] == "unanswerable"
    assert (probe.id, probe.task, probe.label, probe.target_text) == ("textvqa:34602", "textvqa", "open", "")
    (file,) = stand_ins.shards("textvqa/lite-*.parquet")
    lite = read_annotations([file], {}).probes
    by_id = {probe.id: probe for probe in whole}
    assert len(lite) == 12
    assert [by_id[probe.id] for probe in lite] == list(lite)
    renamed = load_regions(file, id_prefix="textvqa_val_lite").probes[0]
    assert (renamed.id, renamed.task) == ("textvqa_val_lite:34602", "textvqa")


def test_ocrbench_has_its_types_as_kinds_and_jpegs_where_asked(stand_ins: StandIns, tmp_path: Path) -> None:
    (shard,) = stand_ins.shards("ocrbench/test-*.parquet")
    beside, inside = load_regions(stand_ins.file("ocrbench/OCRBench.json")), load_regions(shard)
    assert [probe.kind for probe in beside.probes] == [kind for kind in PUBLISHED["ocrbench"].kinds for _ in range(2)]
    assert beside.kinds == PUBLISHED["ocrbench"].kinds
    assert [probe.id for probe in inside.probes] == [f"ocrbench:{number}" for number in range(20)]
    for one, other in zip(beside.probes, inside.probes, strict=True):
        assert (one.id, one.question, one.answers, one.extra) == (other.id, other.question, other.answers, other.extra)
    assert beside.probes[0].image == "OCRBench_Images/IIIT5K/imgs/000000000.png"
    assert inside.probes[0].image == "ocrbench_0000.png"
    assert beside.probes[-1].extra == {"dataset": "HME100k"}
    ingest = load_regions(shard, jpeg=95)
    assert ingest.probes[0].image == "ocrbench_0000.jpg"
    unpack(ingest, tmp_path, {"ocrbench_0000.jpg"})
    Image.new("RGB", (8, 8)).save(tmp_path / "same.jpg", quality=95)
    with Image.open(tmp_path / "ocrbench_0000.jpg") as stored, Image.open(tmp_path / "same.jpg") as same:
        assert (stored.format, stored.mode) == ("JPEG", "RGB")
        assert stored.quantization == same.quantization  # type: ignore[attr-defined]


def test_your_own_questions_come_from_lines_or_a_table_and_boxes_are_regions(stand_ins: StandIns) -> None:
    ingest = load_regions(stand_ins.file("qa/questions.jsonl"))
    assert load_regions(stand_ins.file("qa/questions.csv")).probes == ingest.probes
    first = ingest.probes[0]
    assert (first.id, first.task, first.image_id) == ("qa:0", "qa", "page_00")
    assert (first.roles, len(first.regions)) == (("answer_value", "field_label"), 2)
    assert ingest.counts.regions == sum(len(probe.regions) for probe in ingest.probes)
    (file,) = stand_ins.shards("textvqa/boxes-*.parquet")
    probes = load_regions(file).probes
    assert {(len(probe.regions), probe.roles) for probe in probes} == {(1, ("answer_value",))}
    assert probes[0].id == "textvqa:34602"
    x, y, w, h = pq.read_table(file).to_pylist()[0]["bbox"]
    assert probes[0].regions == ((x / 448, y / 448, (x + w) / 448, (y + h) / 448),)


def test_your_own_questions_may_say_task_decoy_kind_boxes_and_more_answers(
    tmp_path: Path, save: Save, refused: Refused
) -> None:
    paint(tmp_path / "a.png")
    extras = {"id": "q7", "task": "docvqa", "kind": "totals", "decoy": "13"}
    path = save({"image": "a.png", "question": "Sum?", "answer": "12", **extras, "boxes": [[100, 80, 200, 40]]})
    (probe,) = load_regions(path, units="pixels", order="xywh").probes
    assert (probe.id, probe.task, probe.kind, probe.decoy) == ("docvqa:q7", "docvqa", "totals", "13")
    assert (probe.regions, probe.roles) == (((0.1, 0.1, 0.3, 0.15),), ())
    refused("are they xyxy in normalised", load_regions, path)
    asked = {'["x", "y"]': ("x", "y"), "[sic": ("[sic",), (7, None, "z"): ("7", "z")}
    path = save(*({"image": "a.png", "question": "?", "answers": answers} for answers in asked))
    assert [probe.answers for probe in load_regions(path).probes] == list(asked.values())
    # Boxes that leave the image a little are clipped with their roles.
    boxes = [[-0.1, 0.1, 0.2, 0.2], [1.1, 0.0, 1.2, 0.1], [0.5, 0.5, 0.6, 0.6]]
    roles = ["answer_value", "field_label", "context"]
    ingest = load_regions(save({"image": "a.png", "question": "?", "answers": ["x"], "boxes": boxes, "roles": roles}))
    assert ingest.probes[0].regions == ((0.0, 0.1, 0.2, 0.2), (0.5, 0.5, 0.6, 0.6))
    assert ingest.probes[0].roles == ("answer_value", "context")
    assert (ingest.counts.clipped_boxes, ingest.counts.dropped_no_area) == (1, 1)


def test_rows_without_image_question_or_answers_are_passed_over(tmp_path: Path, parquet: Save) -> None:
    paint(tmp_path / "train_images" / "i8.jpg")
    incomplete: tuple[dict[str, Any], ...] = (
        {"question": " "}, {"answers": []}, {"answers": None}, {"image": None},
        {"image": {"bytes": None, "path": None}}, {"answers": ["", " "]},
    )  # fmt: skip
    named = row(8, image={"bytes": None, "path": "train_images/i8.jpg"})
    ingest = load_regions(parquet(row(1), *(row(2 + i, **changes) for i, changes in enumerate(incomplete)), named))
    assert [probe.id for probe in ingest.probes] == ["textvqa:1", "textvqa:8"]
    assert ingest.counts.notes() == [
        "2 images", "2 questions", "2 questions without image", "1 questions without text",
        "3 questions without answers",
    ]  # fmt: skip


def test_an_image_may_lie_beside_a_parquet_file(tmp_path: Path, parquet: Save) -> None:
    paint(tmp_path / "train_images" / "i8.jpg")
    ingest = load_regions(parquet(row(8, image={"bytes": None, "path": "train_images/i8.jpg"})))
    assert (ingest.probes[0].image, ingest.images, ingest.packed) == ("train_images/i8.jpg", tmp_path, None)


def test_images_are_unpacked_once_where_needed_and_never_replace_another(
    tmp_path: Path, parquet: Save, refused: Refused
) -> None:
    stored = {"i1": image(1), "i2": image(2, "JPEG"), "i3": image(3)}
    rows = (row(i, image_id=name, image=stored[name]) for i, name in enumerate(("i1", "i2", "i1", "i3")))
    ingest = load_regions(parquet(*rows))
    out, wanted = tmp_path / "out", {probe.image for probe in ingest.probes[:3]}
    assert wanted == {"train_images/i1.png", "train_images/i2.jpg"}
    assert unpack(ingest, out, wanted) == 2
    assert {file.name for file in (out / "train_images").iterdir()} == {"i1.png", "i2.jpg"}
    assert (out / "train_images" / "i1.png").read_bytes() == stored["i1"]["bytes"]
    before = (out / "train_images" / "i2.jpg").stat().st_mtime_ns
    assert unpack(ingest, out, wanted) == 0
    assert (out / "train_images" / "i2.jpg").stat().st_mtime_ns == before
    (out / "train_images" / "i1.png").write_bytes(image(9)["bytes"])
    refused("i1.png is there already and is another image", unpack, ingest, out, {"train_images/i1.png"})
    assert (out / "train_images" / "i1.png").read_bytes() == image(9)["bytes"]


def test_parquet_is_read_a_few_rows_at_a_time(parquet: Save) -> None:
    noise = [bytes([number]) * 100_000 for number in range(160)]
    rows = [{"question": "?", "image": {"bytes": each, "path": None}} for each in noise]
    path = parquet(*rows, row_group_size=40, compression="none", use_dictionary=False)
    del rows
    start, most, seen = pa.total_allocated_bytes(), 0, 0
    for found in data_rows([path], [("question",)]):
        assert found.cells["image"]["bytes"] == noise[found.number]
        most = max(most, pa.total_allocated_bytes() - start)
        seen += 1
    assert seen == 160
    assert 0 < most < 8_000_000 < path.stat().st_size


def test_columns_are_looked_for_in_the_first_row_alone(save: Save) -> None:
    looks = []

    class Needed(list[tuple[str, ...]]):
        def __iter__(self) -> Iterator[tuple[str, ...]]:
            looks.append(1)
            return super().__iter__()

    rows = data_rows([save({"question": "?"}, {"question": "!"}, {"other": 1})], Needed([("question",)]))
    assert [row.number for row in rows] == [0, 1, 2]
    assert len(looks) == 1


ASKS = '{"question_id": 1, "question": "?", "image_id": "a"'
ODD_LINE = 'image,"quest\rion\r",x\nand more\n'
NO_COLUMN = "nor a table whose first line names a column 'question'"


@pytest.mark.parametrize(
    ("kind", "content", "says"),
    [
        ("textvqa", '{"data": {}}', "needs a list of questions, or an object with one under 'data'"),
        ("ocrbench", "[]", "needs a list of questions"),
        ("docvqa", '{"data": [1]}', "row 1: expected an object"),
        ("textvqa", f'{{"data": [{ASKS}}}]}}', "has no column answers; found question_id, question, image_id"),
        ("textvqa", f'{{"data": [{ASKS}, "answers": []}}]}}', "none of its questions can be used"),
        ("qa", "a,b\n1,2\n", "neither parquet nor JSON nor a table whose first line names a column 'question'"),
        ("qa", "image,question,answers\na.png,Who?\n", "line 2: 2 cells under 3 columns"),
        ("qa", "image,question,answers\n", "holds no questions below its first line"),
        (None, '[{"image": "a", "question": "?", "answers": {"b": 1}}]', "row 1: \"{'b': 1}\" is no text, nor a list"),
        (None, '[{"image": "a", "question": "?", "answers": NaN}]', "1 questions without answers"),
        ("qa", "image,question,answers,colour\na,?,b,red\n", "line 2: unknown column 'colour'; known: answer, answers"),
        ("textvqa", "image,question,answers\na,?,b\n", "has no column question_id; found image, question"),
        ("textvqa", "PAR1 and no more", "damaged parquet file"),
        (None, "PAR1 and no more", "damaged parquet file"),
        *((kind, ODD_LINE, NO_COLUMN) for kind in ("qa", "ocrbench")),
        ("csv", ODD_LINE, "line 1: needs columns for the image"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, kind: str | None, content: str, says: str, refused: Refused) -> None:
    (tmp_path / "t.json").write_text(content, newline="")
    refused(says, load_regions, tmp_path / "t.json", file_format=kind)


def test_bad_boxes_roles_and_images_are_refused_with_their_row(save: Save, parquet: Save, refused: Refused) -> None:
    inside = [0.1, 0.1, 0.2, 0.2]
    bad: list[tuple[dict[str, Any], str]] = [
        ({"boxes": [[0.1, 0.1, 0.2]]}, "is not four finite numbers"),
        ({"boxes": [[0.4, 0.1, 0.2, 0.2]]}, "has x2 < x1 or y2 < y1"),
        ({"boxes": [[3, 3, 4, 4]]}, "lies far outside the image; are they xyxy in normalised"),
        ({"boxes": [inside], "roles": ["answer"]}, "role 'answer' is not one of answer_value, fie"),
        ({"boxes": [inside], "roles": ["context"] * 2}, "its boxes and roles differ in number (1 and 2)"),
        ({"boxes": "somewhere"}, "boxes 'somewhere' are not a JSON list"),
    ]
    for changes, says in bad:
        refused(says, load_regions, save({"image": "a.png", "question": "?", "answers": ["x"], **changes}))
    refused("leaves the image root", load_regions, parquet(row(1), row(2, image_id="../../i1")))
    no_image = parquet(row(1), row(2, image={"bytes": b"GIF? no", "path": None}))
    refused("row 2: its image cannot be read", load_regions, no_image)


@pytest.mark.parametrize(
    "copies",
    [[image(7)] * 3, [image(7), image(7, compress_level=0), image(7, "BMP")]],
    ids=["the same bytes", "the same pixels"],
)
@pytest.mark.parametrize(
    "asks", [{"answers": ["Ada"]}, {"question_type": "Doc-oriented VQA", "answer": ["Ada"]}], ids=["qa", "ocrbench"]
)
def test_rows_that_share_a_picture_make_one_image(
    tmp_path: Path, parquet: Save, copies: list[dict[str, Any]], asks: dict[str, Any]
) -> None:
    rows = ({"question": f"Who {i}?", "image": each, **asks} for i, each in enumerate([image(8), *copies]))
    ingest = load_regions(parquet(*rows))
    first, *shared = ingest.probes
    assert len({(probe.image, probe.image_id) for probe in shared}) == 1
    assert first.image_id != shared[0].image_id
    assert shared[0].image_id.endswith("1"), "the id of the first that has it, as ever"
    assert (ingest.counts.images, ingest.counts.questions, ingest.counts.images_same_as_another) == (2, 4, 2)
    assert unpack(ingest, tmp_path / "images", {probe.image for probe in ingest.probes}) == 2


def test_files_beside_that_show_one_picture_are_one_image(tmp_path: Path, save: Save) -> None:
    for name, stored in {"a.png": image(7), "b.bmp": image(7, "BMP"), "c.png": image(8)}.items():
        (tmp_path / name).write_bytes(stored["bytes"])
    names = enumerate(("a.png", "b.bmp", "c.png", "a.png", "gone.png"))
    asks = ({"image": name, "question": "Who?", "answers": ["Ada"], "image_id": f"i{i}"} for i, name in names)
    ingest = load_regions(save(*asks))
    assert [(probe.image, probe.image_id) for probe in ingest.probes] == [
        ("a.png", "i0"), ("a.png", "i0"), ("c.png", "i2"), ("a.png", "i0"), ("gone.png", "i4"),
    ]  # fmt: skip
    assert "2 images same as another" in ingest.counts.notes()
