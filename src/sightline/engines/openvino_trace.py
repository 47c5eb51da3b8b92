"""Which visual tokens reach OpenVINO's language model: a copy of an export whose language model speaks their positions.

The engine tells nobody what its pruner kept. In the copy, tokenizer, vision tower, pruner and pipeline are the engine's
own and unchanged; only the language model is another one, of a few kilobytes: it keeps the ``position_ids`` and
``visual_pos_masks`` of the prompt, and its logits make greedy decoding speak them, digit by digit, as token ids. From
that come the kept cells, their order and how positions were numbered after pruning.

What a trace cannot see: the values of embeddings, and so whether one token was merged from several (its lineage), or
whether the embedding of another cell stands under these positions; and all that happens behind the first layer, for
example a second pruning between layers. What is spoken is what the language model was given, not what it attended to.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.engines.openvino_folder import LANGUAGE, Export
from sightline.errors import SightlineError
from sightline.places.writing import whole_folder

TRACED = "traced"
"""Folder of the copy, in the folder of the export."""
RECORD = "sightline_trace.json"
LETTERS = 4096
"""Most token ids that stand for digits."""


@dataclass(frozen=True)
class NumberCode:
    """How numbers are spoken: as ``digits`` token ids each, the most significant first."""

    letters: tuple[int, ...]
    """Token ids that stand for 0, 1, 2, ...; none of them ends an answer."""
    digits: int
    stop: int

    @classmethod
    def fitting(cls, vocabulary: int, stops: Sequence[int], positions: int) -> NumberCode:
        """For positions below ``positions``, each with one bit beside it."""
        letters = [token for token in range(min(vocabulary, LETTERS + len(stops))) if token not in stops][:LETTERS]
        if len(letters) < 2:
            raise SightlineError(f"a vocabulary of {vocabulary} tokens is too small to speak numbers with")
        digits = 1
        while len(letters) ** digits <= 2 * positions:
            digits += 1
        return cls(tuple(letters), digits, stops[0])

    @property
    def most(self) -> int:
        """Spoken for every number that is not smaller."""
        return int(len(self.letters) ** self.digits) - 1

    def length(self, tokens: int) -> int:
        """Token ids spoken about a prompt of so many tokens, the stop included."""
        return self.digits * (1 + 3 * tokens) + 1

    def numbers(self, spoken: Sequence[int]) -> list[int]:
        """What was spoken, before the stop; refused where it is not what a trace speaks."""
        said = list(spoken[: spoken.index(self.stop)]) if self.stop in spoken else None
        if said is None:
            raise SightlineError(f"the trace broke off after {len(spoken)} tokens; it ends with token {self.stop}")
        value = {letter: number for number, letter in enumerate(self.letters)}
        strange = next((token for token in said if token not in value), None)
        if strange is not None or len(said) % self.digits:
            what = f"token {strange} is no digit" if strange is not None else f"{len(said)} tokens are no whole numbers"
            raise SightlineError(f"the trace does not parse: {what}; make it again with `sightline engines trace`")
        found = []
        for start in range(0, len(said), self.digits):
            number = 0
            for token in said[start : start + self.digits]:
                number = number * len(self.letters) + value[token]
            found.append(number)
        return found


@dataclass(frozen=True)
class Traced:
    """The prompt as the language model was given it: for each token whether it is visual, and its (t, h, w)."""

    visual: tuple[bool, ...]
    positions: tuple[tuple[int, int, int], ...]

    @classmethod
    def heard(cls, spoken: Sequence[int], speech: NumberCode) -> Traced:
        numbers = speech.numbers(spoken)
        if not numbers or len(numbers) != 1 + 3 * numbers[0]:
            told = numbers[0] if numbers else 0
            tokens = f"{told} token{'s' if told != 1 else ''}"
            raise SightlineError(
                f"the trace tells of {tokens} and has {len(numbers)} numbers instead of {1 + 3 * told}"
            )
        if speech.most in numbers:
            raise SightlineError(
                f"the trace has a position beyond {speech.most // 2 - 1}, more than its digits can say"
            )
        rows = list(zip(numbers[1::3], numbers[2::3], numbers[3::3], strict=True))
        return cls(tuple(bool(t % 2) for t, _, _ in rows), tuple((t // 2, h, w) for t, h, w in rows))

    @property
    def kept(self) -> list[tuple[int, int, int]]:
        """(t, h, w) of the visual tokens, in the order of the language model."""
        return [position for position, visual in zip(self.positions, self.visual, strict=True) if visual]

    @property
    def start(self) -> int:
        """The position that a first visual token has: the one behind the text in front."""
        first = self.visual.index(True)
        return max(self.positions[first - 1]) + 1 if first else 0

    def cells(self, rows: int, columns: int) -> tuple[int, ...]:
        """Of one image: row * columns + column of each visual token, in order; refused where positions tell no cell."""
        start = self.start
        places = [(h - start, w - start) for t, h, w in self.kept if t == start]
        inside = [row * columns + column for row, column in places if 0 <= row < rows and 0 <= column < columns]
        if len(inside) != len(self.kept) or len(set(inside)) != len(inside):
            raise SightlineError(
                f"the positions of {len(self.kept)} visual tokens are not {len(self.kept)} cells of a grid of {rows} x "
                f"{columns}: the engine numbers them anew, and which cells they are cannot be told"
            )
        return tuple(inside)

    def policy(self, rows: int, columns: int) -> str:
        """How positions go on after pruning, in a word that ``POLICIES`` explains."""
        kept, start = self.kept, self.start
        behind = len(self.visual) - 1 - self.visual[::-1].index(True) + 1
        after = min(self.positions[behind]) if behind < len(self.positions) else None
        if kept == [(start + i,) * 3 for i in range(len(kept))]:
            return "compact" if after in (None, start + len(kept)) else "other"
        try:
            self.cells(rows, columns)
        except SightlineError:
            return "other"
        whole, resumed = start + max(rows, columns), max(max(position) for position in kept) + 1
        if after in (None, whole):
            return "preserve" if after != resumed else "preserve or resume"
        return "resume" if after == resumed else "other"


POLICIES = {
    "preserve": "kept tokens keep the positions of their cells, and text goes on behind the whole grid",
    "resume": "kept tokens keep the positions of their cells, and text goes on behind the largest kept position",
    "preserve or resume": "kept tokens keep the positions of their cells; the last row or column is kept, so that text "
    "goes on behind the whole grid either way",
    "compact": "kept tokens are numbered one after the other, and text goes on behind the last",
    "other": "none of preserve, resume and compact",
}


def trace(folder: Path) -> Path:
    """Makes the changed copy beside an export, ``FOLDER/traced``; files that do not change are linked, not copied."""
    export = Export(folder)
    target = folder / TRACED
    with whole_folder(target, replace=True) as fresh:
        for file in (each for each in sorted(folder.iterdir()) if each.is_file() and each.stem != LANGUAGE):
            try:
                os.link(file, fresh / file.name)
            except OSError:  # another disk, or one that knows no links
                shutil.copy2(file, fresh / file.name)
        speech = NumberCode.fitting(export.vocabulary, export.stops, export.longest)
        _write_speaker(folder / f"{LANGUAGE}.xml", fresh / f"{LANGUAGE}.xml", export.vocabulary, speech)
        record = {"digest": export.digest, "letters": speech.letters, "digits": speech.digits, "stop": speech.stop}
        (fresh / RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")
    return target


def speech_of(traced: Path, digest: str) -> NumberCode:
    """How a traced copy speaks; refused where it was made from another export than the one of this digest."""
    try:
        record = json.loads((traced / RECORD).read_text(encoding="utf-8"))
        speech = NumberCode(tuple(record["letters"]), int(record["digits"]), int(record["stop"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise SightlineError(
            f"{traced} is no traced copy; `sightline engines trace {traced.parent}` makes one"
        ) from None
    if record.get("digest") != digest:
        raise SightlineError(f"{traced} was made from another export; `sightline engines trace {traced.parent}` anew")
    return speech


def _write_speaker(original: Path, to: Path, vocabulary: int, speech: NumberCode) -> None:
    """A language model with the inputs of the original that speaks; one prompt, then one token at a time."""
    import numpy as np
    import openvino as ov
    from openvino import opset13 as op
    from openvino.op.util import Variable, VariableInfo

    def whole(value: Any) -> Any:
        return op.constant(np.array(value, dtype=np.int64))

    given = {given.get_any_name(): given for given in ov.Core().read_model(original).inputs}
    missing = {"attention_mask", "position_ids", "inputs_embeds", "visual_pos_masks"} - set(given)
    if missing:
        raise SightlineError(f"{original} has no input {min(missing)}: only Qwen3-VL's exports can be traced")
    inputs = {
        name: op.parameter(port.get_partial_shape(), port.get_element_type(), name) for name, port in given.items()
    }
    for name, parameter in inputs.items():
        parameter.output(0).get_tensor().set_names({name})

    # (3 T,): 2 t + visual, h, w of every token that comes in with this call.
    positions = op.reshape(op.transpose(inputs["position_ids"], whole([1, 2, 0])), whole([-1, 3]), False)
    visual = op.reshape(op.convert(inputs["visual_pos_masks"], "i64"), whole([-1, 1]), False)
    beside = op.concat([visual, op.multiply(visual, whole(0)), op.multiply(visual, whole(0))], 1)
    told = op.reshape(op.add(op.multiply(positions, whole([2, 1, 1])), beside), whole([-1]), False)
    # Only the prompt is kept: a call with one token decodes. The state is f32, the one kind that every device keeps;
    # it starts as one zero, because a state of no length does not work on a CPU.
    incoming = op.gather(op.shape_of(inputs["inputs_embeds"]), whole([1]), whole(0))
    length = op.select(op.equal(incoming, whole([1])), whole([0]), op.multiply(incoming, whole(3)))
    fresh = op.slice(told, whole([0]), length, whole([1]), whole([0]))
    kind = VariableInfo()
    kind.data_shape, kind.data_type, kind.variable_id = ov.PartialShape([-1]), ov.Type.f32, "sightline_trace"
    variable = Variable(kind)
    state = op.concat([op.read_value(op.constant(np.zeros(1, np.float32)), variable), op.convert(fresh, "f32")], 0)
    kept = op.convert(state, "i64")
    tokens = op.divide(op.subtract(op.shape_of(kept), whole([1])), whole(3))  # (1,): T
    numbers = op.concat([tokens, op.slice(kept, whole([1]), whole([2**31]), whole([1]), whole([0]))], 0)
    numbers = op.minimum(numbers, whole(speech.most))

    # The attention mask grows by one with every token spoken.
    step = op.subtract(op.gather(op.shape_of(inputs["attention_mask"]), whole([1]), whole(0)), tokens)
    index, digit = op.divide(step, whole(speech.digits)), op.mod(step, whole(speech.digits))
    base = len(speech.letters)
    power = op.gather(whole([base**place for place in reversed(range(speech.digits))]), digit, whole(0))
    count = op.shape_of(numbers)
    number = op.gather(numbers, op.minimum(index, op.subtract(count, whole(1))), whole(0))
    letter = op.gather(whole(list(speech.letters)), op.mod(op.divide(number, power), whole(base)), whole(0))
    token = op.select(op.less(index, count), letter, whole([speech.stop]))
    spoken = op.one_hot(token, whole(vocabulary), op.constant(np.float32(100)), op.constant(np.float32(0)), axis=1)
    logits = op.reshape(spoken, whole([1, 1, vocabulary]), False)
    logits.output(0).get_tensor().set_names({"logits"})

    speaker = ov.Model([op.result(logits)], [op.assign(state, variable)], list(inputs.values()), [variable], "speaker")
    ov.save_model(speaker, to, compress_to_fp16=False)
