"""The includes between the product's folders are those of the table in docs/architecture.md, and none is circular."""

import include_graph as graph
import pytest


def test_the_table_in_the_architecture_page_is_the_truth():
    _, table, _ = graph.parts_of((graph.ROOT / "docs/architecture.md").read_text())
    found = graph.differences(graph.graph_of(graph.ROOT), graph.documented(table))
    assert not found, "\n".join([*found, "tests/style/include_graph.py --write makes the table anew"])


def test_no_folders_include_one_another():
    found = graph.circles(graph.graph_of(graph.ROOT))
    assert not found, "\n".join(found)


@pytest.fixture
def tree(tmp_path):
    """libdist/high includes libdist/low, and both include what is not of the tree."""
    for name, text in {"high/a.cpp": '#include <string>\n#include "low/b.hpp"\n#include "a.hpp"\n', "high/a.hpp": "",
                       "low/b.hpp": "  #  include <vector>\n", "low/b.cpp": '#include "b.hpp"\n'}.items():
        file = tmp_path / "libdist" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_an_include_is_found_by_the_folder_and_by_the_build_s_paths(tree):
    assert graph.graph_of(tree) == {"libdist/high": {"libdist/low": "libdist/high/a.cpp:2 includes low/b.hpp"},
                                    "libdist/low": {}}


def test_a_table_is_read_back_as_it_was_written(tree):
    found = graph.graph_of(tree)
    rows = graph.documented(graph.table_of(found))
    assert list(rows) == ["libdist/low", "libdist/high"]
    assert graph.differences(found, rows) == []


def test_a_difference_is_named_whichever_side_it_is_on(tree):
    found = graph.graph_of(tree)
    assert graph.differences(found, {"libdist/high": set(), "libdist/low": {"libdist/high"}, "libdist/gone": set()}) == [
        "libdist/gone is in the table and holds no source",
        "libdist/high/a.cpp:2 includes low/b.hpp: the table has no libdist/low beside libdist/high",
        "the table has libdist/high beside libdist/low, but nothing there includes it"]


def test_a_circle_is_named_with_an_include_for_each_step(tree):
    (tree / "libdist/low/b.hpp").write_text('#include "high/a.hpp"\n')
    assert graph.circles(graph.graph_of(tree)) == [
        "these folders include one another: libdist/high -> libdist/low -> libdist/high\n"
        "  libdist/high/a.cpp:2 includes low/b.hpp\n  libdist/low/b.hpp:1 includes high/a.hpp"]


WINGS = ("base", "launch", "calls", "trace", "step", "world", "collective", "fabric", "api")  # from the ground up


def test_no_wing_includes_a_wing_above_it():
    arrows = [(folder.split("/")[1], target.split("/")[1], include)
              for folder, targets in graph.graph_of(graph.ROOT).items() if folder.startswith("libdist/")
              for target, include in targets.items() if target.startswith("libdist/")]
    assert {wing for arrow in arrows for wing in arrow[:2]} == set(WINGS)
    assert not [include for wing, target, include in arrows if WINGS.index(target) > WINGS.index(wing)]
