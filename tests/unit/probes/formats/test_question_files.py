"""Open questions as their publishers ship them: parquet or JSON, images inside or beside, and what can be wrong."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from lab.stand_ins import StandIns
from sightline.contract import check_format
from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes.annotations import detect_format, load_regions, read_annotations
from sightline.probes.data_rows import data_rows
from sightline.probes.formats.base import FORMATS, configured
from sightline.probes.formats.published_questions import PUBLISHED
from sightline.probes.regions import Ingest
from tests.refusals import Refused
from tests.unit.probes.formats.pages import paint

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def png(colour: int = 255, form: str = "PNG") -> bytes:
    target = io.BytesIO()
    Image.new("RGB", (40, 20), (colour, 0, 0)).save(target, format=form)
    return target.getvalue()


def parquet(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    table = pa.Table.from_pylist(rows)
    if "image" in table.column_names:
        place = table.column_names.index("image")
        images = pa.array([row.get("image") for row in rows], IMAGE)
        table = table.set_column(place, pa.field("image", IMAGE), images)
    pq.write_table(table, path, **options)
    return path


def row(number: int, **changes: Any) -> dict[str, Any]:
    image = {"bytes": png(number), "path": None}
    return {
        "question_id": number, "question": "Who?", "image_id": f"i{number}", "answers": ["Ada"] * 10, "image": image,
        **changes,
    }  # fmt: skip


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def asked(ingest: Ingest) -> list[tuple[Any, ...]]:
    return [
        (probe.id, probe.question, probe.answers, probe.image, probe.image_id, probe.kind) for probe in ingest.probes
    ]


def test_a_file_says_by_itself_what_it_is(stand_ins: StandIns) -> None:
    for name, found in (
        ("textvqa/TextVQA_0.5.1_val.json", "textvqa"),
        ("docvqa/val_v1.0_withQT.json", "docvqa"),
        ("ocrbench/OCRBench.json", "ocrbench"),
        ("qa/questions.jsonl", "qa"),
        ("qa/questions.csv", "qa"),
    ):
        assert detect_format(stand_ins.file(name)) == found
    for pattern, found in (
        ("textvqa/validation-*.parquet", "textvqa"),
        ("textvqa/lite-*.parquet", "textvqa"),
        ("textvqa/boxes-*.parquet", "textvqa_gt"),
        ("docvqa/validation-*.parquet", "docvqa"),
        ("ocrbench/test-*.parquet", "ocrbench"),
    ):
        assert [detect_format(file) for file in stand_ins.shards(pattern)] == [found] * len(stand_ins.shards(pattern))
    assert detect_format(next(stand_ins.file("docvqa/ocr_results").iterdir())) == "ms_read"


@pytest.mark.parametrize(
    ("document", "shards"),
    [
        ("textvqa/TextVQA_0.5.1_val.json", "textvqa/validation-*.parquet"),
        ("docvqa/val_v1.0_withQT.json", "docvqa/validation-*.parquet"),
    ],
)
def test_json_and_parquet_shards_ask_the_same(stand_ins: StandIns, document: str, shards: str) -> None:
    beside = load_regions(stand_ins.file(document))
    files = stand_ins.shards(shards)
    inside = read_annotations(files, {})
    assert len(files) == 2
    assert len(beside.probes) == 24
    assert inside.probes == beside.probes
    assert inside.source["annotations"] == [file.name for file in files]
    assert beside.images == stand_ins.file(document).parent
    assert beside.packed is None
    assert inside.packed is not None


def test_textvqa_keeps_ten_answers_a_lite_split_is_a_part_and_docvqa_keeps_its_types(stand_ins: StandIns) -> None:
    probe = load_regions(stand_ins.file("textvqa/TextVQA_0.5.1_val.json")).probes[0]
    assert len(probe.answers) == 10
    assert probe.answers.count(probe.answers[0]) >= 8
    assert probe.answers[-1] == "unanswerable"
    assert (probe.id, probe.task, probe.label, probe.target_text) == ("textvqa:34602", "textvqa", "open", "")
    (file,) = stand_ins.shards("textvqa/lite-*.parquet")
    lite = read_annotations([file], {})
    whole = read_annotations(stand_ins.shards("textvqa/validation-*.parquet"), {})
    assert len(lite.probes) == 12
    by_id = {probe.id: probe for probe in whole.probes}
    assert [by_id[probe.id] for probe in lite.probes] == list(lite.probes)
    renamed = load_regions(file, id_prefix="textvqa_val_lite").probes[0]
    assert (renamed.id, renamed.task) == ("textvqa_val_lite:34602", "textvqa")
    probes = load_regions(stand_ins.file("docvqa/val_v1.0_withQT.json")).probes
    assert {tuple(probe.extra["question_types"]) for probe in probes} == {("form",), ("table/list",)}
    assert {probe.kind for probe in probes} == {"docvqa"}
    assert probes[0].image == "documents/xnbl0037_1.png"
    assert probes[0].image_id == "xnbl0037_1"


def test_ocrbench_has_its_types_as_kinds_and_jpegs_where_asked(stand_ins: StandIns, tmp_path: Path) -> None:
    beside = load_regions(stand_ins.file("ocrbench/OCRBench.json"))
    inside = load_regions(stand_ins.shards("ocrbench/test-*.parquet")[0])
    assert [probe.kind for probe in beside.probes] == [kind for kind in PUBLISHED["ocrbench"].kinds for _ in range(2)]
    assert beside.kinds == PUBLISHED["ocrbench"].kinds
    assert [probe.id for probe in inside.probes] == [f"ocrbench:{number}" for number in range(20)]
    for one, other in zip(beside.probes, inside.probes, strict=True):
        assert (one.id, one.question, one.answers, one.extra) == (other.id, other.question, other.answers, other.extra)
    assert beside.probes[0].image == "OCRBench_Images/IIIT5K/imgs/000000000.png"
    assert inside.probes[0].image == "ocrbench_0000.png"
    assert beside.probes[-1].extra == {"dataset": "HME100k"}
    ingest = load_regions(stand_ins.shards("ocrbench/test-*.parquet")[0], jpeg=95)
    assert ingest.packed is not None
    assert ingest.probes[0].image == "ocrbench_0000.jpg"
    ingest.packed.unpack(tmp_path, {"ocrbench_0000.jpg"})
    with Image.open(tmp_path / "ocrbench_0000.jpg") as image:
        assert (image.format, image.mode) == ("JPEG", "RGB")
        tables = image.quantization  # type: ignore[attr-defined]
    Image.new("RGB", (8, 8)).save(tmp_path / "same.jpg", quality=95)
    with Image.open(tmp_path / "same.jpg") as image:
        assert image.quantization == tables  # type: ignore[attr-defined]


def test_your_own_questions_come_from_lines_or_a_table_and_boxes_are_regions(stand_ins: StandIns) -> None:
    from_lines = load_regions(stand_ins.file("qa/questions.jsonl"))
    assert load_regions(stand_ins.file("qa/questions.csv")).probes == from_lines.probes
    first: Probe = from_lines.probes[0]
    assert (first.id, first.task, first.image_id) == ("qa:0", "qa", "page_00")
    assert first.roles == ("answer_value", "field_label")
    assert len(first.regions) == 2
    assert from_lines.counts.regions == sum(len(probe.regions) for probe in from_lines.probes)
    (file,) = stand_ins.shards("textvqa/boxes-*.parquet")
    ingest = load_regions(file)
    assert {len(probe.regions) for probe in ingest.probes} == {1}
    assert {probe.roles for probe in ingest.probes} == {("answer_value",)}
    assert ingest.probes[0].id == "textvqa:34602"
    ((x, y, w, h),) = [each["bbox"] for each in pq.read_table(file).to_pylist()[:1]]
    assert ingest.probes[0].regions == ((x / 448, y / 448, (x + w) / 448, (y + h) / 448),)


def test_your_own_questions_may_say_task_decoy_kind_boxes_and_more_answers(tmp_path: Path, refused: Refused) -> None:
    paint(tmp_path / "a.png")
    extras = {"id": "q7", "task": "docvqa", "kind": "totals", "decoy": "13"}
    path = lines(
        tmp_path / "q.jsonl",
        {"image": "a.png", "question": "Sum?", "answer": "12", **extras, "boxes": [[100, 80, 200, 40]]},
    )
    (probe,) = load_regions(path, units="pixels", order="xywh").probes
    assert (probe.id, probe.task, probe.kind, probe.decoy) == ("docvqa:q7", "docvqa", "totals", "13")
    assert probe.regions == ((0.1, 0.1, 0.3, 0.15),)
    assert probe.roles == ()
    refused("are they xyxy in normalised", load_regions, path)
    path = lines(
        tmp_path / "q.jsonl",
        {"image": "a.png", "question": "1?", "answers": '["x", "y"]'},
        {"image": "a.png", "question": "2?", "answers": "[sic"},
        {"image": "a.png", "question": "3?", "answers": [7, None, "z"]},
    )
    assert [probe.answers for probe in load_regions(path).probes] == [("x", "y"), ("[sic",), ("7", "z")]


def test_rows_without_image_question_or_answers_are_passed_over_and_counted(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "t.parquet",
        [
            row(1),
            row(2, question=" "),
            row(3, answers=[]),
            row(4, answers=None),
            row(5, image=None),
            row(6, image={"bytes": None, "path": None}),
            row(7, answers=["", " "]),
        ],
    )
    ingest = load_regions(path)
    assert [probe.id for probe in ingest.probes] == ["textvqa:1"]
    assert ingest.counts.notes() == [
        "1 images",
        "1 questions",
        "2 questions without image",
        "1 questions without text",
        "3 questions without answers",
    ]


def test_an_image_that_a_cell_only_names_lies_beside_the_file(tmp_path: Path) -> None:
    paint(tmp_path / "train_images" / "i1.jpg")
    path = parquet(tmp_path / "t.parquet", [row(1, image={"bytes": None, "path": "train_images/i1.jpg"})])
    ingest = load_regions(path)
    assert ingest.probes[0].image == "train_images/i1.jpg"
    assert ingest.images == tmp_path
    assert ingest.packed is None


def test_images_are_unpacked_once_where_needed_and_never_replace_another(tmp_path: Path, refused: Refused) -> None:
    stored = {"i1": png(1), "i2": png(2, "JPEG"), "i3": png(3)}
    rows = [
        row(number, image_id=name, image={"bytes": stored[name], "path": None})
        for number, name in enumerate(("i1", "i2", "i1", "i3"))
    ]
    ingest = load_regions(parquet(tmp_path / "t.parquet", rows))
    assert ingest.packed is not None
    folder = tmp_path / "out"
    wanted = {probe.image for probe in ingest.probes[:3]}
    assert wanted == {"train_images/i1.png", "train_images/i2.jpg"}
    assert ingest.packed.unpack(folder, wanted) == 2
    assert {file.name for file in (folder / "train_images").iterdir()} == {"i1.png", "i2.jpg"}
    assert (folder / "train_images" / "i1.png").read_bytes() == stored["i1"]
    before = (folder / "train_images" / "i2.jpg").stat().st_mtime_ns
    assert ingest.packed.unpack(folder, wanted) == 0
    assert (folder / "train_images" / "i2.jpg").stat().st_mtime_ns == before
    ingest = load_regions(parquet(tmp_path / "t.parquet", [row(1)]))
    assert ingest.packed is not None
    (tmp_path / "train_images").mkdir()
    (tmp_path / "train_images" / "i1.png").write_bytes(png(9))
    refused("i1.png is there already and is another image", ingest.packed.unpack, tmp_path, {"train_images/i1.png"})
    assert (tmp_path / "train_images" / "i1.png").read_bytes() == png(9)


def test_parquet_is_read_a_few_rows_at_a_time(tmp_path: Path) -> None:
    noise = [bytes([number]) * 100_000 for number in range(160)]
    rows = [{"question": "?", "image": {"bytes": each, "path": None}} for each in noise]
    path = parquet(tmp_path / "big.parquet", rows, row_group_size=40, compression="none", use_dictionary=False)
    del rows
    start, most, seen = pa.total_allocated_bytes(), 0, 0
    for found in data_rows([path], [("question",)]):
        assert found.cells["image"]["bytes"] == noise[found.number]
        most = max(most, pa.total_allocated_bytes() - start)
        seen += 1
    assert seen == 160
    assert 0 < most < 8_000_000 < path.stat().st_size


ASKS = '{"question_id": 1, "question": "?", "image_id": "a"'
ODD_LINE = 'image,"quest\rion\r",x\nand more\n'


@pytest.mark.parametrize(
    ("kind", "content", "says"),
    [
        ("textvqa", '{"data": {}}', "needs a list of questions, or an object with one under 'data'"),
        ("ocrbench", "[]", "needs a list of questions"),
        ("docvqa", '{"data": [1]}', "row 1: expected an object, found int"),
        ("textvqa", f'{{"data": [{ASKS}}}]}}', "has no column answers; found question_id, question, image_id"),
        ("textvqa", f'{{"data": [{ASKS}, "answers": []}}]}}', "none of its 1 questions can be used"),
        ("qa", "a,b\n1,2\n", "neither parquet nor JSON nor a table whose first line names a column 'question'"),
        ("qa", "image,question,answers\na.png,Who?\n", "line 2: 2 cells under 3 columns"),
        ("qa", "image,question,answers\n", "holds no questions below its first line"),
        (None, '[{"image": "a", "question": "?", "answers": {"b": 1}}]', "row 1: \"{'b': 1}\" is no text, nor a list"),
        (None, '[{"image": "a", "question": "?", "answers": NaN}]', "1 questions without answers"),
        ("qa", "image,question,answers,colour\na,?,b,red\n", "line 2: unknown column 'colour'; known: answer, answers"),
        ("textvqa", "image,question,answers\na,?,b\n", "has no column question_id; found image, question"),
        ("textvqa", "PAR1 and no more", "damaged parquet file"),
        (None, "PAR1 and no more", "damaged parquet file"),
        *((kind, ODD_LINE, "nor a table whose first line names a column 'question'") for kind in ("qa", "ocrbench")),
        ("csv", ODD_LINE, "line 1: needs columns for the image"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, kind: str | None, content: str, says: str, refused: Refused) -> None:
    (tmp_path / "t.json").write_text(content, newline="")
    refused(says, load_regions, tmp_path / "t.json", file_format=kind)


INSIDE = [0.1, 0.1, 0.2, 0.2]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"boxes": [[0.1, 0.1, 0.2]]}, "is not four finite numbers"),
        ({"boxes": [[0.4, 0.1, 0.2, 0.2]]}, "has x2 < x1 or y2 < y1"),
        ({"boxes": [[3, 3, 4, 4]]}, "lies far outside the image; are they xyxy in normalised"),
        ({"boxes": [INSIDE], "roles": ["answer"]}, "role 'answer' is not one of answer_value, fie"),
        ({"boxes": [INSIDE], "roles": ["context"] * 2}, "2 roles for 1 boxes"),
        ({"boxes": "somewhere"}, "boxes 'somewhere' are not a JSON list"),
    ],
)
def test_bad_boxes_and_roles_are_refused(tmp_path: Path, changes: dict[str, Any], says: str, refused: Refused) -> None:
    whole = {"image": "a.png", "question": "?", "answers": ["x"]}
    refused(says, load_regions, lines(tmp_path / "q.jsonl", {**whole, **changes}))


def test_a_bad_image_is_refused_with_its_row(tmp_path: Path, refused: Refused) -> None:
    outside = parquet(tmp_path / "t.parquet", [row(1), row(2, image_id="../../i1")])
    refused("leaves the image root", load_regions, outside)
    damaged = parquet(tmp_path / "t.parquet", [row(1), row(2, image={"bytes": b"GIF? no", "path": None})])
    with pytest.raises(SightlineError, match="row 2: its image cannot be read: cannot identify image file"):
        load_regions(damaged)


def test_boxes_that_leave_the_image_a_little_are_clipped_with_their_roles(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "q.jsonl",
        {
            "image": "a.png", "question": "?", "answers": ["x"],
            "boxes": [[-0.1, 0.1, 0.2, 0.2], [1.1, 0.0, 1.2, 0.1], [0.5, 0.5, 0.6, 0.6]],
            "roles": ["answer_value", "field_label", "context"],
        },
    )  # fmt: skip
    ingest = load_regions(path)
    assert ingest.probes[0].regions == ((0.0, 0.1, 0.2, 0.2), (0.5, 0.5, 0.6, 0.6))
    assert ingest.probes[0].roles == ("answer_value", "context")
    assert (ingest.counts.clipped_boxes, ingest.counts.dropped_no_area) == (1, 1)


def test_question_formats_keep_what_every_format_promises(stand_ins: StandIns, data: Path, refused: Refused) -> None:
    files = [stand_ins.file(name) for name in ("textvqa/TextVQA_0.5.1_val.json", "docvqa/val_v1.0_withQT.json")]
    files += [stand_ins.file(name) for name in ("ocrbench/OCRBench.json", "qa/questions.jsonl", "qa/questions.csv")]
    files.append(stand_ins.file("docvqa/ocr_results/xnbl0037_1.json"))
    files += [
        stand_ins.shards(f"{name}-*.parquet")[0] for name in ("textvqa/validation", "textvqa/boxes", "ocrbench/test")
    ]
    for file in files:
        check_format(configured(FORMATS.get(detect_format(file)), {}), file)
    file = data / "mini_textocr" / "TextOCR_mini_val.json"
    refused("format textocr reads one file, 2 were given", read_annotations, [file, file], {})


def encoded(colour: int, form: str = "PNG", **options: Any) -> dict[str, Any]:
    target = io.BytesIO()
    Image.new("RGB", (40, 20), (colour, 0, 0)).save(target, format=form, **options)
    return {"bytes": target.getvalue(), "path": None}


@pytest.mark.parametrize(
    "copies",
    [[encoded(7)] * 3, [encoded(7), encoded(7, compress_level=0), encoded(7, "BMP")]],
    ids=["the same bytes", "the same pixels"],
)
@pytest.mark.parametrize(
    "asks", [{"answers": ["Ada"]}, {"question_type": "Doc-oriented VQA", "answer": ["Ada"]}], ids=["qa", "ocrbench"]
)
def test_rows_that_share_a_picture_make_one_image(
    tmp_path: Path, copies: list[dict[str, Any]], asks: dict[str, Any]
) -> None:
    rows = [{"question": f"Who {i}?", "image": image, **asks} for i, image in enumerate([encoded(8), *copies])]
    ingest = load_regions(parquet(tmp_path / "q.parquet", rows))
    first, *shared = ingest.probes
    assert len({(probe.image, probe.image_id) for probe in shared}) == 1
    assert first.image_id != shared[0].image_id
    assert shared[0].image_id.endswith("1"), "the id of the first that has it, as ever"
    assert (ingest.counts.images, ingest.counts.questions, ingest.counts.images_same_as_another) == (2, 4, 2)
    assert ingest.packed is not None
    assert ingest.packed.unpack(tmp_path / "images", {probe.image for probe in ingest.probes}) == 2


def test_files_beside_that_show_one_picture_are_one_image(tmp_path: Path) -> None:
    for name, image in {"a.png": encoded(7), "b.bmp": encoded(7, "BMP"), "c.png": encoded(8)}.items():
        (tmp_path / name).write_bytes(image["bytes"])
    asks = [
        {"image": name, "question": "Who?", "answers": ["Ada"], "image_id": f"i{i}"}
        for i, name in enumerate(("a.png", "b.bmp", "c.png", "a.png", "gone.png"))
    ]
    ingest = load_regions(lines(tmp_path / "q.jsonl", *asks))
    assert [(probe.image, probe.image_id) for probe in ingest.probes] == [
        ("a.png", "i0"), ("a.png", "i0"), ("c.png", "i2"), ("a.png", "i0"), ("gone.png", "i4"),
    ]  # fmt: skip
    assert "2 images same as another" in ingest.counts.notes()
