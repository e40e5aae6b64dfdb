"""The model of collectives in a node (tests/bench/node_model): its arithmetic, and that the library's rule is its."""

import importlib.machinery
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests/bench/node_model"
HEADER = ROOT / "libdist/collective/tuning/algorithm_choice.hpp"


def load():
    loader = importlib.machinery.SourceFileLoader("node_model", str(PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("node_model", loader))
    sys.modules["node_model"] = module
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = writes
    return module


model = load()
COSTS = model.Costs(near=100, far=400, socket=800, call=10, round=20)


def lines(places, algorithm, operation, size):
    return model.estimate(COSTS, places, algorithm, operation, size).lines


def test_a_round_of_two_is_one_line_each():
    near = model.estimate(COSTS, [(0, 0), (0, 0)], "one-round", "allreduce", 4)
    assert (near.ns, near.lines, near.worst) == (110, {"near": 2, "far": 0, "socket": 0}, 1)
    far = model.estimate(COSTS, [(0, 0), (0, 1)], "one-round", "allreduce", 4)
    assert (far.ns, far.lines["far"]) == (410, 2)


def test_data_that_does_not_fit_the_line_takes_lines_of_its_own():
    assert [model.lines_of(size) for size in (0, 4, 56, 57, 64, 65, 1024)] == [1, 1, 1, 2, 2, 3, 17]
    assert lines([(0, 0), (0, 0)], "one-round", "allreduce", 1024)["near"] == 2 * 17


@pytest.mark.parametrize("ranks", [2, 8, 64, 128])
def test_in_one_round_every_rank_reads_every_other(ranks):
    places = model.Machine(2, 8, 8).places(ranks, False)
    assert sum(lines(places, "one-round", "allreduce", 4).values()) == ranks * (ranks - 1)


def test_leaders_alone_cross():
    places = model.Machine(2, 8, 8).places(128, False)
    assert lines(places, "one-round", "allreduce", 4) == {"near": 128 * 7, "far": 128 * 56, "socket": 128 * 64}
    # Up and down: two rounds in each domain. Across: 16 leaders read each other.
    assert lines(places, "two-level", "allreduce", 4) == {"near": 2 * 128 * 7, "far": 16 * 7, "socket": 16 * 8}
    # Two rounds among the eight leaders of a socket, and one of the two sockets.
    assert lines(places, "three-level", "allreduce", 4) == {"near": 2 * 128 * 7, "far": 2 * 16 * 7, "socket": 2}


def test_a_reduction_needs_no_way_back():
    places = [(0, 0)] * 4 + [(0, 1)] * 4
    assert lines(places, "two-level", "reduce", 4) == {"near": 8 * 3, "far": 2, "socket": 0}
    assert lines(places, "two-level", "broadcast", 4) == {"near": 8 * 3, "far": 2, "socket": 0}


def test_ranks_fill_one_complex_after_the_other_or_all_of_them():
    machine = model.Machine(2, 2, 4)
    assert machine.places(5, False) == [(0, 0)] * 4 + [(0, 1)]
    assert sorted(set(machine.places(4, True))) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    with pytest.raises(ValueError, match="17 ranks on 16 cores"):
        machine.places(17, False)


def test_costs_come_from_measured_pairs():
    ranks = [{"rank": r, "host": "n", "socket": r // 2, "cache_of": 0 if r < 2 else 2} for r in range(3)]
    measured = {"ranks": ranks, "latency_ns": [[0, 145, 500], [145, 0, 510], [500, 510, 0]], "groups": [[0, 1], [2]]}
    costs, pairs = model.costs_of_topology(json.dumps(measured), COSTS)
    assert pairs == {"near": 1, "far": 0, "socket": 2}
    assert (costs.near, costs.far, costs.socket) == (145 - model.MESSAGE_NS, 400, 505 - model.MESSAGE_NS)
    for rank in ranks:  # a machine without cache folders: by the groups that were measured
        rank |= {"cache_of": None, "socket": 0}
    costs, pairs = model.costs_of_topology(json.dumps(measured), COSTS)
    assert pairs == {"near": 1, "far": 2, "socket": 0}


def test_the_model_is_near_what_was_measured():
    """All within a factor of 2.5, and three quarters within 1.3: else its costs are wrong."""
    ratios = [row["predicted_us"] / row["measured_us"] for row in model.check(model.Costs())]
    off = [max(ratio, 1 / ratio) for ratio in ratios]
    assert max(off) < 2.5
    assert sum(each < 1.3 for each in off) > 0.75 * len(off)


def constant(name: str) -> int:
    found = re.search(rf"\b{name} = (\d+);", HEADER.read_text())
    assert found, f"{HEADER} has no {name}"
    return int(found[1])


def test_the_library_has_leaders_where_the_model_says_that_they_are_faster():
    fewest, of_each = constant("fewest_ranks_with_leaders"), constant("ranks_of_a_led_domain")
    for row in model.rule(model.Costs()):
        each = -(-max(fewest, of_each * row["domains"]) // row["domains"])
        assert all(row[operation] <= each * row["domains"] for operation in model.OPERATIONS), row


@pytest.mark.parametrize(("sockets", "complexes"), [(2, 4), (2, 8), (4, 2), (4, 4), (8, 2)])
@pytest.mark.parametrize("cores", [2, 4, 8])
def test_the_library_has_leaders_of_sockets_where_the_model_says_that_they_are_faster(sockets, complexes, cores):
    assert sockets * complexes >= constant("fewest_domains_with_socket_leaders")
    places = model.Machine(sockets, complexes, cores).places(sockets * complexes * cores, False)
    times = {size: [model.estimate(model.Costs(), places, algorithm, "allreduce", size).ns for algorithm in model.ALGORITHMS[1:3]]
             for size in (4, 1024)}
    assert times[4][1] < 1.05 * times[4][0], "as fast"
    assert times[1024][1] < 0.8 * times[1024][0], "faster"


def test_it_prints_a_table_and_json():
    arguments = [sys.executable, str(PROGRAM), "--sockets", "1", "--complexes", "2", "--cores", "4", "--ranks", "8", "--bytes", "4"]
    text = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60).stdout
    assert re.search(r"allreduce +4 +8 +2 +two-level", text)
    rows = json.loads(subprocess.run([*arguments, "--json"], check=True, capture_output=True, text=True, timeout=60).stdout)["rows"]
    assert {row["operation"] for row in rows} == set(model.OPERATIONS)
    assert all(row["us"] > 0 and row["ranks"] == 8 for row in rows)
