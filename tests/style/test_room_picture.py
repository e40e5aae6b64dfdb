"""docs/pictures/rooms.svg is the include table, drawn."""

import include_graph as tree
import room_picture as picture


def test_the_picture_is_that_of_the_sources():
    rows = {folder: set(included) for folder, included in tree.graph_of(tree.ROOT).items()}
    assert picture.PICTURE.read_text() == picture.picture_of(rows), "tests/style/room_picture.py --write draws it anew"


ROWS = {"libdist/high": {"libdist/middle", "libdist/low"}, "libdist/middle": {"libdist/low"}, "libdist/low": set()}


def test_an_include_that_follows_from_others_is_left_out():
    assert picture.reduced(ROWS) == {**ROWS, "libdist/high": {"libdist/middle"}}


def test_a_folder_stands_above_what_it_includes():
    boxes, _, _ = picture.boxes_of(ROWS)
    assert boxes["libdist/high"][1] < boxes["libdist/middle"][1] < boxes["libdist/low"][1]
