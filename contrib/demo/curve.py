"""Draws a loss curve: as lines of text for a terminal, and as an SVG picture. Standard library only."""
from __future__ import annotations

import html
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One line of the picture: `values[i]` belongs to epoch i + 1."""
    name: str
    values: list[float]
    colour: str


def ticks(highest: float, about: int = 5) -> list[float]:
    """Round numbers from 0 to the first one that is not below `highest`, about as many as asked for."""
    if not math.isfinite(highest) or highest <= 0:
        return [0.0, 1.0]
    rough = highest / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    return [step * i for i in range(math.ceil(highest / step - 1e-9) + 1)]


def epoch_ticks(epochs: int, about: int = 8) -> list[int]:
    step = max(1, math.ceil(epochs / about))
    return list(range(1, epochs + 1, step))


# ---------------------------------------------------------------------------------------------------------- terminal
# A Braille character holds 2 x 4 dots; BRAILLE[row][column] is the bit of one dot.
BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def as_text(values: list[float], width: int = 60, height: int = 11, unicode: bool = True) -> list[str]:
    """The curve in `height` lines of text, with axes; without `unicode` in ASCII, and coarser."""
    across, down = (2, 4) if unicode else (1, 1)
    columns, rows = width * across, height * down
    top = ticks(max(values), 4)[-1]
    cells = [[0] * width for _ in range(height)]
    last_y = None
    for x in range(columns):
        value = interpolate(values, x / (columns - 1))
        y = round((1 - value / top) * (rows - 1))
        # Where the curve is steep, the dots between two columns are filled too.
        between = range(y, y + 1) if last_y is None or abs(y - last_y) < 2 else \
            range(last_y + 1, y + 1) if y > last_y else range(y, last_y)
        for dot in between:
            cells[dot // down][x // across] |= BRAILLE[dot % down][x % across] if unicode else 1
        last_y = y
    draw = (lambda cell: chr(0x2800 + cell) if cell else " ") if unicode else (lambda cell: "*" if cell else " ")
    corner, bar, mark, dash = "└│┤─" if unicode else "+|+-"
    lines = []
    for row, line in enumerate(cells):
        label = f"{top * (1 - row / (height - 1)):7.2f}" if row % 5 == 0 else " " * 7
        lines.append(f"{label} {mark if row % 5 == 0 else bar}{''.join(map(draw, line)).rstrip()}")
    lines.append(" " * 8 + corner + dash * width)
    lines.append(" " * 9 + epoch_labels(len(values), width))
    return lines


def interpolate(values: list[float], fraction: float) -> float:
    position = fraction * (len(values) - 1)
    left = min(int(position), max(0, len(values) - 2))
    right = min(left + 1, len(values) - 1)
    return values[left] + (values[right] - values[left]) * (position - left)


def epoch_labels(epochs: int, width: int) -> str:
    line = [" "] * (width + 6)
    free = 0
    for epoch in epoch_ticks(epochs):
        at = round((epoch - 1) / max(1, epochs - 1) * (width - 1))
        if at >= free:
            line[at:at + len(str(epoch))] = str(epoch)
            free = at + len(str(epoch)) + 1
    return "".join(line).rstrip() + "  epoch"


# --------------------------------------------------------------------------------------------------------------- SVG
WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 70, 210, 84, 62  # what the axes and the legend need around the curves
INK, GREY, GRID = "#1f2933", "#616e7c", "#e4e7eb"
FONT = "font-family=\"'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\""


def as_svg(title: str, subtitle: str, mean: Line, others: list[Line], legend: list[tuple[str, str]]) -> str:
    """The mean as a thick line with dots over the thin lines of the others. `legend` holds (name, colour)."""
    epochs = len(mean.values)
    scale = ticks(max(max(line.values) for line in [mean, *others]))

    def x(epoch: float) -> float:
        return LEFT + (epoch - 1) / max(1, epochs - 1) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / scale[-1] * (HEIGHT - TOP - BOTTOM)

    def text(at_x: float, at_y: float, words: str, size: int = 12, colour: str = GREY, more: str = "") -> str:
        return f'<text x="{at_x:.1f}" y="{at_y:.1f}" font-size="{size}" fill="{colour}" {more}>{html.escape(words)}</text>'

    def path(line: Line, stroke: str) -> str:
        points = " ".join(f"{x(epoch):.1f},{y(value):.1f}" for epoch, value in enumerate(line.values, 1))
        return f'<polyline points="{points}" fill="none" stroke="{line.colour}" {stroke} stroke-linejoin="round"/>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" {FONT}>',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(LEFT, 36, title, 20, INK, 'font-weight="bold"'),
        text(LEFT, 58, subtitle, 13),
    ]
    decimals = max(0, -math.floor(math.log10(scale[1]) + 1e-9)) + (1 if f"{scale[1]:e}".startswith("2.5") else 0)
    for value in scale:
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
                     f'stroke="{GREY if value == 0 else GRID}"/>')
        parts.append(text(LEFT - 10, y(value) + 4, f"{value:.{decimals}f}", more='text-anchor="end"'))
    for epoch in epoch_ticks(epochs, 15):
        parts.append(f'<line x1="{x(epoch):.1f}" x2="{x(epoch):.1f}" y1="{y(0):.1f}" y2="{y(0) + 5:.1f}" stroke="{GREY}"/>')
        parts.append(text(x(epoch), y(0) + 20, str(epoch), more='text-anchor="middle"'))
    middle = TOP + (HEIGHT - TOP - BOTTOM) / 2
    parts.append(text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 16, "epoch", 13, more='text-anchor="middle"'))
    parts.append(text(20, middle, "loss (cross entropy)", 13, more=f'text-anchor="middle" transform="rotate(-90 20 {middle:.1f})"'))

    parts += [path(line, 'stroke-width="1.2" stroke-opacity="0.6"') for line in others]
    parts.append(path(mean, 'stroke-width="3"'))
    parts += [f'<circle cx="{x(epoch):.1f}" cy="{y(value):.1f}" r="3.5" fill="#ffffff" stroke="{mean.colour}" stroke-width="2">'
              f"<title>epoch {epoch}: {value:.4f}</title></circle>" for epoch, value in enumerate(mean.values, 1)]

    for row, (name, colour) in enumerate(legend):
        at = TOP + 12 + 22 * row
        thick = 3 if colour == mean.colour else 1.6
        parts.append(f'<line x1="{WIDTH - RIGHT + 22}" x2="{WIDTH - RIGHT + 46}" y1="{at}" y2="{at}" stroke="{colour}" stroke-width="{thick}"/>')
        parts.append(text(WIDTH - RIGHT + 54, at + 4, name, 12, INK))
    return "\n".join([*parts, "</svg>", ""])
