"""The reader's model card: every figure comes from training.json or from the rows of the runs it is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.reader.card_aims import CardTarget, Lines, aims, interval
from lab.reader.curves import curves_svg
from lab.reader.forms import FORMS, QWEN3_VL
from lab.reader.open_card import (
    BOTH_TRAINING_NOTES,
    OPEN_DATA,
    OPEN_TRAINING_NOTES,
    examples,
    judge_open,
    open_figures,
    open_legs,
    open_section,
)
from lab.reader.training_record import read_record
from sightline.checks import demo as shipped_demo
from sightline.errors import SightlineError
from sightline.places.writing import write_whole

if TYPE_CHECKING:
    import pandas as pd

CARD, CURVES = "README.md", "curves.svg"
MAIN = ("accuracy", "positive_accuracy", "hfpr", "pos_ecr", "unsupported")
TITLES = ("Accuracy", "TPR", "hFPR", "PosECR", "Unsupported")
ARMS = (
    *shipped_demo.ARMS,
    "anti_evidence:0.3",
    "full+occlude_evidence",
    "full+occlude_random",
    "full+remove_evidence",
    "full+blank",
)
"""What the run of a card must hold."""


def write_card(
    model: Path, run: Path, controls: Path, open_run: Path | None = None, open_controls: Path | None = None
) -> list[Path]:
    """Writes README.md and curves.svg into the checkpoint folder ``model``.

    ``open_run`` and ``open_controls`` are runs on open questions and on the same about wrong images; a reader that was
    trained on open questions has no card without them.
    """
    from sightline.statistics.summaries import arm_summary

    training = read_record(model)
    form = FORMS[training.get("form", QWEN3_VL.name)]
    answers_open = open_legs(training)
    if answers_open and (open_run is None or open_controls is None):
        raise SightlineError(f"{model} was trained on open questions; its card needs --open-run and --open-controls")
    runs = [_frame(folder) for folder in (run, controls, open_run, open_controls) if folder is not None]
    frame, manifest = runs[0]
    policies = sorted({each["positions"] for _, each in runs})
    if len(policies) > 1:
        raise SightlineError(f"the runs of a card differ in --positions ({', '.join(policies)}); make them with one")
    table: Lines = {line["arm"]: line for line in arm_summary(frame, metrics=MAIN).to_dict("records")}
    missing = [arm for arm in ARMS if arm not in table]
    if missing:
        raise SightlineError(f"{run} has no arm {missing[0]}; the card needs {', '.join(ARMS)}")
    wrong = _wrong_images(runs[1][0])
    if wrong.empty:
        raise SightlineError(f"{controls} holds no wrong-image rows; run full on an image-free control set")
    image_free = {str(view): float(rows["correct"].mean()) for view, rows in wrong.groupby("intervention")}
    targets = judge(table, image_free)
    parts = [
        HEAD.format(
            parameters=training["parameters"] / 1e6, questions=OPEN_HEAD if answers_open else YES_NO_HEAD, form=form
        ),
        figures(table, manifest, frame),
        f"Wrong images: {wrong.groupby('intervention').size().min()} probes of each draw.\n",
    ]
    if answers_open:
        measured = open_figures(runs[2][0], _wrong_images(runs[3][0]))
        targets += judge_open(measured.table)
        parts.append(open_section(measured, whole=runs[2][1].get("limit") is None))
    parts += [aims(targets), DATA, *([OPEN_DATA] if answers_open else []), legs(training), TRAINING_NOTES]
    kinds = {kind for leg in training["history"]["legs"] for kind in ("open", "both") if leg.get(kind)}
    parts += [
        form.story,
        *([OPEN_TRAINING_NOTES] if "open" in kinds else []),
        *([BOTH_TRAINING_NOTES] if "both" in kinds else []),
        LIMITS.format(form=form, questions=OPEN_LIMIT if answers_open else YES_NO_LIMIT),
    ]
    write_whole(model / CARD, "\n".join(parts).encode())
    write_whole(model / CURVES, curves_svg(training["curves"]).encode())
    return [model / CARD, model / CURVES]


def judge(table: Lines, image_free: dict[str, float]) -> list[CardTarget]:
    """The aims that the reader was trained for, against a table with one line per arm of ``ARMS``."""

    def of(arm: str, metric: str = "accuracy") -> float:
        return float(table[arm][metric])

    full, target, random = of("full"), of("target:0.3"), of("random:0.3")
    recall = of("full", "positive_accuracy")
    lead = of("target:0.3", "pos_ecr") - max(of("random:0.3", "pos_ecr"), of("grid:0.3", "pos_ecr"))
    costs = {
        "anti_evidence:0.3": "no evidence cell among the 30 % kept",
        "full+occlude_evidence": "evidence box grayed in the image",
        "full+remove_evidence": "evidence cells alone removed",
    }
    targets = [
        CardTarget("Full accuracy at least 0.95", f"{full:.3f}", full >= 0.95),
        CardTarget("Full hFPR at most 0.06", f"{of('full', 'hfpr'):.3f}", of("full", "hfpr") <= 0.06),
        CardTarget("Target's PosECR at 30 % at least 0.40 above Random's and Grid's", f"{lead:+.3f}", lead >= 0.40),
        CardTarget(
            "Target's accuracy at 30 % within 0.05 of Full's", f"{target - full:+.3f}", abs(target - full) <= 0.05
        ),
        CardTarget("Random's accuracy at 30 % in 0.65..0.88", f"{random:.3f}", 0.65 <= random <= 0.88),
    ]
    for arm, words in costs.items():
        cost = recall - of(arm, "positive_accuracy")
        targets.append(CardTarget(f"{words}: costs at least 0.25 on positives", f"{cost:.3f}", cost >= 0.25))
    blank = of("full+blank")
    targets.append(CardTarget("blank image: accuracy 0.50 +- 0.03", f"{blank:.3f}", abs(blank - 0.5) <= 0.03))
    for view, accuracy in sorted(image_free.items()):
        seed = view.removeprefix("image_mismatch_seed")
        aim = f"wrong image (draw {seed}): accuracy 0.50 +- 0.03"
        targets.append(CardTarget(aim, f"{accuracy:.3f}", abs(accuracy - 0.5) <= 0.03))
    return targets


def figures(table: Lines, manifest: dict[str, Any], frame: pd.DataFrame) -> str:
    probes, images = frame["probe_id"].nunique(), frame["image_id"].nunique()
    what = "Confirmation set" if manifest.get("limit") is None else "First images of the confirmation set"
    lines = [
        "## Held-out figures",
        "",
        f"{what}: {probes} probes on {images} images, one positive and one hard negative each; fonts, "
        f"words and layout seeds that training never used. Run in {manifest['dtype']} with "
        f"`--positions {manifest['positions']}`; 95 % intervals over images.",
        "",
        "| arm | " + " | ".join(TITLES) + " |",
        "|---|" + "---|" * len(TITLES),
    ]
    for arm in ARMS:
        cells = [interval(table[arm], metric) for metric in MAIN]
        lines.append(f"| `{arm}` | " + " | ".join(cells) + " |")
    lines += [
        "",
        "`Unsupported` is the share of right yes answers none of whose evidence cells was kept. In the rows that "
        "edit the image (`occlude`, `blank`) PosECR counts cells, not what is left to see in them.",
        "",
    ]
    return "\n".join(lines)


def legs(training: dict[str, Any]) -> str:
    """Legs, and the log thinned to a dozen lines."""
    lines = [
        "## Training",
        "",
        "| leg | schedule | trained | device | minutes | batch | peak rate |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, leg in enumerate(training["history"]["legs"], start=1):
        what = "language layers" if leg.get("language_only") else "all"
        what += ", open questions too" * bool(leg.get("open") or leg.get("both"))
        what += ", silence" * bool(leg.get("silence"))
        device = leg.get("device", "not recorded")
        minutes, batch, rate = leg["minutes"], leg["batch"], leg["lr"]
        lines.append(f"| {number} | {leg['progress']} | {what} | {device} | {minutes:g} | {batch} | {rate:g} |")
    named = ("slots", "bigrams", "align", "rank", "page", "answer", "spelling", "letters", "accuracy", "exact")
    names = [name for name in named if any(name in entry for entry in training["curves"])]
    lines += ["", f"![training curves]({CURVES})", "", "| step | " + " | ".join(names) + " |"]
    lines.append("|---|" + "---|" * len(names))
    curves = training["curves"]
    for entry in curves[:: max(1, len(curves) // 12)] + curves[-1:]:
        cells = [f"{entry[name]:.3f}" if name in entry else "" for name in names]
        lines.append(f"| {entry['step']:.0f} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _frame(folder: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The rows, those of an intervention or of a control view under a name of their own, and the manifest."""
    from sightline.rows.run import load_run

    run = load_run(folder)
    frame = run.frame()
    plain = frame["plain_arm"]
    names = plain.where(frame["intervention"] == "none", plain + "+" + frame["intervention"])
    return frame.assign(arm=names), run.manifest


def _wrong_images(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["intervention"].str.startswith("image_mismatch")]


HEAD = """\
---
license: apache-2.0
library_name: transformers
pipeline_tag: image-text-to-text
---

# Sightline's embedded reader

A small vision-language model ({parameters:.2f} M parameters, bfloat16) in {form.words}.

{questions}
The images are synthetic scenes of 448 x 448 pixels ({form.side} x {form.side} visual tokens). It exists so that an
audit of visual-token pruning can be run, tested and understood without downloading anything; it is no general model.

```python
from transformers import AutoModelForImageTextToText
model = AutoModelForImageTextToText.from_pretrained("sightline/assets/{form.folder}")
```
"""

YES_NO_HEAD = 'It answers one question, `Does the image contain the exact text "..."? Answer yes or no.`.'
OPEN_HEAD = f"""\
It answers `Does the image contain the exact text "..."? Answer yes or no.` and, in words, these open questions:

{examples()}
"""

DATA = """\
## Data

Drawn by the repository itself (`python -m lab scenes` draws the held-out sets): receipts, forms, signs, tables,
screens, pages, scattered words; 14 to 24 px type; rotation up to 3 degrees, uneven light, blur, noise. 50 free fonts:
40 for training, 5 for the development set, 5 for the confirmation set. Strings (everyday words from our own list,
invented words, numbers, prices, dates, codes) are split by a checksum: no string of a held-out set was ever drawn in
training. No photographs, no scraped text, no personal data. The confirmation images are stored as JPEG (quality 75);
training images were never compressed.

Questions: half ask for a word of the scene; 38 % for a near miss of one, 65 % of those made by the same rules that make
the hard negatives of the probe sets (`sightline.probes.hard_pairs`), the others random edits; 12 % for words from
elsewhere. The reader is thus trained on the kind of negative it is tested on; its hFPR says nothing about other models.

In the joint stage 55 % of the training images lose visual tokens (at random, or all but what `target` would keep), so
that a pruned prefix is nothing new to it.
"""

TRAINING_NOTES = """\
`slots`, `bigrams`, `align` and `rank` supervise the vision tower alone (which character stands where; neighbouring
pairs; agreement of visual tokens with the input embeddings of their characters; the place of the word asked for under
`target`'s own score). `answer` and `spelling` run through the whole model. `target` is therefore trained to find the
evidence: its lead over Random and Grid is a property of this reader, not a finding about the method.
"""

YES_NO_LIMIT = "Yes or no to one fixed question. Other prompts give nonsense."
OPEN_LIMIT = "The fixed questions above and no others. Other prompts give nonsense."
LIMITS = """\
## Limits

- Upright Latin text of 14 px and more on 448 x 448 px scenes; {form.other_sizes}.
- {questions}
- Synthetic scenes are easier than photographs. Figures of this reader are no forecast for any other model.
- Neighbouring cells carry some of a word's evidence through the vision tower's attention: removing the evidence cells
  alone leaves more right answers than graying the evidence in the image. The audit exists to show such things.
{form.limits}\
- One training run, one seed.
"""
