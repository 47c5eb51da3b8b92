"""Can the losses of both answers be compared? They have to have the same number of tokens."""

from __future__ import annotations

from sightline.answering.scorers.yes_no import YesNo
from sightline.checks.doctor.asked_page import PROBE, AskedPage
from sightline.checks.doctor.examination import Check


def one_token_answers(page: AskedPage) -> Check:
    yes, no = YesNo().prompt(page.backbone, PROBE).scored
    passed = len(yes) == len(no) > 0
    return Check(
        passed,
        f"answers: ' yes' scores {len(yes)} tokens and ' no' {len(no)}"
        + ("" if passed else "; mean losses of different lengths are not comparable"),
        {"yes": len(yes), "no": len(no)},
    )
