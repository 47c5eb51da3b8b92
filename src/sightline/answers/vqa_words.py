"""The words of an answer as the VQA and TextVQA challenges compare them."""

from __future__ import annotations

import re

_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBER_WORDS = {word: str(number) for number, word in enumerate(_NUMBERS)} | {"none": "0"}
ARTICLES = ("a", "an", "the")

_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_PERIOD = re.compile(r"\.(?!\d)")
_WITH_APOSTROPHES = """
    ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've
    he's how'd how'll how's isn't it'd it'd've it'll ma'am might've mightn't mightn't've must've mustn't needn't not've
    o'clock oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's
    someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've
    there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's
    what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've
    wouldn't wouldn't've y'all y'all'd've y'all'll you'd you'd've you'll you're you've
"""


def _contractions() -> dict[str, str]:
    """Every contraction without one of its apostrophes -> the contraction."""
    return {
        word[:place] + word[place + 1 :]: word
        for word in _WITH_APOSTROPHES.split()
        for place, character in enumerate(word)
        if character == "'"
    }


CONTRACTIONS = _contractions() | {"somebody'd": "somebodyd"}
"""The challenges' table where it changes something; its one entry the wrong way round is kept as published."""


def vqa_words(text: str) -> str:
    """An answer as the TextVQA challenge compares it; two answers are the same if this is.

    In order: lower case; commas and question marks deleted; a possessive 's made a word of its own; other punctuation
    (not apostrophe, colon, period) deleted where it stands beside a blank somewhere in the answer, else replaced by
    one; periods deleted unless a digit follows; number words up to ten made digits; articles dropped; apostrophes put
    into contractions that lack one.
    """
    said = text.lower().replace(",", "").replace("?", "").replace("'s", " 's")
    said = said.replace("\n", " ").replace("\t", " ").strip()
    plain = said
    for mark in _PUNCTUATION:
        beside_a_blank = f"{mark} " in said or f" {mark}" in said
        plain = plain.replace(mark, "" if beside_a_blank else " ")
    words = (NUMBER_WORDS.get(word, word) for word in _PERIOD.sub("", plain).split())
    return " ".join(CONTRACTIONS.get(word, word) for word in words if word not in ARTICLES)
