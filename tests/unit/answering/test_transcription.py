"""A page written down: character and word errors, and which of its texts were found."""

from types import SimpleNamespace
from typing import Any

import pytest

from sightline.answering.scorers.spoken import Utterance
from sightline.answering.scorers.transcription import Transcription, hits_by_text, word_errors
from sightline.core.probe import Probe

TEXTS = [["ACME Store", 0.1, 0.1, 0.4, 0.12], ["Total:", 0.1, 0.5, 0.2, 0.52], ["$8.87", 0.7, 0.5, 0.8, 0.52]]


def judged(written: str) -> dict[str, Any]:
    scorer = Transcription()
    scorer.tokenizer = lambda text: SimpleNamespace(input_ids=text.split())
    probe = Probe("p", "p.png", "p", "Transcribe.", "open", "", "", (), answers=("",), extra={"page": TEXTS})
    return scorer.judge(probe, Utterance(written, 4, 0.1), "full")


def test_errors_of_characters_and_words_and_which_texts_were_found() -> None:
    row = judged("ACME Store\ntotal:  $8.87")
    assert (row["character_errors"], row["word_errors"], row["words_found"]) == (0.0, 0.0, 1.0)
    assert row["correct"]
    assert row["score"] == 1.0
    assert row["text_hits"] == [1.0, 1.0, 1.0]
    assert row["text_tokens"] == 4
    row = judged("ACME Store 8.87")
    assert row["text_hits"] == [1.0, 0.0, 1.0]
    assert row["words_found"] == 0.75
    assert row["word_errors"] == 0.25
    assert row["character_errors"] == pytest.approx(6 / len("acme store total 8.87"))
    assert not row["correct"]
    assert hits_by_text(["a b", "c"], ["c", "a", "b"]) == [1.0, 0.0]
    assert word_errors(["a", "b"], ["a", "x", "b", "y"]) == 1.0
    assert judged("")["score"] == 0.0
