#!/usr/bin/env python3
"""tests/style/room_picture.py [--write]: draws the include table of docs/architecture.md as docs/pictures/rooms.svg.

Each folder is a box that stands above every folder that it includes. An arrow is drawn only where no other
arrows lead the same way. Without an argument it says whether the picture is that of the table; --write draws it anew.
"""

import argparse
import html
import sys

import include_graph as tree

PICTURE = tree.ROOT / "docs/pictures/rooms.svg"
COLUMN, ROW, HEIGHT, MARGIN = 14, 66, 28, 16  # px between boxes, from row to row, of a box, round the picture
CHARACTER = 7.5  # px, of 12 px monospace with some air
FILLS = (("libdist/collective", "#dcebdc"), ("libdist", "#e3ebf7"), ("spank", "#f7e6d5"), ("srun-wrappers", "#f0e4f4"))

Rows = dict[str, set[str]]


def reduced(rows: Rows) -> Rows:
    """Without the includes that follow from others."""
    reach: Rows = {}

    def below(folder: str) -> set[str]:
        if folder not in reach:
            reach[folder] = set().union(*({each} | below(each) for each in rows[folder]), set())
        return reach[folder]

    return {folder: {each for each in included if not any(each in below(other) for other in included - {each})}
            for folder, included in rows.items()}


def levels(rows: Rows) -> list[list[str]]:
    """Folders by the longest way down; in each level, near to what they include."""
    depths: dict[str, int] = {}

    def depth(folder: str) -> int:
        if folder not in depths:
            depths[folder] = 1 + max((depth(each) for each in rows[folder]), default=-1)
        return depths[folder]

    found: list[list[str]] = [[] for _ in range(1 + max(map(depth, rows)))]
    for folder in sorted(rows):
        found[depths[folder]].append(folder)
    place: dict[str, float] = {}
    for level in found:
        level.sort(key=lambda folder: (sum(place[each] for each in sorted(rows[folder])) / max(1, len(rows[folder])), folder))
        place.update({folder: (at + 0.5) / len(level) for at, folder in enumerate(level)})
    return found


def name_of(folder: str) -> str:
    return folder.removeprefix("libdist/").removeprefix("srun-wrappers/")


def boxes_of(rows: Rows) -> tuple[dict[str, tuple[float, float, float]], float, float]:
    """Left edge, upper edge and width of each folder's box, and the picture's width and height, in px."""
    found = levels(rows)
    widths = {folder: CHARACTER * max(len(name_of(folder)), 9) + 12 for folder in rows}
    wide = max(sum(widths[each] + COLUMN for each in level) for level in found) + 2 * MARGIN
    boxes = {}
    for at, level in enumerate(reversed(found)):
        gap = (wide - 2 * MARGIN - sum(widths[each] for each in level)) / (len(level) + 1)
        left = MARGIN + gap
        for folder in level:
            boxes[folder] = (left, MARGIN + at * ROW, widths[folder])
            left += widths[folder] + gap
    return boxes, wide, 2 * MARGIN + (len(found) - 1) * ROW + HEIGHT


def arrow(above: tuple[float, float, float], below: tuple[float, float, float]) -> str:
    x1, y1 = above[0] + above[2] / 2, above[1] + HEIGHT
    x2, y2 = below[0] + below[2] / 2, below[1] - 2
    middle = (y1 + y2) / 2
    return f'<path d="M{x1:.0f} {y1:.0f}C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}" marker-end="url(#to)"/>'


def picture_of(rows: Rows) -> str:
    boxes, wide, high = boxes_of(rows)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" font-family="monospace" '
             'font-size="12" text-anchor="middle">',
             "<title>The rooms: each includes only rooms below it</title>",
             '<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
             '<path d="M0 0L8 4L0 8z" fill="#8a94a3"/></marker></defs>',
             f'<rect width="{wide:.0f}" height="{high:.0f}" fill="#fff"/>',
             '<g fill="none" stroke="#8a94a3">']
    for folder, included in sorted(reduced(rows).items()):
        lines += [arrow(boxes[folder], boxes[each]) for each in sorted(included)]
    lines.append("</g>")
    for folder, (left, top, width) in sorted(boxes.items()):
        fill = next(colour for start, colour in FILLS if folder.startswith(start))
        middle = left + width / 2
        lines.append(f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{HEIGHT}" rx="4" fill="{fill}" stroke="#5b6675"/>')
        lines.append(f'<text x="{middle:.0f}" y="{top + 18:.0f}">{html.escape(name_of(folder))}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="draw the picture anew")
    picture = picture_of({folder: set(included) for folder, included in tree.graph_of(tree.ROOT).items()})
    if parser.parse_args().write:
        PICTURE.write_text(picture)
    same = PICTURE.is_file() and PICTURE.read_text() == picture
    print("the picture is that of the sources" if same else f"{PICTURE} is not that of the sources: --write draws it anew")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
