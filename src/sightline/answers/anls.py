"""Average normalised Levenshtein similarity, the score of DocVQA and ST-VQA: small reading errors cost little."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sightline.answers.literal_match import without_punctuation
from sightline.core.edit_distance import edit_distance

THRESHOLD = 0.5


def anls(answer: str, accepted: Iterable[str]) -> float:
    """As published: case and repeated blanks do not matter, punctuation does.

    Per accepted answer 1 - distance / length of the longer text where that share is below ``THRESHOLD``, else 0; the
    best of them counts. That is the equation of both papers (Biten et al. 2019, Mathew et al. 2021). The challenge's
    script differs from it in one case: at a share of exactly one half it gives 0.5 instead of 0.
    """
    return _best(answer, accepted, lambda text: " ".join(text.lower().split()))


def anls_stripped(answer: str, accepted: Iterable[str]) -> float:
    """The same after all ASCII punctuation is deleted: what the paper's own tables were computed with."""
    return _best(answer, accepted, without_punctuation)


def _best(answer: str, accepted: Iterable[str], form: Callable[[str], str]) -> float:
    said = form(answer)
    return max((_similarity(said, each) for each in {form(each) for each in accepted}), default=0.0)


def _similarity(said: str, wanted: str) -> float:
    longer = max(len(said), len(wanted))
    if longer == 0:
        return 1.0
    if abs(len(said) - len(wanted)) >= THRESHOLD * longer:
        return 0.0  # as many insertions at least: the rest of the distance need not be known
    share = edit_distance(said, wanted) / longer
    return 1.0 - share if share < THRESHOLD else 0.0
