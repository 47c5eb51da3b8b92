# mypy: ignore-errors
"""The kernels' own code, in Triton's language; ``sightline.selectors.greedy`` and ``scores`` launch it.

Where several programs share an image they exchange one value per token through global memory and meet once a step. Two
buffers take turns, so a program that is ahead never overwrites what one behind still reads. What another program wrote
is read past the first-level cache (``.cg``), which does not see other multiprocessors' stores.

Counts are plain numbers that nothing is specialised on: otherwise pages of mixed sizes would need kernels of their own
for each number of programs, and for each k that is a multiple of 16. Of n and items it is known whether they are one,
which lets rows be read many numbers at a time.
"""

import triton
import triton.language as tl


@triton.jit
def _meet(counter, arrivals, several: tl.constexpr):
    """Returns once all programs of this image have called it; their earlier stores are then visible."""
    tl.debug_barrier()
    if several:
        tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
        while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < arrivals:
            pass
        tl.debug_barrier()


@triton.jit
def _first_best(value):
    """Index of the largest value, the lowest one of equals; NaN counts as infinity."""
    return tl.argmax(tl.where(value != value, float("inf"), value), 0, tie_break_left=True).to(tl.int32)


@triton.jit
def _least(one, other):
    """As PyTorch's: what is compared with NaN is NaN, so that broken numbers are refused wherever they are met."""
    return tl.minimum(one, other, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _most(one, other):
    return tl.maximum(one, other, propagate_nan=tl.PropagateNan.ALL)


@triton.jit(do_not_specialize=["k", "seed_width"])
def farthest(similarity, weight, seeds, seed_count, picks, n, k, seed_width, twice: tl.constexpr, width: tl.constexpr):
    """One program per image. See ``greedy.farthest_greedy``; the ceiling is 2 if ``twice``, else 1."""
    image = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, width)
    real = lane < n
    importance = tl.load(weight + image * n + lane, mask=real, other=0.0)
    nearest = tl.full((width,), 2.0 if twice else 1.0, dtype=importance.dtype)
    free = real
    forced = tl.minimum(tl.load(seed_count + image), seed_width)
    for step in range(k):
        value = nearest * importance
        pick = _first_best(tl.where(free | (value != value), value, float("-inf")))
        seed = tl.load(seeds + image * seed_width + step, mask=step < forced, other=0).to(tl.int32)
        pick = tl.where(step < forced, seed, pick)
        tl.store(picks + image * k + step, pick.to(tl.int64))
        free = free & (lane != pick)
        row = tl.load(similarity + (image * n + pick) * n + lane, mask=real, other=0.0)
        nearest = _least(nearest, _most(1.0 - row, 0.0))


@triton.jit(do_not_specialize=["k", "programs"])
def residual(
    products,
    start,
    noise,
    bias,
    scale,
    first,
    picks,
    factor,
    values,
    residuals,
    counters,
    n,
    k,
    programs,
    rooted: tl.constexpr,
    forced: tl.constexpr,
    several: tl.constexpr,
    block: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
):
    """``programs`` programs per image, each with ``block`` tokens. See ``greedy.residual_greedy``; all in float64."""
    part = tl.program_id(0)
    image = tl.program_id(1).to(tl.int64)
    lane = tl.arange(0, width)
    own = part * block + tl.arange(0, block)
    real = own < n
    left = tl.load(start + image * n + own, mask=real, other=0.0)
    handicap = tl.load(bias + image * n + own, mask=real, other=float("-inf"))
    factor_of_gain = tl.load(scale)
    for step in range(k):
        turn = (image * 2 + step % 2) * n
        gain = factor_of_gain * (tl.sqrt(_most(left, 0.0)) if rooted else left)
        tl.store(values + turn + own, gain + handicap, mask=real)
        tl.store(residuals + turn + own, left, mask=real)
        _meet(counters + image, programs * (step + 1), several)
        everyone = tl.load(values + turn + lane, mask=lane < n, other=float("-inf"), cache_modifier=".cg")
        pick = _first_best(everyone)
        if forced:
            pick = tl.where(step == 0, tl.load(first + image).to(tl.int32), pick)
        if part == 0:
            tl.store(picks + image * k + step, pick.to(tl.int64))
        handicap = tl.where(own == pick, float("-inf"), handicap)

        shared = tl.zeros((chunk, block), dtype=tl.float64)
        for begin in range(0, step, chunk):
            past = begin + tl.arange(0, chunk)
            before = past < step
            rows = factor + (image * k + past) * n
            theirs = tl.load(rows + pick, mask=before, other=0.0, cache_modifier=".cg")
            mine = tl.load(
                rows[:, None] + own[None, :], mask=before[:, None] & real[None, :], other=0.0, cache_modifier=".cg"
            )
            shared += theirs[:, None] * mine
        row = tl.load(products + (image * n + pick) * n + own, mask=real, other=0.0).to(tl.float64)
        pivot = tl.load(residuals + turn + pick, cache_modifier=".cg")
        pivot = tl.where(pivot > tl.load(noise + image * n + pick), pivot, float("inf"))
        share = (row - tl.sum(shared, 0)) / tl.sqrt(pivot)
        tl.store(factor + (image * k + step) * n + own, share, mask=real)
        left -= share * share


@triton.jit(do_not_specialize=["k", "programs"])
def cover(
    covers,
    weight,
    bias,
    picks,
    covered,
    values,
    counters,
    n,
    items,
    k,
    programs,
    several: tl.constexpr,
    block: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
):
    """``programs`` programs per image, each with ``block`` tokens and its own copy of what is covered.

    See ``greedy.cover_greedy``; gains are summed in float64.
    """
    part = tl.program_id(0)
    image = tl.program_id(1).to(tl.int64)
    lane = tl.arange(0, width)
    own = part * block + tl.arange(0, block)
    real = own < n
    rows = covers + (image * n + own) * items
    state = covered + (image * programs + part) * items
    factor = tl.load(weight + image * n + own, mask=real, other=0.0)
    handicap = tl.load(bias + image * n + own, mask=real, other=float("-inf"))
    pick = tl.full((), 0, dtype=tl.int32)
    for step in range(k):
        excess = tl.zeros((block, chunk), dtype=tl.float64)
        for begin in range(0, items, chunk):
            item = begin + tl.arange(0, chunk)
            here = item < items
            now = tl.load(state + item, mask=here, other=0.0)
            # Coverage starts at 0 and never falls, so the 0 that stands in before the first pick changes nothing.
            added = tl.load(covers + (image * n + pick) * items + item, mask=here & (step > 0), other=0.0)
            now = _most(now, added)
            tl.store(state + item, now, mask=here)
            tile = tl.load(rows[:, None] + item[None, :], mask=real[:, None] & here[None, :], other=0.0)
            excess += _most(tile - now[None, :], 0.0).to(tl.float64)
        turn = (image * 2 + step % 2) * n
        tl.store(values + turn + own, handicap + tl.sum(excess, 1) * factor, mask=real)
        _meet(counters + image, programs * (step + 1), several)
        everyone = tl.load(values + turn + lane, mask=lane < n, other=float("-inf"), cache_modifier=".cg")
        pick = _first_best(everyone)
        if part == 0:
            tl.store(picks + image * k + step, pick.to(tl.int64))
        handicap = tl.where(own == pick, float("-inf"), handicap)


@triton.jit(do_not_specialize=["n", "texts"])
def alignment(
    tokens,
    query,
    both,
    n,
    texts,
    depth,
    floor,
    pair: tl.constexpr,
    dotted: tl.constexpr,
    block: tl.constexpr,
    words: tl.constexpr,
    chunk: tl.constexpr,
):
    """Per token the mean of its ``pair`` (1 or 2) largest cosines with the query rows, and its length, in float32.

    Few words are multiplied out element by element, so that a program needs few tokens; many as a matrix product
    (``dotted``).
    """
    own = tl.program_id(0) * block + tl.arange(0, block)
    word = tl.arange(0, words)
    real, said = own < n, word < texts
    token_rows, word_rows = own[:, None].to(tl.int64) * depth, word[:, None].to(tl.int64) * depth
    square = tl.zeros((block, chunk), dtype=tl.float32)
    word_square = tl.zeros((words, chunk), dtype=tl.float32)
    total = tl.zeros((block, words) if dotted else (block, words, chunk), dtype=tl.float32)
    for begin in range(0, depth, chunk):
        channel = (begin + tl.arange(0, chunk))[None, :]
        inside = channel < depth
        z = tl.load(tokens + token_rows + channel, mask=real[:, None] & inside, other=0.0).to(tl.float32)
        q = tl.load(query + word_rows + channel, mask=said[:, None] & inside, other=0.0).to(tl.float32)
        if dotted:
            total += tl.dot(z, tl.trans(q), input_precision="ieee")
        else:
            total += z[:, None, :] * q[None, :, :]
        square += z * z
        word_square += q * q
    products = total if dotted else tl.sum(total, 2)
    length = tl.sqrt(tl.sum(square, 1))
    word_length = tl.sqrt(tl.sum(word_square, 1))
    scale = tl.maximum(length, floor)[:, None] * tl.maximum(word_length, floor)[None, :]
    cosines = tl.where(said[None, :], products / scale, float("-inf"))
    best = tl.max(cosines, 1)
    if pair == 2:
        at = tl.argmax(cosines, 1)
        best = 0.5 * (best + tl.max(tl.where(word[None, :] == at[:, None], float("-inf"), cosines), 1))
    broken = tl.max((cosines != cosines).to(tl.int32), 1) == 1
    tl.store(both + own, tl.where(broken, float("nan"), best), mask=real)
    tl.store(both + n + own, length, mask=real)
