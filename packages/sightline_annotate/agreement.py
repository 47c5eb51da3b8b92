"""How far people agree, as figures and as a page."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from sightline.analysis.regions import DrawnTwice, drawn_twice, label_agreement, region_agreement, role_agreement
from sightline.auditing.loop import preview
from sightline.core.table import Table, TableColumn
from sightline.errors import SightlineError
from sightline.places.writing import make_folder, write_whole
from sightline.probes.images import open_image
from sightline.report.page import Page, render
from sightline.report.sections import ChartGroup, Section
from sightline.report.svg import Scale, chart, tag, tick
from sightline.statistics.agreement import agreement_rate
from sightline.statistics.bootstrap import DRAWS
from sightline_annotate.campaign import Campaign, Judgements, boxes_and_labels
from sightline_annotate.files import typed_answer
from sightline_annotate.items import BOXES, CampaignKind
from sightline_annotate.journal import FIRST, SECOND

# How far two people agreed before anybody decided between them: fields, validity, boxes, roles.

VALIDITY, EVERY_FIELD, ALL = "valid or not", "all fields alike", "all"


@dataclass(frozen=True)
class AgreementReport:
    """The tables of one campaign."""

    kind: CampaignKind
    people: tuple[tuple[str, ...], tuple[str, ...]]
    """Who read first, who second."""
    fields: pd.DataFrame
    boxes: pd.DataFrame
    """Empty where nobody drew boxes, like the next."""
    roles: pd.DataFrame
    disputed: int
    adjudicated: int

    @property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        named = {"fields": self.fields, "boxes": self.boxes, "roles": self.roles}
        return {name: table for name, table in named.items() if not table.empty}


def agreement_report(kind: CampaignKind, judgements: Sequence[Judgements], *, draws: int = DRAWS) -> AgreementReport:
    """Over the items that two people read, as they left them."""
    both = [each for each in judgements if each.twice is not None]
    if not both:
        raise SightlineError(
            "no item has been read by two people yet; 'sightline annotate CAMPAIGN --as NAME --second'"
        )
    first, second = (tuple(sorted({each.given[name].who for each in both})) for name in (FIRST, SECOND))
    boxes, roles = (pd.DataFrame(lines) for lines in _drawn_lines(both if kind.draws_boxes else []))
    return AgreementReport(
        kind,
        (first, second),
        pd.DataFrame(_field_lines(kind, both, draws)),
        boxes,
        roles,
        disputed=sum(bool(each.differing) for each in both),
        adjudicated=sum(bool(each.differing) and not each.disputed for each in both),
    )


def _field_lines(kind: CampaignKind, both: Sequence[Judgements], draws: int) -> list[dict[str, object]]:
    answers = [each.twice for each in both if each.twice is not None]
    columns: dict[str, tuple[list[str], list[str]]] = {
        field.name: ([a[field.name] for a, _ in answers], [b[field.name] for _, b in answers]) for field in kind.fields
    }
    valid = [[str(kind.is_valid(pair[side])) for pair in answers] for side in (0, 1)]
    columns[VALIDITY] = (valid[0], valid[1])
    lines: list[dict[str, object]] = [
        {"field": name, "n": len(one), **label_agreement(one, two, draws)} for name, (one, two) in columns.items()
    ]
    alike = agreement_rate(["alike"] * len(both), ["differ" if each.differing else "alike" for each in both])
    rate = {"agreement": alike.value, "agreement_low": alike.low, "agreement_high": alike.high}
    return [*lines, {"field": EVERY_FIELD, "n": len(both), **rate}]


def _drawn_lines(drawn: Sequence[Judgements]) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """How boxes agree, and roles."""
    boxes: list[dict[str, object]] = []
    roles: list[dict[str, object]] = []
    for scope, own in _scopes(drawn).items():
        if pairs := _pairs(own):
            boxes.append({"scope": scope, **region_agreement(pairs)})
            for role, found in role_agreement(pairs).items():
                if found.first or found.second:
                    counts = {"first": found.first, "second": found.second, "both": found.both}
                    roles.append({"scope": scope, "role": role, "n": len(pairs), **counts, "f1": found.f1})
    return boxes, roles


def _scopes(drawn: Sequence[Judgements]) -> dict[str, Sequence[Judgements]]:
    """All, and every benchmark of its own where there are several."""
    tasks = sorted({each.item.task for each in drawn})
    apart = {task: [each for each in drawn if each.item.task == task] for task in tasks} if len(tasks) > 1 else {}
    return {ALL: drawn, **apart}


def _pairs(drawn: Sequence[Judgements]) -> list[DrawnTwice]:
    rows = [tuple(typed_answer(each.item, fields) for fields in each.twice) for each in drawn if each.twice is not None]
    return drawn_twice([row[0] for row in rows], [row[1] for row in rows])


# The agreement of two people as a page in the report's hand: pictures of where they differ first, then tables.

HTML = "agreement.html"
SHOWN = 3
"""How many items are shown on which two people's boxes differ most."""
COLOURS = ("#0072b2", "#d55e00")
WIDTH, LINE, LEFT = 560, 30, 250
PICTURE, LONGEST = 370, 56
"""Width of a picture, and how many letters of a question fit below it."""


def write_agreement(out: Path, found: AgreementReport, campaign: Campaign, judgements: Sequence[Judgements]) -> Path:
    """Writes agreement.html and tables/ and returns the page."""
    make_folder(out)
    page = _page(found, campaign, judgements)
    page.write_tables(out / "tables")
    write_whole(out / HTML, render(page).encode())
    return out / HTML


def _page(found: AgreementReport, campaign: Campaign, judgements: Sequence[Judgements]) -> Page:
    sections = [_fields_section(found)]
    if not found.boxes.empty:
        sections.insert(0, _boxes_section(found, campaign, judgements))
    first, second = (" and ".join(names) for names in found.people)
    facts = [
        ("campaign", found.kind.name),
        ("items read twice", str(found.fields["n"].iloc[0])),
        ("first", first),
        ("second", second),
        ("disagreements", f"{found.disputed}, of which {found.adjudicated} adjudicated"),
    ]
    method = (
        "Agreement has Wilson's 95% interval, kappa a percentile interval over resampled items. Both people worked "
        "without seeing each other's answers or any model's; what a third person decided later changes nothing here."
    )
    return Page(f"Agreement: {found.kind.title}", [facts], [], [], [], sections, None, None, method)


def _fields_section(found: AgreementReport) -> Section:
    names = [str(name).replace("_", " ") for name in found.fields["field"]]
    table = Table(
        "fields",
        "Agreement by field",
        "Kappa is agreement beyond chance; near 0 with high agreement means that almost all items got the same answer.",
        [
            TableColumn("name", "Field"),
            TableColumn("n", "Items", "count"),
            TableColumn("agreement", "Agreement", "score", interval=True),
            TableColumn("kappa", "Cohen's kappa", "score", interval=True),
        ],
        found.fields.assign(name=names),
    )
    figures = [
        whiskers(names, found.fields, "agreement", "Agreement", 0.0),
        whiskers(names, found.fields, "kappa", "Cohen's kappa", min(0.0, float(found.fields["kappa_low"].min()))),
    ]
    return Section("fields", "Fields", charts=[ChartGroup("", figures)], tables=[table])


def whiskers(names: Sequence[str], frame: pd.DataFrame, key: str, title: str, low: float) -> Markup:
    """One dot with its interval per line."""
    rows = [
        (name, record) for name, record in zip(names, frame.to_dict("records"), strict=True) if not pd.isna(record[key])
    ]
    height = LINE * len(rows) + 58
    x = Scale(low, 1.0, LEFT, WIDTH - 20)
    parts = []
    for value in x.ticks():
        parts.append(tag("line", x1=x(value), x2=x(value), y1=24, y2=height - 30, class_="grid"))
        parts.append(tag("text", tick(value), x=x(value), y=height - 12, text_anchor="middle", class_="tick"))
    for place, (name, record) in enumerate(rows):
        y = 24 + LINE * (place + 0.5)
        said = f"{name}: {record[key]:.3f} ({record[f'{key}_low']:.3f} to {record[f'{key}_high']:.3f})"
        shown = name if len(name) <= 38 else f"{name[:37]}…"
        parts.append(tag("text", tag("title", said), shown, x=LEFT - 10, y=y + 4, text_anchor="end"))
        parts.append(tag("line", x1=x(record[f"{key}_low"]), x2=x(record[f"{key}_high"]), y1=y, y2=y, class_="whisker"))
        parts.append(tag("circle", tag("title", said), cx=x(record[key]), cy=y, r=5, fill=COLOURS[0], class_="point"))
    parts.append(tag("text", title, x=LEFT, y=14, class_="label"))
    description = "; ".join(f"{name} {record[key]:.3f}" for name, record in rows)
    return chart(WIDTH, height, title, description, *parts)


def _boxes_section(found: AgreementReport, campaign: Campaign, judgements: Sequence[Judgements]) -> Section:
    columns = {
        "same_count": ("As many boxes", "count"), "same_roles": ("Same roles", "count"),
        "all_matched": ("All matched", "count"), "matched_iou": ("Matched IoU", "score"),
        "union_iou": ("Union IoU", "score"), "first_covered": ("First covered", "score"),
        "second_covered": ("Second covered", "score"),
    }  # fmt: skip
    boxes = Table(
        "boxes",
        "Boxes of two people",
        "Boxes are matched greedily by IoU, pairs that do not touch included. All matched: equally many boxes and "
        "every pair at IoU 0.5 or more. Covered: the share of one person's area that the other marked too.",
        [TableColumn("scope", "Questions"), TableColumn("n", "n", "count")]
        + [TableColumn(key, title, kind) for key, (title, kind) in columns.items()],  # type: ignore[arg-type]
        found.boxes,
    )
    roles = Table(
        "roles",
        "Roles of two people",
        "Questions with a box of the role by the first person, the second, both; F1 is 2 both / (first + second).",
        [
            TableColumn("scope", "Questions"), TableColumn("role", "Role"), TableColumn("first", "First", "count"),
            TableColumn("second", "Second", "count"), TableColumn("both", "Both", "count"),
            TableColumn("f1", "F1", "score"),
        ],
        found.roles.assign(role=[str(role).replace("_", " ") for role in found.roles["role"]]),
        repeated=("scope",),
    )  # fmt: skip
    worst = sorted((each for each in judgements if BOXES in each.differing), key=lambda each: each.boxes.union_iou)
    pictures = [_picture(campaign, each) for each in worst[:SHOWN]]
    title = "Where they differ most: the first person's boxes solid, the second's dashed" if pictures else ""
    return Section("boxes", "Boxes", charts=[ChartGroup(title, pictures)] if pictures else [], tables=[boxes, roles])


def _picture(campaign: Campaign, each: Judgements) -> Markup:
    """The image with both people's boxes, and below it the question."""
    assert each.twice is not None
    image = open_image(campaign.images, each.item.views[0].image)
    data = base64.b64encode(preview(image)).decode()
    width, height = PICTURE, round(PICTURE * image.height / image.width)
    parts = [tag("image", href=f"data:image/jpeg;base64,{data}", width=width, height=height)]
    for side, fields in enumerate(each.twice):
        for (x1, y1, x2, y2), label in zip(*boxes_and_labels(fields), strict=True):
            place = {"x": x1 * width, "y": y1 * height, "width": (x2 - x1) * width, "height": (y2 - y1) * height}
            line = {"stroke": COLOURS[side], "stroke_width": 2.5, "stroke_dasharray": "6 4" if side else None}
            title = tag("title", f"{('first', 'second')[side]}: {label}")
            parts.append(tag("rect", title, **place, fill="none", **line))
    question, overlap = each.item.question, f"union IoU {each.boxes.union_iou:.2f}"
    shown = question if len(question) <= LONGEST else f"{question[: LONGEST - 1]}…"
    parts.append(tag("text", shown, x=0, y=height + 17, class_="strong"))
    parts.append(tag("text", overlap, x=0, y=height + 33, class_="tick"))
    return chart(width, height + 40, question, overlap, *parts)
