"""Requests under load: one client, closed or open loop, for whatever takes requests and tells when their tokens came.

A server is an engine of this process, a model of one that plays its times, or an endpoint that streams. Times are
seconds of the server's own clock, so that a played one needs no waiting.
"""

from __future__ import annotations

import math
import queue
import random
import statistics
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.backbones.language import LanguageModel


@dataclass(eq=False)
class RequestTimes:
    """One request on its way through a server."""

    number: int
    sent: float
    """When the client wanted it answered: from here on it waits."""
    told: list[float] = field(default_factory=list)
    """When each of its tokens came; of an endpoint, each piece of its stream."""
    tokens: int = 0
    """How many there are; an endpoint may put several into a piece, or tell none."""
    problem: Exception | None = None
    """Why it was not answered, or not to its end, where a server elsewhere failed."""
    failed: float = 0.0
    """When that was known."""

    @property
    def ended(self) -> float:
        return self.failed if self.problem is not None else self.told[-1]

    @property
    def first_ms(self) -> float:
        return (self.told[0] - self.sent) * 1e3

    @property
    def token_ms(self) -> float:
        """Between tokens, in the mean, also of those that came in one piece."""
        further = max(self.tokens, len(self.told)) - 1
        return (self.told[-1] - self.told[0]) * 1e3 / further if further else 0.0

    @property
    def gaps_ms(self) -> list[float]:
        return [(after - before) * 1e3 for before, after in zip(self.told, self.told[1:], strict=False)]


AGAIN = 0.1
"""Seconds after which a client asks again when the server failed."""


class Server(ABC):
    """What a client drives."""

    def now(self) -> float:
        return time.perf_counter()

    @abstractmethod
    def submit(self, request: RequestTimes) -> None: ...

    @abstractmethod
    def turn(self, until: float) -> list[RequestTimes]:
        """Works, or waits, until some token was told or that time has come; the requests that ended."""


def run_load(server: Server, count: int, *, clients: int = 0, rate: float = 0.0, seed: int = 17) -> list[RequestTimes]:
    """The first ``count`` requests that ended, in that order, while the load was kept up.

    Closed loop: so many ``clients``, each asks again as soon as it was answered, a while later where the server failed.
    Open loop: arrivals at ``rate`` per second with exponential gaps, whatever has become of those before.
    """
    start, draw = server.now(), random.Random(seed)
    due: deque[float] = deque([start] * clients)
    if not clients:
        at = start
        for _ in range(count):
            at += draw.expovariate(rate)
            due.append(at)
    ended: list[RequestTimes] = []
    sent = 0
    while len(ended) < count:
        while due and due[0] <= server.now():
            server.submit(RequestTimes(sent, due.popleft()))
            sent += 1
        done = server.turn(due[0] if due else math.inf)
        ended += done
        if clients:
            due.extend(request.ended + (AGAIN if request.problem is not None else 0.0) for request in done)
            due = deque(sorted(due))
    return ended


def percentile(values: Iterable[float], share: float) -> float | None:
    """By nearest rank: the smallest value that is at least as large as this share of them."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def latencies(
    ended: Sequence[RequestTimes], clients: int, first_ms: float = math.inf, token_ms: float = math.inf
) -> dict[str, Any]:
    """Figures of a run. Of a closed loop the first answer of every client is the way in, and counts for nothing.

    Good is a request whose first token came within ``first_ms``, the others within ``token_ms`` of one another in the
    mean. Requests that failed were not answered, and how many they are is said.
    """
    counted = [each for each in ended[clients:] if each.problem is None]
    failed = sum(each.problem is not None for each in ended)
    if not counted:
        raise next(each.problem for each in reversed(ended) if each.problem is not None)
    began = ended[clients - 1].ended if clients else min(request.sent for request in ended)
    seconds = ended[-1].ended - began
    gaps = [gap for request in counted for gap in request.gaps_ms]
    waits = [request.first_ms for request in counted]
    good = sum(each.first_ms <= first_ms and each.token_ms <= token_ms for each in counted)
    return {
        "requests": len(counted),
        "seconds": seconds,
        "requests_per_s": len(counted) / seconds,
        "goodput_per_s": good / seconds,
        "ttft_p50_ms": percentile(waits, 0.5),
        "ttft_p99_ms": percentile(waits, 0.99),
        "gap_p50_ms": percentile(gaps, 0.5),
        "gap_p99_ms": percentile(gaps, 0.99),
        "said_tokens": statistics.fmean(request.tokens for request in counted),
        **({"failed": failed} if failed else {}),
    }


class Continuous(Server):
    """Continuous batching: in a turn some who wait take free slots and say their first token, then all say one.

    Places are taken from below, so that a step of the first few slots has everybody. ``questions`` requests in a row
    are about one image, which is encoded for the first of them.
    """

    def __init__(self, slots: int, together: int, tokens: int, questions: int = 1) -> None:
        self.slots, self.together, self.tokens, self.questions = slots, together, tokens, questions
        self.spent: dict[str, float] = {}
        """Milliseconds of every stage so far."""
        self.reset()

    def reset(self) -> None:
        """Forgets all requests, and what was spent and held."""
        self.waiting: deque[RequestTimes] = deque()
        self.seated: dict[int, RequestTimes] = {}
        self.spent.clear()
        self.held: dict[RequestTimes, int] = {}
        """Bytes of keys and values that the prompts of seated requests hold."""
        self.most_held = 0
        """The most bytes that all of them, with what they said, have held."""

    @property
    @abstractmethod
    def token_bytes(self) -> int:
        """What all layers remember of one further token."""

    def wait(self, until: float) -> None:
        time.sleep(max(0.0, until - self.now()))

    @abstractmethod
    def admit(self, places: Sequence[int], new: Sequence[RequestTimes]) -> Sequence[int]:
        """Image to first token of each; the bytes that its prompt holds from now on."""

    @abstractmethod
    def step(self, among: int) -> None:
        """One more token for everybody, all of them within the first ``among`` slots."""

    def submit(self, request: RequestTimes) -> None:
        self.waiting.append(request)

    def fresh(self, new: Sequence[RequestTimes]) -> list[int]:
        """Numbers of the images that these requests are the first to ask about."""
        return [request.number // self.questions for request in new if request.number % self.questions == 0]

    def turn(self, until: float) -> list[RequestTimes]:
        if not self.waiting and not self.seated:
            self.wait(until)
            return []
        ended: list[RequestTimes] = []
        free = [place for place in range(self.slots) if place not in self.seated][: self.together]
        new = [self.waiting.popleft() for _ in range(min(len(free), len(self.waiting)))]
        if new:
            self.held.update(zip(new, self.admit(free[: len(new)], new), strict=True))
            self.seated.update(zip(free, new, strict=False))
            ended += self._tell(new)
        if self.seated:
            self.step(1 + max(self.seated))
            ended += self._tell(list(self.seated.values()))
        return ended

    def _tell(self, speaking: Sequence[RequestTimes]) -> list[RequestTimes]:
        """A token each, now; who has said all of them leaves."""
        now = self.now()
        for request in speaking:
            request.told.append(now)
            request.tokens += 1
        said = sum(request.tokens - 1 for request in self.seated.values())  # the newest is not read yet
        self.most_held = max(self.most_held, sum(self.held.values()) + said * self.token_bytes)
        over = [request for request in speaking if request.tokens >= self.tokens]
        self.seated = {place: request for place, request in self.seated.items() if request not in over}
        for request in over:
            del self.held[request]
        return over


Stream = Callable[[int], Generator[None, None, int]]
"""Asks the question of that number: a yield for every piece of the answer, the number of tokens at the end."""


def yield_into(stream: Generator[None, None, int], at_each: Callable[[], None]) -> int:
    """Calls ``at_each`` at every yield; what the generator returns."""
    while True:
        try:
            next(stream)
        except StopIteration as end:
            return int(end.value)
        at_each()


class Streaming(Server):
    """A server behind streams, each read by a thread of its own. It is given up where all who ask first fail."""

    def __init__(self, ask: Stream) -> None:
        self._ask = ask
        self._ended: queue.SimpleQueue[RequestTimes] = queue.SimpleQueue()
        self._under_way, self._answered = 0, False

    def submit(self, request: RequestTimes) -> None:
        self._under_way += 1
        threading.Thread(target=self._read, args=(request,), daemon=True).start()

    def _read(self, request: RequestTimes) -> None:
        try:
            request.tokens = yield_into(self._ask(request.number), lambda: request.told.append(self.now()))
            if not request.told:
                raise SightlineError("the server ended a stream without a token; was the model given room for one?")
        except Exception as error:  # told to whoever waits for the answer
            request.problem, request.failed = error, self.now()
        self._ended.put(request)

    def turn(self, until: float) -> list[RequestTimes]:
        try:
            wait = None if until == math.inf else max(0.0, until - self.now())
            request = self._ended.get(timeout=wait)
        except queue.Empty:
            return []
        self._under_way -= 1
        self._answered |= request.problem is None
        if request.problem is not None and (
            not isinstance(request.problem, SightlineError) or not (self._answered or self._under_way)
        ):
            raise request.problem
        return [request]

    def drain(self) -> None:
        """Waits for what is still under way: the next run begins with an idle server."""
        while self._under_way:
            self.turn(math.inf)


# Transformers' own continuous batching, as a server.

BLOCK = 256
"""Tokens in a block of transformers' cache."""


@contextmanager
def transformers_batching(language: LanguageModel, length: int, tokens: int, clients: int) -> Iterator[Server]:
    """Transformers' continuous batching over a Llama of the language model's sizes with random weights."""
    import torch
    from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    config = LlamaConfig(
        **{name: getattr(language.config, name) for name in sizes},
        num_key_value_heads=language.key_heads,
        head_dim=language.head_width,
        max_position_embeddings=length + tokens,
    )
    with torch.device(language.device):
        model: Any = LlamaForCausalLM._from_config(config, dtype=language.dtype, attn_implementation="sdpa").eval()
    settings = ContinuousBatchingConfig(
        num_blocks=clients * -(-(length + tokens) // BLOCK) + 1,
        max_batch_tokens=max(clients, 4 * length),
        max_requests_per_batch=clients,
        allow_block_sharing=False,
    )
    generation = GenerationConfig(max_new_tokens=tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)
    with model.continuous_batching_context_manager(generation, continuous_batching_config=settings) as manager:
        yield TransformersServer(manager, length, config.vocab_size)


class TransformersServer(Server):
    """The manager as a server; prompts are drawn anew for every request, so that no cache has seen them."""

    def __init__(self, manager: Any, length: int, words: int) -> None:
        self._manager, self._length, self._words, self._draw = manager, length, words, random.Random(0)
        self._asked: dict[str, RequestTimes] = {}

    def submit(self, request: RequestTimes) -> None:
        ids = [self._draw.randrange(16, self._words) for _ in range(self._length)]
        self._asked[self._manager.add_request(ids, streaming=True)] = request

    def turn(self, until: float) -> list[RequestTimes]:
        output = self._manager.get_result(timeout=60.0 if until == math.inf else max(0.0, until - self.now()))
        if output is None and until == math.inf:
            raise SightlineError(
                "transformers' continuous batching stopped without an answer; --no-anchor leaves it out"
            )
        if output is None:
            return []
        request = self._asked[output.request_id]
        request.told.append(self.now())
        request.tokens = len(output.generated_tokens)
        return [self._asked.pop(output.request_id)] if output.is_finished() else []


# Two numbers instead of stages, of a server that shows none.


def two_part_law(rates: Mapping[int, float]) -> tuple[float, float]:
    """(shared, own) milliseconds of the law C / rate(C) = shared + own * C over so many clients C, least squares of
    relative errors.

    A server that works on requests one at a time takes ``own`` of each; whatever it does for all of them side by side,
    as a step of decoding, is ``shared``. A request alone takes their sum, and no number of clients gets more than
    1 / own out of it.
    """
    import numpy as np

    if len(rates) < 2:
        raise SightlineError("two numbers of clients at least are needed to tell shared time from a request's own")
    clients = np.array(list(rates))
    each = clients / np.array(list(rates.values())) * 1e3
    own, shared = np.polyfit(clients, each, 1, w=1 / each)
    return float(shared), float(own)


def law_rate(law: tuple[float, float], clients: int) -> float:
    """Requests per second that the law gives."""
    shared, own = law
    return clients / (shared + own * clients) * 1e3
