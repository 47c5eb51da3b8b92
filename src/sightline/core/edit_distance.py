"""How many characters must be inserted, deleted or replaced to make one text of another."""

from __future__ import annotations


def edit_distance(one: str, other: str) -> int:
    """Levenshtein distance, a column of its table at a time as bits of whole numbers (Myers 1999; Hyyrö 2003).

    Bit i of ``up`` (``down``) says that the table grows (falls) by 1 from line i to line i + 1; ``distance`` follows
    the last line. Every column takes a handful of operations, however long ``one`` is.
    """
    if not one or not other:
        return len(one) + len(other)
    places: dict[str, int] = {}
    for place, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << place
    every, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    up, down, distance = every, 0, len(one)
    for character in other:
        same = places.get(character, 0)
        level = (((same & up) + up) ^ up) | same | down  # no growth along the diagonal
        right_up, right_down = down | (~(level | up) & every), up & level
        distance += bool(right_up & last) - bool(right_down & last)
        right_up, right_down = (right_up << 1 | 1) & every, right_down << 1 & every
        up, down = right_down | (~(level | right_up) & every), right_up & level
    return distance
