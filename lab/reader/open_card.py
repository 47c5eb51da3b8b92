"""The part of the model card about open questions: figures from rows, aims, and what is said about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab.reader.card_aims import CardTarget, Lines, interval
from lab.scenes.open_questions import TEMPLATES
from sightline.errors import SightlineError

if TYPE_CHECKING:
    import pandas as pd

OPEN_ARMS = (
    "full",
    "target:0.3",
    "target_grid:0.3",
    "random:0.3",
    "grid:0.3",
    "protected:0.3",
    "anti_evidence:0.3",
    "full+remove_evidence",
    "full+blank",
)
"""What the run of open questions must hold."""
OPEN_METRICS = ("exact", "pos_ecr", "unsupported")
OPEN_TITLES = ("Exact match", "ECR", "Unsupported")
ORACLE_BOXES = "gt"
"""Box source that shows selectors the regions of open questions, which no other one does."""
WRONG_ROW = "full, wrong image"


@dataclass(frozen=True)
class OpenFigures:
    """What a card says about open questions, as measured."""

    table: Lines
    """Arm -> its line of ``arm_summary``; the wrong image has a line of its own."""
    kinds: Mapping[str, Mapping[str, float]]
    """Arm -> kind of question -> exact match."""
    questions: int
    images: int


def open_figures(frame: pd.DataFrame, wrong: pd.DataFrame) -> OpenFigures:
    """``frame``: rows of ``OPEN_ARMS``; ``wrong``: rows of full on the same questions about wrong images."""
    from sightline.statistics.summaries import arm_summary

    missing = [arm for arm in OPEN_ARMS if arm not in set(frame["arm"])]
    if missing:
        raise SightlineError(
            f"the run of open questions has no arm {missing[0]}; the card needs {', '.join(OPEN_ARMS)}"
        )
    if "exact" not in frame or not (frame["label"] == "open").all():
        raise SightlineError("the run of open questions holds others too; audit open_probes.jsonl with the scorer open")
    blind = frame.loc[frame["arm"] == "anti_evidence:0.3", "box_source"]
    if not (blind == ORACLE_BOXES).all():
        raise SightlineError(f"anti_evidence saw no regions; run the open questions with --box-source {ORACLE_BOXES}")
    if wrong.empty or "exact" not in wrong:
        raise SightlineError("there are no open answers about wrong images; audit open_wrong_images.jsonl under full")
    lines = arm_summary(frame, metrics=OPEN_METRICS).to_dict("records")
    lines += arm_summary(wrong.assign(arm=WRONG_ROW), metrics=OPEN_METRICS).to_dict("records")
    by_kind = frame.groupby(["arm", "kind"])["exact"].mean()
    kinds = {arm: {str(kind): float(value) for kind, value in by_kind[arm].items()} for arm in OPEN_ARMS}
    count = int((frame["arm"] == "full").sum())
    return OpenFigures({line["arm"]: line for line in lines}, kinds, count, frame["image_id"].nunique())


def judge_open(table: Lines) -> list[CardTarget]:
    """The aims for open answers, against one line per arm of ``OPEN_ARMS`` and one for the wrong image."""

    def exact(arm: str) -> float:
        return float(table[arm]["exact"])

    full, loss = exact("full"), exact("full") - exact("random:0.3")
    targets = [
        CardTarget("open answers, Full: exact match at least 0.92", f"{full:.3f}", full >= 0.92),
        CardTarget("open answers, Random at 30 %: at least 0.30 below Full", f"{loss:.3f}", loss >= 0.30),
    ]
    for arm, words, most in (
        ("anti_evidence:0.3", "no evidence cell among the 30 % kept", 0.15),
        ("full+blank", "blank image", 0.05),
        (WRONG_ROW, "wrong image", 0.05),
    ):
        aim = f"open answers, {words}: exact match at most {most:.2f}"
        targets.append(CardTarget(aim, f"{exact(arm):.3f}", exact(arm) <= most))
    return targets


def open_section(figures: OpenFigures, whole: bool = True) -> str:
    """``whole``: whether all of the confirmation set was asked, not its first images alone."""
    what = "Confirmation set" if whole else "First images of the confirmation set"
    lines = [
        "## Held-out figures: open questions",
        "",
        f"{what} of open questions, {figures.questions} on {figures.images} images, answered by greedy "
        "generation; fonts, words and layout seeds that training never used. Exact match but for case, punctuation and "
        "blanks; 95 % intervals over images.",
        "",
        "| arm | " + " | ".join(OPEN_TITLES) + " |",
        "|---|" + "---|" * len(OPEN_TITLES),
    ]
    for arm in (*OPEN_ARMS, WRONG_ROW):
        name = f"`{arm}`" if arm in OPEN_ARMS else arm
        lines.append(f"| {name} | " + " | ".join(interval(figures.table[arm], name) for name in OPEN_METRICS) + " |")
    kinds = [kind for kind in TEMPLATES if kind in figures.kinds["full"]]
    lines += ["", "Exact match by kind of question:", "", "| arm | " + " | ".join(kinds) + " |"]
    lines.append("|---|" + "---|" * len(kinds))
    for arm in OPEN_ARMS:
        lines.append(f"| `{arm}` | " + " | ".join(f"{figures.kinds[arm][kind]:.3f}" for kind in kinds) + " |")
    lines += [
        "",
        "ECR is over all regions of a question: answer and label, of comparisons both values and both labels. Methods "
        "that read boxes were shown these regions (`--box-source gt`): oracles, no ranking.",
        "",
    ]
    return "\n".join(lines)


def examples() -> str:
    """The wordings, as a list."""
    return "\n".join(f"- `{template.format('X', 'Y')}`" for template in TEMPLATES.values())


def open_legs(training: Mapping[str, Any]) -> bool:
    """Whether the reader was trained on open questions."""
    return any(leg.get("open") or leg.get("both") for leg in training["history"]["legs"])


OPEN_DATA = """\
Open questions name a word of the scene and ask for a text beside or below it, for the value of a label, for the total
of a bill or for the larger of two values (at least one and a half times the other; the answer is the value as it is
spelled). A question is asked only where its word occurs once on the page and one text alone can be meant. Bills, forms
and registers were drawn for them, with seeds of their own. The words of a bill's sums (`total`, `subtotal`, `cash`,
`change`, `grand`, `due`) are drawn in every split: a question about the total has to use the word. They are the one
exception to the rule above; a few of the yes/no probes of the confirmation set ask for `total` or `Total`. To keep the
files small, held-out images of open questions have noise of at most 2 levels; in training it goes up to 9.
"""

OPEN_TRAINING_NOTES = """\
**Open questions** were learned on top of the reader of yes/no questions: 70 % of the images of such a leg are asked
open questions, whose answers are spelled letter by letter (`letters`; `exact` is the share without a mistake), the
others go on with yes/no. Where visual tokens were dropped, questions whose value lies mostly among them are left out of
the loss; in a leg with silence, those of which no cell is left are trained to be answered with nothing.

After the first of these legs 19 % of the open answers on development scenes were right although all cells of their
evidence had been dropped, of the totals of bills 44 %: on pages with few words the vision tower seems to carry values
into empty cells. Hence the silence of the second leg, after which none was (384 questions, Full 0.961). Nothing was
measured on the confirmation set before training was over.
"""

BOTH_TRAINING_NOTES = """\
**Open questions** were asked of half of the images from the first step on; in the joint stage their answers are spelled
letter by letter (`letters`; `exact` is the share without a mistake). Where visual tokens were dropped, questions whose
value lies mostly among them are left out of the loss; in a leg with silence, those of which no cell is left are trained
to be answered with nothing. Nothing was measured on the confirmation set before training was over.
"""
