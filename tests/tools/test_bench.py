"""`aml-dist bench`: names, columns and arithmetic; not how fast anything is."""

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

SVG = "{http://www.w3.org/2000/svg}"
FINE, FAILED, USAGE = 0, 1, 2
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}

# Factors of nccl-tests for the bus bandwidth of n ranks.
FACTORS = {
    "allreduce": lambda n: 2 * (n - 1) / n, "reduce": lambda n: 1, "broadcast": lambda n: 1, "sendrecv": lambda n: 1,
    "allgather": lambda n: (n - 1) / n, "reduce_scatter": lambda n: (n - 1) / n, "alltoall": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n, "scatter": lambda n: (n - 1) / n, "barrier": lambda n: 1,
}


def bench(tool, *arguments):
    return tool.run("bench", "--rounds", "1", *arguments, env=ENVIRONMENT)


def rows_of(tool, *arguments):
    done = bench(tool, "--json", *arguments)
    assert (done.returncode, done.stderr) == (FINE, ""), done
    return json.loads(done.stdout)


@pytest.mark.parametrize("op", FACTORS)
def test_every_operation_is_right_and_has_its_bandwidths(tool, op):
    rows = rows_of(tool, "--ranks", "3", "--op", op, "--min", "12", "--max", "12K", "--factor", "32")
    assert rows and all(row["wrong"] == 0 for row in rows)
    for row in rows:
        assert {"op", "bytes", "type", "in_place", "time_us", "algbw_GBs", "busbw_GBs", "wrong", "peer"} <= set(row)
        assert (row["op"], row["type"], row["in_place"], row["peer"]) == (op, "float32", False, "amldist")
        assert row["time_us"] > 0
        assert row["algbw_GBs"] == pytest.approx(row["bytes"] / row["time_us"] / 1e3)
        assert row["busbw_GBs"] == pytest.approx(row["algbw_GBs"] * FACTORS[op](3))


@pytest.mark.parametrize("arguments", [
    ["--in-place"], ["--type", "float16", "--redop", "avg"], ["--type", "bfloat16", "--redop", "max"],
    ["--type", "int8", "--redop", "prod"], ["--off-cache"], ["--rewrite"], ["--library-memory"],
])
def test_every_way_of_running_is_right(tool, arguments):
    rows = rows_of(tool, "--ranks", "2", "--min", "64", "--max", "64K", "--factor", "1024", *arguments)
    assert [row["bytes"] for row in rows] == [64, 65536]
    assert all(row["wrong"] == 0 for row in rows)


def test_sizes_are_multiplied_and_divided_among_ranks(tool):
    whole = rows_of(tool, "--ranks", "3", "--op", "broadcast", "--min", "4", "--max", "100", "--factor", "4")
    shared = rows_of(tool, "--ranks", "3", "--op", "allgather", "--min", "4", "--max", "100", "--factor", "4")
    assert [(row["bytes"], row["count"]) for row in whole] == [(4, 1), (16, 4), (64, 16)]
    assert [(row["bytes"], row["count"]) for row in shared] == [(0, 0), (12, 1), (60, 5)]


def test_alone_it_measures_itself_and_has_no_bus(tool):
    done = bench(tool, "--min", "1K", "--max", "1K")
    assert done.returncode == FINE
    head, row = (re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines())
    assert head == ["SIZE", "COUNT", "TYPE", "REDOP", "OP", "PLACE", "TIME_US", "ALGBW_GBS", "BUSBW_GBS", "WRONG", "LIBRARY",
                    "TIMES_OURS"]
    assert row[:6] == ["1024", "256", "float32", "sum", "allreduce", "out"] and row[8:11] == ["n/a", "0", "amldist"]


def test_the_picture_has_a_curve(tool, tmp_path):
    picture = tmp_path / "bandwidth.svg"
    assert bench(tool, "--ranks", "2", "--max", "64K", "--svg", str(picture)).returncode == FINE
    curves = [line for line in ElementTree.parse(picture).iter(f"{SVG}polyline") if line.get("stroke-width") == "2.50"]
    assert len(curves) == 1


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")
def test_open_mpi_is_measured_in_the_same_run(tool):
    rows = rows_of(tool, "--ranks", "2", "--peer", "openmpi", "--min", "4", "--max", "4K", "--factor", "32")
    assert [row["peer"] for row in rows] == ["amldist", "openmpi"] * 3
    assert all(row["wrong"] == 0 for row in rows)


@pytest.mark.skipif(shutil.which("mpicc.openmpi") is None, reason="no mpicc.openmpi on this machine")
def test_another_mpi_is_compiled_when_it_is_named(tool):
    rows = rows_of(tool, "--ranks", "2", "--peer", "mine=/usr/bin/mpicc.openmpi", "--max", "4")
    assert [row["peer"] for row in rows] == ["amldist", "mine"]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")
def test_it_runs_under_mpirun(tool):
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", str(tool.path), "bench", "--json", "--max", "4",
               "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    (row,) = json.loads(done.stdout)  # one rank speaks
    assert (row["ranks"], row["wrong"]) == (2, 0)


def test_scaling_has_a_row_for_each_part_of_the_step(tool):
    done = tool.run("bench", "--scaling", "--ranks", "3", "--gradients", "1M", "--compute-ms", "6", "--json",
                    env=ENVIRONMENT)
    rows = json.loads(done.stdout)
    assert [(row["ranks"], row["nodes"]) for row in rows] == [(1, 1), (2, 1), (3, 1)]
    for row in rows:
        assert row["ideal_ms"] == pytest.approx(rows[0]["step_ms"] / row["ranks"])
        assert row["efficiency"] == pytest.approx(row["ideal_ms"] / row["step_ms"])


@pytest.mark.parametrize("status, words, arguments", [
    (USAGE, "--op 'allredcue' is not known", ["--op", "allredcue"]),
    (USAGE, "--type 'float31'", ["--type", "float31"]),
    (USAGE, "--redop 'mean'", ["--redop", "mean"]),
    (USAGE, "is no size", ["--min", "4X"]),
    (USAGE, "is no size", ["--max", "99999999999999999999"]),
    (USAGE, "is more than", ["--min", "2K", "--max", "1K"]),
    (USAGE, "--factor", ["--factor", "1"]),
    (USAGE, "--ranks", ["--ranks", "-1"]),
    (USAGE, "--peer needs --ranks", ["--peer", "openmpi"]),
    (USAGE, "has no --in-place", ["--op", "sendrecv", "--in-place"]),
    (USAGE, "--scaling goes with", ["--scaling", "--svg", "x.svg"]),
    (USAGE, "is no size", ["--scaling", "--gradients", "much"]),
    (FAILED, "--peer 'nompi'", ["--ranks", "2", "--peer", "nompi"]),
    (FAILED, "is not there", ["--ranks", "2", "--peer", "mpich=/nonexistent/mpicc"]),
    (FAILED, "cannot be written", ["--max", "4", "--svg", "/nonexistent/x.svg"]),
])
def test_bad_input_is_one_sentence_and_a_status(tool, status, words, arguments):
    done = bench(tool, *arguments)
    assert (done.returncode, done.stdout) == (status, ""), done
    assert done.stderr.startswith("aml-dist: ") and done.stderr.count("\n") == 1 and words in done.stderr


def test_no_process_and_no_file_is_left(tool, tmp_path):
    done = tool.run("bench", "--rounds", "1", "--ranks", "2", "--max", "4", env={**ENVIRONMENT, "TMPDIR": str(tmp_path)})
    assert done.returncode == FINE and list(tmp_path.iterdir()) == []
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False)
    assert left.stdout == ""
