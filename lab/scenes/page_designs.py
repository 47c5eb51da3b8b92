"""Designs of a page: receipt, form, sign, ... Each function fills a pen's scene; ``compose`` draws one from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from lab.scenes.compose import CANVAS, Pen, Scene
from lab.scenes.lexicon import Split

EDGE = 12
"""Margin that keeps words on the canvas when it is turned by a few degrees."""


def receipt(pen: Pen) -> None:
    """A slip: centred head, items with amounts on the right, a total, a foot of codes."""
    rng, lexicon = pen.rng, pen.lexicon
    width = rng.randint(250, 410)
    left = rng.randint(EDGE - 6, CANVAS - width - EDGE + 6)
    right = left + width
    surface = pen.paper(0.06)
    pen.fill(left, 0, right, CANVAS, surface)
    ink = pen.ink(surface)
    font, size = pen.font("mono" if rng.random() < 0.5 else None), pen.size(14, 19)
    head, head_size = (pen.font(), pen.size(17, 24)) if rng.random() < 0.6 else (font, size)
    left, right, y = left + 10, right - 10, rng.randint(EDGE, 28)
    for _ in range(rng.randint(1, 3)):
        pen.centred([lexicon.any(rng) for _ in range(rng.randint(1, 3))], head, head_size, left, right, y, ink)
        y += pen.height(head, head_size) + rng.randint(0, 6)
    step = pen.height(font, size) + rng.randint(1, 10)
    while y < CANVAS - EDGE - step:
        if rng.random() < 0.1:
            pen.fill(left, y + step // 2, right, y + step // 2 + rng.randint(1, 2), pen.shade(ink))
            y += step
            continue
        amount = pen.right(lexicon.price(rng) if rng.random() < 0.85 else lexicon.any(rng), font, size, right, y, ink)
        x = left
        if rng.random() < 0.3:
            x = pen.row([lexicon.number(rng)], font, size, x, y, ink, amount - 8)
        pen.row([lexicon.word(rng) for _ in range(rng.randint(1, 3))], font, size, x, y, ink, amount - 8)
        y += step


def form(pen: Pen) -> None:
    """Labels with framed or underlined values, in one or two columns."""
    rng, lexicon = pen.rng, pen.lexicon
    surface = pen.paper(0.15)
    pen.fill(0, 0, CANVAS, CANVAS, surface)
    ink = pen.ink(surface)
    label_font, label_size, value_font, value_size = pen.font(), pen.size(14, 18), pen.font(), pen.size(14, 19)
    field_surface = pen.shade(surface, 10)
    value_ink = pen.ink(field_surface)
    y = rng.randint(EDGE, 24)
    pen.row(
        [lexicon.word(rng) for _ in range(3)],
        pen.font(),
        pen.size(18, 24),
        EDGE + rng.randint(0, 60),
        y,
        ink,
        CANVAS - EDGE,
    )
    y += rng.randint(32, 46)
    columns = rng.choice((1, 2, 2))
    span = (CANVAS - 2 * EDGE) // columns
    above = rng.random() < 0.5
    framed = rng.random() < 0.6
    label_height, value_height = pen.height(label_font, label_size), pen.height(value_font, value_size)
    step = value_height + 10 + (label_height + 2 if above else 0) + rng.randint(0, 12)
    while y < CANVAS - EDGE - step:
        for column in range(columns):
            x, limit = EDGE + column * span, EDGE + (column + 1) * span - 8
            end = pen.row(
                [lexicon.word(rng) + ":" * (rng.random() < 0.4) for _ in range(rng.randint(1, 2))],
                label_font,
                label_size,
                x,
                y,
                ink,
                limit if above else x + span // 2,
            )
            box_x, box_y = (x, y + label_height + 2) if above else (max(end + 4, x + span // 3), y - 2)
            if framed:
                pen.frame(box_x, box_y, limit, box_y + value_height + 6, pen.shade(ink), field_surface)
            else:
                pen.fill(box_x, box_y + value_height + 4, limit, box_y + value_height + 5, ink)
            pen.row(
                [lexicon.any(rng) for _ in range(rng.randint(1, 2))],
                value_font,
                value_size,
                box_x + 4,
                box_y + 3,
                value_ink,
                limit - 2,
            )
        y += step


def sign(pen: Pen) -> None:
    """A few plates of centred lines on a plain wall."""
    rng, lexicon = pen.rng, pen.lexicon
    y = rng.randint(4, 20)
    while y < CANVAS - 60:
        columns = rng.choice((1, 2, 2, 3))
        span = (CANVAS - 2 * EDGE) // columns
        tall = 0
        for column in range(columns):
            if rng.random() < 0.12:
                continue
            surface = pen.paper(0.5)
            font, size = pen.font(), pen.size(16, 24)
            step = pen.height(font, size) + rng.randint(1, 8)
            lines = rng.randint(1, 4)
            left, right = EDGE + column * span + rng.randint(0, 6), EDGE + (column + 1) * span - rng.randint(2, 8)
            bottom = y + lines * step + 14
            if bottom > CANVAS - 4:
                continue
            ink = pen.ink(surface)
            if rng.random() < 0.5:
                pen.frame(left, y, right, bottom, ink, surface, rng.randint(2, 3))
            else:
                pen.fill(left, y, right, bottom, surface)
            for line in range(lines):
                count = rng.randint(1, 3) if columns == 1 else rng.randint(1, 2)
                pen.centred(
                    [lexicon.any(rng) for _ in range(count)], font, size, left + 5, right - 5, y + 8 + line * step, ink
                )
            tall = max(tall, bottom - y)
        y += max(tall, 30) + rng.randint(6, 18)


def table(pen: Pen) -> None:
    """A ruled grid with a head row; one kind of content per column."""
    rng, lexicon = pen.rng, pen.lexicon
    surface = pen.paper(0.2)
    pen.fill(0, 0, CANVAS, CANVAS, surface)
    ink, rule = pen.ink(surface), pen.shade(pen.ink(surface), 40)
    font, size = pen.font(), pen.size(14, 18)
    step = pen.height(font, size) + rng.randint(4, 14)
    columns = rng.randint(2, 5)
    left, right = rng.randint(4, EDGE + 8), CANVAS - rng.randint(4, EDGE + 8)
    top = y = rng.randint(EDGE, 50)
    if top > 36:
        pen.row([lexicon.word(rng) for _ in range(3)], pen.font(), pen.size(16, 22), left, 4, ink, right)
    edges = [left + (right - left) * column // columns for column in range(columns)] + [right]
    for column in range(1, columns):
        edges[column] += rng.randint(-14, 14)
    makers: list[Callable[[random.Random], str]] = [
        rng.choice((lexicon.word, lexicon.word, lexicon.number, lexicon.price, lexicon.date, lexicon.code, lexicon.any))
        for _ in range(columns)
    ]
    head = pen.shade(surface, 30) if sum(surface) > 380 else surface
    pen.fill(left, y, right, y + step, head)
    ruled = rng.random() < 0.7
    align_right = [rng.random() < 0.3 for _ in range(columns)]
    first = True
    while y + step < CANVAS - EDGE // 2:
        if ruled:
            pen.fill(left, y, right, y + 1, rule)
        for column in range(columns):
            x, limit = edges[column] + 5, edges[column + 1] - 4
            if rng.random() < 0.06:
                continue
            text = lexicon.word(rng) if first else makers[column](rng)
            if align_right[column] and not first:
                if pen.faces[font][size].width(text) <= limit - x:
                    pen.right(text, font, size, limit, y + 2, ink)
            else:
                pen.write(text, font, size, x, y + 2, ink, limit)
        y += step
        first = False
    if ruled:
        pen.fill(left, y, right, y + 1, rule)
        for edge in edges:
            pen.fill(edge, top, edge + 1, y + 1, rule)


def screen(pen: Pen) -> None:
    """A window: title bar, side list, rows of content, buttons."""
    rng, lexicon = pen.rng, pen.lexicon
    body, bar, side = pen.paper(0.35), pen.paper(0.6), pen.paper(0.4)
    pen.fill(0, 0, CANVAS, CANVAS, body)
    font, size = pen.font("sans" if rng.random() < 0.6 else None), pen.size(14, 18)
    bar_height = rng.randint(26, 40)
    pen.fill(0, 0, CANVAS, bar_height, bar)
    bar_font, bar_size = pen.font(), pen.size(14, 19)
    pen.row(
        [lexicon.any(rng) for _ in range(4)],
        bar_font,
        bar_size,
        EDGE,
        max(1, (bar_height - pen.height(bar_font, bar_size)) // 2),
        pen.ink(bar),
        CANVAS - EDGE,
        rng.randint(2, 24),
    )
    side_width = rng.choice((0, rng.randint(110, 160)))
    step = pen.height(font, size) + rng.randint(3, 14)
    if side_width:
        pen.fill(0, bar_height, side_width, CANVAS, side)
        ink, y = pen.ink(side), bar_height + 10
        while y < CANVAS - step - 6:
            if rng.random() < 0.85:
                pen.row([lexicon.any(rng) for _ in range(2)], font, size, 8, y, ink, side_width - 4)
            y += step
    ink, y, left = pen.ink(body), bar_height + rng.randint(8, 20), side_width + EDGE
    content, content_size = (font, size) if rng.random() < 0.5 else (pen.font(), pen.size(14, 20))
    step = pen.height(content, content_size) + rng.randint(2, 12)
    while y < CANVAS - step - 8:
        draw = rng.random()
        if draw < 0.18:
            x = left
            for _ in range(rng.randint(1, 3)):
                surface = pen.paper(0.5)
                text = lexicon.word(rng)
                width = pen.faces[content][content_size].width(text)
                if x + width + 16 > CANVAS - 6:
                    break
                pen.fill(x, y - 2, x + width + 16, y + pen.height(content, content_size) + 2, surface)
                pen.write(text, content, content_size, x + 8, y, pen.ink(surface))
                x += width + 16 + rng.randint(8, 30)
            y += 6
        elif draw < 0.92:
            pen.row(
                [lexicon.any(rng) for _ in range(rng.randint(1, 6))],
                content,
                content_size,
                left,
                y,
                ink,
                CANVAS - 6,
                rng.choice((0, 0, 10)),
            )
        y += step


def page(pen: Pen) -> None:
    """Running text of one or two fonts, ragged right, sometimes in two columns."""
    rng, lexicon = pen.rng, pen.lexicon
    surface = pen.paper()
    pen.fill(0, 0, CANVAS, CANVAS, surface)
    ink = pen.ink(surface)
    columns = rng.choice((1, 1, 2))
    span = (CANVAS - 2 * EDGE) // columns
    for column in range(columns):
        font, size = pen.font(), pen.size(14, 20)
        left, right = EDGE + column * span, EDGE + (column + 1) * span - 6
        step, y = pen.height(font, size) + rng.randint(0, 8), rng.randint(EDGE // 2, 30)
        while y < CANVAS - step - 4:
            pen.row(
                [lexicon.any(rng) for _ in range(rng.randint(2, 8))],
                font,
                size,
                left + rng.choice((0, 0, 20)),
                y,
                ink,
                right,
            )
            y += step + (rng.randint(8, 30) if rng.random() < 0.15 else 0)


def scatter(pen: Pen) -> None:
    """Words of any font, size and colour in loose rows over a few coloured areas."""
    rng, lexicon = pen.rng, pen.lexicon
    surface = pen.paper()
    pen.fill(0, 0, CANVAS, CANVAS, surface)
    for _ in range(rng.randint(0, 5)):
        x, y = rng.randint(0, CANVAS - 40), rng.randint(0, CANVAS - 40)
        pen.fill(
            x, y, min(CANVAS, x + rng.randint(10, 260)), min(CANVAS, y + rng.randint(3, 180)), pen.shade(surface, 14)
        )
    y = rng.randint(2, 24)
    while y < CANVAS - 24:
        x, tall = rng.randint(4, 80), 16
        while x < CANVAS - 40:
            font, size = pen.font(), pen.size(14, 24)
            end = pen.write(lexicon.any(rng), font, size, x, y + rng.randint(0, 4), pen.ink(surface))
            if end < 0:
                break
            tall = max(tall, pen.height(font, size) + 4)
            x = end + rng.randint(8, 80)
        y += tall + rng.randint(0, 20)


DESIGNS: dict[str, Callable[[Pen], None]] = {
    function.__name__: function for function in (receipt, form, sign, table, screen, page, scatter)
}


def compose(seed: int, role: Split, kind: str | None = None) -> Scene:
    """One scene of ``role`` (which fixes its fonts and strings), of the given or of a random kind."""
    rng = random.Random(f"{role}:{seed}")
    kind = kind or rng.choice(tuple(DESIGNS))
    return lay_out(kind, DESIGNS[kind], role, rng)


def lay_out(kind: str, design: Callable[[Pen], None], role: Split, rng: random.Random) -> Scene:
    """A scene that ``design`` fills, seen with a turn, uneven light, blur and noise as ``rng`` has it."""
    scene = Scene(kind, role, (0, 0, 0))
    pen = Pen(rng, role, scene)
    scene.background = pen.paper(0.4)
    design(pen)
    draw = rng.random
    if draw() < 0.5:
        scene.angle = round(rng.uniform(-3.0, 3.0), 2)
    if draw() < 0.5:
        scene.light = (round(rng.uniform(-25, 25), 1), round(rng.uniform(-25, 25), 1))
    if draw() < 0.3:
        scene.blur = round(rng.uniform(0.1, 0.6), 2)
    if draw() < 0.6:
        scene.noise = round(rng.uniform(1.0, 9.0), 1)
    return scene
