"""A tokenizer for models that exist only as shapes: every word is one token, numbered as it is first seen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

_PIECE = re.compile(r"<\w+>|\s?[^\s<]+|\s|<")
_FIRST = 16
_IDS = 480
"""Ids stay below every vocabulary in use, the tiny shapes' included."""


class StandInTokenizer:
    """As much of a tokenizer as prompts need."""

    image_token = "<image>"
    start_image_token = "<start>"
    end_image_token = "<end>"
    eos_token_id = 2
    chat_template = "stand-in"

    def __init__(self, image_token_id: int) -> None:
        self._ids: dict[str, int] = {self.image_token: image_token_id}
        self._pieces: dict[int, str] = {image_token_id: self.image_token}

    def __call__(self, text: str, add_special_tokens: bool = True) -> SimpleNamespace:
        return SimpleNamespace(input_ids=[self._id(piece) for piece in _PIECE.findall(text)])

    def _id(self, piece: str) -> int:
        if piece not in self._ids:
            fresh = _FIRST + len(self._ids) % (_IDS - _FIRST)
            self._ids[piece] = fresh
            self._pieces.setdefault(fresh, piece)
        return self._ids[piece]

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(self._pieces.get(int(i), "?") for i in ids)

    def convert_ids_to_tokens(self, token: int) -> str:
        return self._pieces[token]

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], tokenize: bool = False, add_generation_prompt: bool = False
    ) -> str:
        turns = [f"<{message['role']}>{_text(message['content'])}<stop>" for message in messages]
        return "".join(turns) + ("<assistant>" if add_generation_prompt else "")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join("<image>" if part["type"] == "image" else part["text"] for part in content)
