"""The paper's whole quality control replayed with its published counts: the same agreement, kappa and decisions."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sightline.probes.data_rows import read_table
from sightline.probes.regions import ROLES
from sightline.probes.typed_rows import read_decision_file
from sightline_annotate.agreement import EVERY_FIELD, VALIDITY, agreement_report
from sightline_annotate.campaign import Campaign, read_judgements
from sightline_annotate.files import sign_off
from sightline_annotate.journal import ADJUDICATION, FIRST, SECOND
from tests.unit.annotate.sample_campaign import EVIDENCE, boxed, said, sample_task

NOT_VISIBLE, PRESENT, UNCLEAR = "invalid_source_not_visible", "invalid_target_present", "unclear"


@pytest.fixture(scope="session")
def published(data: Path) -> Path:
    return data / "protocol" / "paper_evidence"


def values(path: Path, key: str = "scope") -> dict[tuple[str, str], str]:
    return {(row[key], row["metric"]): row["value"] for row in read_table(path)}


def read_twice(task: Campaign, first: dict[str, str], second: dict[str, str]) -> None:
    """Ann reads all, Bob the second sample; the given decisions, else valid."""
    named = {FIRST: ("ann", first), SECOND: ("bob", second)}
    task.journal.append_all(
        (pass_, who, item.id, said(task.kind, decisions.get(item.id, "")))
        for pass_, (who, decisions) in named.items()
        for item in task.items
        if pass_ == FIRST or item.second
    )


@pytest.fixture(scope="module")
def confirmation(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """500 items, 100 of them twice: five that both reject, six that Ann alone does, four that Bob alone does.

    These are the only counts that print an agreement of 0.900 and a kappa of 0.445 with both binary.
    """
    task = sample_task(tmp_path_factory.mktemp("confirmation") / "task", 500, second=0.2)
    twice = [item.id for item in task.items if item.second]
    once = [item.id for item in task.items if not item.second]
    assert len(twice) == 100
    ann = dict.fromkeys(twice[:11], NOT_VISIBLE) | dict.fromkeys(once[:25], NOT_VISIBLE) | {once[25]: PRESENT}
    bob = dict.fromkeys([*twice[:5], *twice[11:15]], NOT_VISIBLE)
    read_twice(task, ann, bob)
    disputed = [each.item.id for each in read_judgements(task) if each.disputed]
    assert len(disputed) == 10
    task.journal.append_all(
        (ADJUDICATION, "carol", name, said(task.kind, NOT_VISIBLE if place < 4 else ""))
        for place, name in enumerate(disputed)
    )
    return task


@pytest.mark.usefixtures("plain_percentiles")  # published as such; ours are wider where few items differ
def test_confirmation_agrees_and_decides_as_published(confirmation: Campaign, published: Path, tmp_path: Path) -> None:
    printed = values(published / "pre_adjudication_agreement_summary.csv", "field")
    report = agreement_report(confirmation.kind, read_judgements(confirmation))
    found: dict[Any, Any] = report.fields.set_index("field").to_dict("index")
    for field in ("human_source_text_visible", "source_bbox_matches_source_text", "qc_decision"):
        line = found[field]
        assert line["n"] == int(printed[field, "n"])
        exact = {"cohen_kappa": "kappa", "agreement_ci95_low": "agreement_low", "agreement_ci95_high": "agreement_high"}
        for metric, column in exact.items():
            assert f"{line[column]:.3f}" == printed[field, metric], (field, metric)
        # Other draws of the same bootstrap.
        assert line["kappa_low"] == pytest.approx(float(printed[field, "kappa_ci95_low"]), abs=0.02)
        assert line["kappa_high"] == pytest.approx(float(printed[field, "kappa_ci95_high"]), abs=0.02)
    printed = values(published / "locked_confirmation_human_qc_summary.csv")
    scope = "secondary_100_pre_adjudication"
    assert f"{found[VALIDITY]['agreement']:.3f}" == printed[scope, "validity_binary_agreement"]
    assert f"{found[VALIDITY]['kappa']:.3f}" == printed[scope, "validity_binary_cohen_kappa"]
    assert f"{found[EVERY_FIELD]['agreement']:.3f}" == printed[scope, "all_core_fields_exact_agreement"]
    assert report.disputed == int(printed[scope, "all_core_fields_disagreement_rows"])
    printed = values(published / "adjudication_summary.csv")
    counts = sign_off(confirmation, "dora", tmp_path / "decisions.jsonl")
    assert {("final_qc_decision", name): str(count) for name, count in counts.items()} == {
        key: value for key, value in printed.items() if key[0] == "final_qc_decision"
    }
    signed = read_decision_file(tmp_path / "decisions.jsonl")
    where = Counter(each.provenance for each in signed.decisions)
    published_as = {"agreement": "A_B_agreement", "adjudicated": "adjudicated_by_B", "first_only": "primary_A_only"}
    assert where == {name: int(printed["provenance", theirs]) for name, theirs in published_as.items()}
    assert len(signed.valid_images) == 465


def test_development_agrees_as_published(published: Path, tmp_path: Path) -> None:
    """Of 100 read twice 13 and 17 rejected, 8 by both: 0.860 and 0.453; the decisions differ in four more."""
    printed = values(published / "hard_negative_all500_qc_summary.csv")
    task = sample_task(tmp_path / "task", 500, second=0.2)
    twice = [item.id for item in task.items if item.second]
    ann = dict.fromkeys(twice[:13], NOT_VISIBLE)
    bob = dict.fromkeys(twice[:4], NOT_VISIBLE) | dict.fromkeys([*twice[4:8], *twice[13:22]], UNCLEAR)
    read_twice(task, ann, bob)
    fields = agreement_report(task.kind, read_judgements(task), draws=100).fields
    lines: dict[Any, Any] = fields.set_index("field").to_dict("index")
    scope = "secondary_100_pre_adjudication"
    assert f"{lines[VALIDITY]['agreement']:.3f}" == printed[scope, "validity_binary_agreement"]
    assert f"{lines[VALIDITY]['kappa']:.3f}" == printed[scope, "validity_binary_cohen_kappa"]
    assert f"{lines['qc_decision']['agreement']:.3f}" == printed[scope, "qc_decision_agreement"]


def test_roles_agree_as_published(published: Path, tmp_path: Path) -> None:
    """Questions with the published numbers of roles by one, the other and both: the published F1."""
    table = read_table(published / "annotation_label_type_summary.csv")
    printed = {row["label_type"]: row for row in table if row["scope"] == "all"}
    task = sample_task(tmp_path / "task", int(printed["answer_value"]["samples"]), EVIDENCE, second=1.0)
    for pass_, who, own in ((FIRST, "ann", "primary_present"), (SECOND, "bob", "secondary_present")):
        answers = []
        for number, item in enumerate(task.items):
            used = [role for role in ROLES if _uses(printed[role], own, number)]
            boxes = [(role, (0.1 * place, 0.1, 0.1 * place + 0.05, 0.2)) for place, role in enumerate(used)]
            answers.append((pass_, who, item.id, boxed(*(boxes or [("context", (0.9, 0.9, 1.0, 1.0))]))))
        task.journal.append_all(answers)
    found = agreement_report(task.kind, read_judgements(task), draws=100).roles
    lines = found[found["scope"] == "all"].set_index("role")
    for role, row in printed.items():
        if role != "context":  # it stands in where a question has no other role
            line = lines.loc[role]
            assert (line["first"], line["second"], line["both"]) == tuple(
                int(row[name]) for name in ("primary_present", "secondary_present", "both_present")
            )
            assert f"{line['f1']:.4f}" == f"{float(row['positive_f1']):.4f}"


def _uses(row: dict[str, str], own: str, number: int) -> bool:
    """Both use a role on the first questions, the first person alone on the next, the second alone on those after."""
    both, first, second = (int(row[name]) for name in ("both_present", "primary_present", "secondary_present"))
    alone = range(both, first) if own == "primary_present" else range(first, first + second - both)
    return number < both or number in alone
