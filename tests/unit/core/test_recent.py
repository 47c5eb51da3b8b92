from __future__ import annotations

from sightline.core.cache import Recent


def test_what_was_not_used_for_longest_is_forgotten() -> None:
    made: list[str] = []
    recent: Recent[str, str] = Recent(2)

    def value(key: str) -> str:
        return recent.get(key, lambda: made.append(key) or key.upper())

    assert [value(key) for key in "abacab"] == list("ABACAB")
    assert made == ["a", "b", "c", "b"]
    assert len(recent) == 2
