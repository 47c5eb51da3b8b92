"""Answers in words: many prefixes are continued side by side, greedily, one token each per step.

A prefix is read once; what its layers remember of it goes into a *slot*, and all slots advance together. On a GPU a
step takes as long as reading the weights, whether for one sequence or for sixty, so slots are kept full: whoever has
finished makes room for the next prefix, of the same arm or of another. The number of slots never changes while a model
is in use, so a step always has the same shape: it is captured once, and what a sequence gets does not depend on its
neighbours. A CPU pays for every sequence: there a batch has just as many slots as prefixes, and loses those that are
done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from sightline.backbones.attention import LayerSlots
from sightline.backbones.batches import Cutter
from sightline.backbones.language import KeptPrefixes, LanguageModel
from sightline.backbones.own_decoder import OwnDecoder
from sightline.core.prefix import Prefix
from sightline.device import moved
from sightline.device.graphs import capture
from sightline.device.work import Stopwatch, on_device, setting_up

SLOTS = 64
"""Sequences that a GPU continues side by side, unless memory is short."""
MEMORY_SHARE = 0.4
"""Of the memory that is free when slots are made, what they may take."""
ROOM = 128
"""Slots have room for a multiple of so many keys, so that prefixes of similar length find them large enough."""
STRIDE = 4
"""Steps between two looks at who has finished."""


@dataclass(eq=False)
class Saying:
    """One sequence on its way: what was said so far, complete once ``done``."""

    tokens: list[int] = field(default_factory=list)
    """Greedy tokens up to a stop token, which is left out."""
    loss: float = float("nan")
    """Mean negative log-likelihood per chosen token, the stop token included, in nats."""
    done: bool = False
    ms: float = 0.0
    """Its share of every forward that it took part in."""
    watch: Stopwatch | None = None

    @property
    def spent_ms(self) -> float:
        return self.ms + (0.0 if self.watch is None else self.watch.ms)


class Slots:
    """The state of B sequences: what each layer remembers of them, where they are, what they said.

    keys and values (layers, B, Hkv, C, d); everything is changed in place, so that a step can be captured.
    """

    def __init__(self, language: LanguageModel, count: int, room: int, most: int, stops: frozenset[int]) -> None:
        device, layers = language.device, len(language.layers)
        shape = (layers, count, language.key_heads, room, language.head_width)
        self.language, self.count, self.room, self.most = language, count, room, most
        self.keys = torch.zeros(shape, dtype=language.dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self.lengths = torch.zeros(layers, count, dtype=torch.int32, device=device)
        self.positions = torch.zeros(count, dtype=torch.long, device=device)
        self.active = torch.zeros(count, dtype=torch.bool, device=device)
        self.newest = torch.zeros(count, dtype=torch.long, device=device)
        self.said = torch.zeros(count, dtype=torch.long, device=device)
        """How many tokens each has said."""
        self.tokens = torch.zeros(count, most, dtype=torch.long, device=device)
        self.losses = torch.zeros(count, most, dtype=torch.float32, device=device)
        self.stops = on_device(sorted(stops), device)
        self._layers = torch.arange(layers, device=device)[:, None]
        self._captured: dict[int, Callable[[], object]] = {}
        self._pool: Any = None
        if device.type == "cuda":
            self.capture(count)

    def capture(self, among: int) -> None:
        """Has a step of the first ``among`` slots ready to be replayed; on a CPU there is nothing to prepare."""
        if self.active.device.type == "cuda" and among not in self._captured:
            replay, self._pool = capture(lambda: self._step(among), self.active.device, self._pool)
            self._captured[among] = replay

    @torch.inference_mode()
    def put(self, places: list[int], kept: KeptPrefixes, which: list[int]) -> None:
        """Sequences ``which`` of the kept ones into slots ``places``, each with its first token said."""
        device = self.active.device
        to, rows = on_device(places, device), on_device(which, device)
        for layer, (key, value) in enumerate(kept.states):
            length = key.shape[2]
            self.keys[layer, :, :, :length].index_copy_(0, to, key[rows])
            self.values[layer, :, :, :length].index_copy_(0, to, value[rows])
        self.lengths[:, to] = kept.lengths[:, rows]
        self.positions[to] = kept.following[rows]
        self.said[to] = 0
        self.active[to] = True
        logits = self.language.logits(kept.last[rows])
        token, loss = chosen(logits)
        self.newest[to], self.tokens[to, 0], self.losses[to, 0] = token, token, loss
        self.said[to] = 1
        self.active[to] = ~torch.isin(token, self.stops) & (self.most > 1)

    @torch.inference_mode()
    def step(self, times: int = 1, among: int | None = None) -> None:
        """So many steps of the first ``among`` slots, of all unless told: whoever seats low has shorter steps."""
        among = among or self.count
        self.capture(among)
        for _ in range(times):
            self._captured[among]() if self._captured else self._step(among)

    def _step(self, among: int) -> None:
        """One more token for every active sequence; the others stay as they are."""
        keys, values, lengths = (each[:, :among] for each in (self.keys, self.values, self.lengths))
        positions, active, newest, said = (
            each[:among] for each in (self.positions, self.active, self.newest, self.said)
        )
        layers = [LayerSlots(*each) for each in zip(keys, values, lengths, strict=True)]
        with torch.inference_mode():
            hidden, taken = self.language.step(newest, positions, layers)
            rows = torch.arange(among, device=hidden.device)
            # Behind a finished sequence the same place is written again and again, and read by nobody.
            places = (self._layers, rows[None, :], slice(None), lengths.long())
            keys[places] = torch.stack([key[:, :, 0] for key, _ in taken])
            values[places] = torch.stack([value[:, :, 0] for _, value in taken])
            lengths += active
            positions += active
            token, loss = chosen(self.language.logits(hidden))
            place = said.clamp_max(self.most - 1)[:, None]
            for history, now in ((self.tokens[:among], token), (self.losses[:among], loss)):
                history.scatter_(1, place, torch.where(active[:, None], now[:, None], history.gather(1, place)))
            newest.copy_(torch.where(active, token, newest))
            said += active
            active &= ~torch.isin(token, self.stops) & (said < self.most)

    def only(self, places: list[int]) -> None:
        """Lets go of all other slots."""
        rows = on_device(places, self.active.device)
        self.count = len(places)
        for name in ("keys", "values", "lengths"):
            setattr(self, name, getattr(self, name).index_select(1, rows))
        for name in ("positions", "active", "newest", "said", "tokens", "losses"):
            setattr(self, name, getattr(self, name).index_select(0, rows))


def chosen(logits: Tensor) -> tuple[Tensor, Tensor]:
    """(B,) likeliest tokens and their negative log-likelihoods, from (B, V) logits in float32."""
    best, token = logits.max(dim=-1)
    return token, torch.logsumexp(logits, dim=-1) - best


def decoder_of(language: LanguageModel, most: int, stops: frozenset[int]) -> Continues:
    """Side by side where our loop runs the layers, else one after the other by the model's own decoder."""
    if isinstance(language, OwnDecoder):
        return SequentialDecoding(language, most, stops)
    return Decoder(language, most, stops)


@dataclass(frozen=True)
class SequentialDecoding:
    """One prefix after the other, with the cache that the model's own decoder keeps."""

    language: OwnDecoder
    most: int
    stops: frozenset[int]

    def launch(self, prefixes: Sequence[Prefix], cutter: Cutter | None = None) -> Said:
        if cutter is not None:
            return Said(self, self._say(self.language.continued_past_cuts(prefixes, cutter), len(prefixes)))
        return Said(self, [self._say(self.language.continued(prefix), 1)[0] for prefix in prefixes])

    def finish(self, sayings: Sequence[Saying]) -> None:
        """They are finished when they are launched."""

    def _say(self, steps: Iterator[Tensor], count: int) -> list[Saying]:
        """The answers of ``count`` prefixes from the (B, V) logits of one token after the other."""
        watch = Stopwatch(self.language.device, shared_by=count)
        tokens: list[list[int]] = [[] for _ in range(count)]
        losses: list[list[float]] = [[] for _ in range(count)]
        going = set(range(count))
        for logits in islice(steps, self.most):
            best, loss = (each.tolist() for each in chosen(logits))
            for b in sorted(going):
                losses[b].append(loss[b])
                if best[b] in self.stops:
                    going.discard(b)
                else:
                    tokens[b].append(best[b])
            if not going:
                break
        watch.stop()
        return [
            Saying(said, sum(lost) / len(lost), done=True, watch=watch)
            for said, lost in zip(tokens, losses, strict=True)
        ]


@dataclass(frozen=True)
class Said:
    """Answers that the device may still be working on."""

    decoder: Continues
    sayings: list[Saying]

    def read(self) -> list[Saying]:
        """One per prefix, each to its end; waits for the device."""
        self.decoder.finish(self.sayings)
        return self.sayings

    @property
    def spent_ms(self) -> list[float]:
        """Of every prefix, after ``read``."""
        return [saying.spent_ms for saying in self.sayings]


class Decoder:
    """Continues prefixes of one model up to ``most`` tokens or a stop token.

    ``slots`` bounds how many share a step on a GPU.
    """

    def __init__(self, language: LanguageModel, most: int, stops: frozenset[int], slots: int = SLOTS) -> None:
        self.language, self.most, self.stops = language, most, stops
        self.most_slots = slots
        self.setup_ms: list[float] = []
        """What capturing a step took, once per room."""
        self._slots: Slots | None = None
        self._seated: dict[int, Saying] = {}
        """Slot -> who sits there."""

    def launch(self, prefixes: Sequence[Prefix], cutter: Cutter | None = None) -> Said:
        """Reads the prefixes and seats them; while all slots are taken, the others go on."""
        watch = Stopwatch(self.language.device, shared_by=len(prefixes))
        kept = self.language.keep(prefixes, cutter)
        watch.stop()
        sayings = [Saying(watch=watch) for _ in prefixes]
        waiting = list(range(len(prefixes)))
        slots = self._roomy(kept.longest + self.most, len(prefixes))
        while waiting:
            free = [place for place in range(slots.count) if place not in self._seated][: len(waiting)]
            if not free:
                self._advance()
                continue
            now, waiting = waiting[: len(free)], waiting[len(free) :]
            slots.put(free, kept, now)
            self._seated.update(zip(free, (sayings[i] for i in now), strict=True))
        if self.language.device.type != "cuda":
            self.finish(sayings)
        return Said(self, sayings)

    def finish(self, sayings: Sequence[Saying]) -> None:
        while not all(saying.done for saying in sayings):
            self._advance()

    def _roomy(self, room: int, wanted: int) -> Slots:
        """Slots that hold sequences of that many keys: the ones there are, or larger ones once those are empty."""
        on_gpu = self.language.device.type == "cuda"
        if on_gpu and self._slots is not None and self._slots.room >= room:
            return self._slots
        self.finish(list(self._seated.values()))
        self._slots = None  # its memory first
        if not on_gpu:
            self._slots = Slots(self.language, wanted, room, self.most, self.stops)
            return self._slots
        room = -(-room // ROOM) * ROOM
        with setting_up(self.language.device, self.setup_ms):
            self._slots = Slots(self.language, self._affordable(room), room, self.most, self.stops)
        return self._slots

    def _affordable(self, room: int) -> int:
        """As many slots as are wanted, halved until they fit into their share of the free memory."""
        language, count = self.language, self.most_slots
        each = 2 * len(language.layers) * language.key_heads * room * language.head_width * language.dtype.itemsize
        free, _ = torch.cuda.mem_get_info(language.device)
        free += torch.cuda.memory_reserved(language.device) - torch.cuda.memory_allocated(language.device)
        while count > 1 and count * each > MEMORY_SHARE * free:
            count //= 2
        return count

    def _advance(self) -> None:
        """A few steps, then a look: who has finished is read and leaves its slot."""
        slots = self._slots
        assert slots is not None
        watch = Stopwatch(self.language.device, shared_by=max(1, len(self._seated)))
        slots.step(STRIDE)
        watch.stop()
        moved()
        active, said = torch.stack([slots.active.long(), slots.said]).tolist()  # waits for the steps
        for saying in self._seated.values():
            saying.ms += watch.ms
        over = [place for place in self._seated if not active[place]]
        if not over:
            return
        rows = on_device(over, slots.active.device)
        tokens, losses = slots.tokens[rows].tolist(), slots.losses[rows].double().tolist()
        for place, words, nll in zip(over, tokens, losses, strict=True):
            saying, count = self._seated.pop(place), said[place]
            saying.tokens = [token for token in words[:count] if token not in self.stops]
            saying.loss = sum(nll[:count]) / count
            saying.done = True
        if slots.active.device.type != "cuda" and 0 < len(self._seated) <= slots.count // 2:
            places = sorted(self._seated)
            slots.only(places)
            self._seated = {place: self._seated[old] for place, old in enumerate(places)}


Continues = Decoder | SequentialDecoding
"""What continues prefixes of one model up to some number of tokens or a stop token."""
