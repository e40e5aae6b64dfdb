"""`aml-dist bench`: names, columns and arithmetic; not how fast anything is."""

import contextlib
import json
import os
import pathlib
import pty
import re
import shutil
import socket
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

SVG = "{http://www.w3.org/2000/svg}"
FINE, FAILED, USAGE, NOT_FOUND = 0, 1, 2, 4
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


def test_averages_of_many_ranks_fit_into_the_smallest_type(tool):
    (row,) = rows_of(tool, "--ranks", "44", "--op", "allreduce", "--type", "int8", "--redop", "avg", "--min", "64", "--max", "64")
    assert row["wrong"] == 0


@pytest.mark.parametrize("op, type_, expected", [
    ("all_reduce", "float", ("allreduce", "float32")), ("reduce-scatter", "half", ("reduce_scatter", "float16")),
    ("all-to-all", "double", ("alltoall", "float64"))])
def test_names_of_nccl_tests_are_understood(tool, op, type_, expected):
    (row,) = rows_of(tool, "--ranks", "2", "--op", op, "--type", type_, "--min", "64", "--max", "64")
    assert (row["op"], row["type"]) == expected


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


def draw(tool, picture, *arguments):
    done = tool.run("bench", *arguments, "--svg", str(picture), env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (FINE, ""), done
    return ElementTree.parse(picture), done.stdout


def words_in(tree):
    return [text.text for text in tree.iter(f"{SVG}text")]


def curves_in(tree):
    """Points of each measured curve."""
    lines = [line for line in tree.iter(f"{SVG}polyline") if line.get("stroke-width") == "2.50"]
    return [line.get("points").split() for line in lines if len(line.get("points").split()) > 2]


def test_the_picture_has_times_and_bandwidths_with_their_units(tool, tmp_path):
    tree, _ = draw(tool, tmp_path / "bench.svg", "--rounds", "1", "--ranks", "2", "--min", "4", "--max", "4K", "--factor", "32")
    assert [len(points) for points in curves_in(tree)] == [3, 3]
    assert {"allreduce of float32, 2 ranks", "microseconds; less is better", "Bus bandwidth", "GB/s; more is better",
            "size of the array", "4 bytes", "amldist"} <= set(words_in(tree))


def test_a_barrier_has_a_picture_without_bandwidths(tool, tmp_path):
    tree, _ = draw(tool, tmp_path / "bench.svg", "--rounds", "1", "--ranks", "2", "--op", "barrier")
    assert "barrier, 2 ranks" in words_in(tree) and "Bus bandwidth" not in words_in(tree)


def test_the_picture_of_scaling_names_every_point(tool, tmp_path):
    tree, table = draw(tool, tmp_path / "scaling.svg", "--scaling", "--ranks", "3", "--gradients", "1M", "--compute-ms", "6")
    rows = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()[1:]]
    assert {row[4] for row in rows} <= set(words_in(tree))  # efficiencies, as in the table
    assert [len(points) for points in curves_in(tree)] == [3, 3]
    assert {"Scaling efficiency", "per cent of the ideal", "Throughput", "steps per second", "ranks on one node",
            "6 ms of computing shared among the ranks, and 1 MiB of gradients all-reduced in buckets meanwhile",
            } <= set(words_in(tree))
    dashed = [line for line in tree.iter(f"{SVG}polyline") if line.get("stroke-dasharray")]
    assert len(dashed) == 3  # an ideal in each chart, and its key


def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("page", ["light", "dark"])
def test_words_are_read_on_a_light_and_on_a_dark_page(tool, tmp_path, page):
    """At least the contrast that WCAG 2.1 wants of text (1.4.3)."""
    tree, _ = draw(tool, tmp_path / "scaling.svg", "--scaling", "--ranks", "2", "--gradients", "1M", "--compute-ms", "6")
    style = next(tree.iter(f"{SVG}style")).text
    assert "prefers-color-scheme: dark" in style
    other = dict(re.findall(r'\[fill="(#\w+)"\] \{ fill: (#\w+)', style)) if page == "dark" else {}
    ground = re.search(r"\.page \{ fill: (#\w+)", style).group(1) if page == "dark" else "#ffffff"
    for text in tree.iter(f"{SVG}text"):
        assert contrast(other.get(text.get("fill"), text.get("fill")), ground) >= 4.5, text.text


def until_closed(master):
    """What a terminal shows: it gives as much as it likes at once, and an error at the end."""
    with contextlib.suppress(OSError):
        while part := os.read(master, 4096):
            yield part.decode()


def test_progress_is_for_terminals(tool):
    """In a pipe there is none (all other tests); on a terminal a line that is gone at the end."""
    master, slave = pty.openpty()
    done = subprocess.run([str(tool.path), "bench", "--rounds", "1", "--max", "4"], stdout=subprocess.PIPE, stderr=slave,
                          env=ENVIRONMENT, timeout=60, check=False)
    os.close(slave)
    shown = "".join(until_closed(master))
    os.close(master)
    assert done.returncode == FINE
    assert "aml-dist: allreduce of 4 bytes (1 of 1)" in shown and shown.endswith("\r\x1b[K")


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")
def test_open_mpi_is_measured_in_the_same_run(tool):
    rows = rows_of(tool, "--ranks", "2", "--peer", "openmpi", "--min", "4", "--max", "4K", "--factor", "32")
    assert [row["peer"] for row in rows] == ["amldist", "openmpi"] * 3
    assert all(row["wrong"] == 0 for row in rows)


@pytest.mark.skipif(shutil.which("mpicc.openmpi") is None, reason="no mpicc.openmpi on this machine")
def test_another_mpi_is_compiled_when_it_is_named(tool):
    rows = rows_of(tool, "--ranks", "2", "--peer", "mine=/usr/bin/mpicc.openmpi", "--max", "4")
    assert [row["peer"] for row in rows] == ["amldist", "mine"]


def has_torch():
    asked = subprocess.run(["/usr/bin/python3", "-c", "import torch.distributed"], capture_output=True, check=False)
    return asked.returncode == 0


TORCH = pytest.mark.skipif(not has_torch(), reason="no torch in /usr/bin/python3 (Debian: python3-torch)")


@TORCH
def test_gloo_is_measured_in_the_same_run_and_right(tool):
    rows = rows_of(tool, "--ranks", "2", "--peer", "gloo=/usr/bin/python3", "--max", "64K", "--factor", "1024", "--rewrite")
    assert [row["peer"] for row in rows] == ["amldist", "gloo"] * 2 and all(row["wrong"] == 0 for row in rows)


class Gloo:
    """The ranks of peer_gloo.py, asked as `aml-dist bench` asks them."""

    def __init__(self, tool, folder, ranks):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "socket"))
        listener.listen()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        program = tool.path.parent.parent / "share/aml-dist/bench/peer_gloo.py"
        shared = ENVIRONMENT | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
        self.processes = [subprocess.Popen(["/usr/bin/python3", str(program), "gloo", str(folder / "socket")],
                                           env=shared | {"GLOO_SOCKET_IFNAME": "lo", "RANK": str(rank)}) for rank in range(ranks)]
        listener.settimeout(60)
        self.streams = [listener.accept()[0].makefile("rw") for _ in range(ranks)]
        assert {stream.readline() for stream in self.streams} == {f"hello gloo {rank} {ranks}\n" for rank in range(ranks)}
        listener.close()

    def ask(self, op, kind, redop, in_place, iterations):
        """(status, wrong elements) over all ranks."""
        for stream in self.streams:
            print(op, kind, redop, in_place, 1200, iterations, 0, 0, 0, file=stream, flush=True)
        answers = [stream.readline().split() for stream in self.streams]
        return max(int(answer[0]) for answer in answers), sum(int(answer[2]) for answer in answers)

    def end(self):
        for stream in self.streams:
            stream.close()
        return [process.wait(30) for process in self.processes]


@TORCH
def test_everything_that_gloo_can_do_is_right(tool, tmp_path):
    gloo = Gloo(tool, tmp_path, 3)
    allreduce, reduce, broadcast, allgather, reduce_scatter, alltoall, gather, scatter, sendrecv, barrier = range(10)
    average, unsupported, bfloat16 = 4, (1, 0), 9
    for kind in (0, 1, 2, 4, 7, 8):
        for op in (allreduce, reduce):
            assert all(gloo.ask(op, kind, redop, place, 0) == (0, 0) for redop in range(4) for place in (0, 1))
        assert all(gloo.ask(op, kind, 0, 0, calls) == (0, 0) for calls in (0, 3)
                   for op in (broadcast, allgather, gather, scatter, sendrecv, barrier))
    assert gloo.ask(allreduce, 7, average, 0, 0) == gloo.ask(allreduce, bfloat16, 0, 0, 0) == unsupported
    assert gloo.ask(alltoall, 7, 0, 0, 0) == gloo.ask(reduce_scatter, 7, 0, 0, 0) == unsupported
    assert gloo.end() == [0, 0, 0]


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
        assert row["steps_per_s"] == pytest.approx(1000 / row["step_ms"])


def test_topology_has_each_pair_and_what_the_kernel_says(tool):
    done = tool.run("bench", "--topology", "--ranks", "3", "--json", env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (FINE, ""), done
    found = json.loads(done.stdout)
    assert [each["rank"] for each in found["ranks"]] == [0, 1, 2]
    for name in ("latency_ns", "bandwidth_GBs"):
        matrix = found[name]
        assert all(matrix[a][b] == matrix[b][a] and (matrix[a][b] == 0) == (a == b) for a in range(3) for b in range(3))
    assert sorted(rank for group in found["groups"] for rank in group) == [0, 1, 2]
    assert "shared memory (" in found["library"]
    for each in found["ranks"]:
        said = pathlib.Path(f"/sys/devices/system/cpu/cpu{each['processor']}/topology/physical_package_id")
        assert each["socket"] == (int(said.read_text()) if said.exists() else None)
        assert each["bound"] == (len(os.sched_getaffinity(0)) not in {0, 2})  # one for each, or one for all


def test_topology_is_a_table(tool):
    table = tool.run("bench", "--topology", "--ranks", "2", env=ENVIRONMENT).stdout
    paragraphs = table.split("\n\n")
    assert [paragraph.split()[0] for paragraph in paragraphs] == ["RANK", "LATENCY_NS", "BANDWIDTH_GBS", "near"]
    assert "near each other, as measured: {0,1}" in table


@pytest.mark.parametrize("status, words, arguments", [
    (USAGE, "--op 'allredcue' is not known", ["--op", "allredcue"]),
    (USAGE, "--type 'float31'", ["--type", "float31"]),
    (USAGE, "--redop 'mean'", ["--redop", "mean"]),
    (USAGE, "is not a size", ["--min", "4X"]),
    (USAGE, "is not a size", ["--max", "99999999999999999999"]),
    (USAGE, "is more than", ["--min", "2K", "--max", "1K"]),
    (USAGE, "--factor", ["--factor", "1"]),
    (USAGE, "--ranks", ["--ranks", "-1"]),
    (USAGE, "--peer needs --ranks", ["--peer", "openmpi"]),
    (USAGE, "has no --in-place", ["--op", "sendrecv", "--in-place"]),
    (NOT_FOUND, "--peer 'nompi'", ["--ranks", "2", "--peer", "nompi"]),
    (NOT_FOUND, "does not exist", ["--ranks", "2", "--peer", "mpich=/nonexistent/mpicc"]),
    (FAILED, "cannot compile", ["--ranks", "2", "--peer", "mpich=/bin/false"]),
    (NOT_FOUND, "has no torch", ["--ranks", "2", "--peer", "gloo=/bin/false"]),
    (NOT_FOUND, "has no torch", ["--ranks", "2", "--peer", "gloo=/nonexistent/python3"]),
    (NOT_FOUND, "has no torch with the package amldist", ["--ranks", "2", "--peer", "torch=/bin/false"]),
    (FAILED, "cannot be written", ["--max", "4", "--svg", "/nonexistent/x.svg"]),
    (FAILED, "cannot be written: Is a directory", ["--max", "4", "--svg", "/tmp"]),
    (FAILED, "cannot be written", ["--ranks", "2", "--max", "4", "--svg", "/nonexistent/x.svg"]),
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


@pytest.mark.parametrize("status, words, arguments", [
    (USAGE, "is not a size", ["--scaling", "--gradients", "much"]),
    (USAGE, "--op excludes --scaling", ["--scaling", "--op", "barrier"]),
    (USAGE, "--peer excludes --scaling", ["--scaling", "--ranks", "2", "--peer", "openmpi"]),
    (USAGE, "--gradients requires --scaling", ["--gradients", "1M"]),
    (USAGE, "--compute-ms", ["--scaling", "--compute-ms", "0"]),
    (FAILED, "cannot be written", ["--scaling", "--svg", "/nonexistent/x.svg"]),
    (USAGE, "--op excludes --topology", ["--topology", "--op", "barrier"]),
    (USAGE, "--scaling excludes --topology", ["--topology", "--scaling"]),
    (USAGE, "--svg excludes --topology", ["--topology", "--svg", "x.svg"]),
    (FAILED, "cannot be written", ["--scaling", "--ranks", "2", "--svg", "/nonexistent/x.svg"]),
])
def test_bad_input_of_scaling_is_one_sentence_and_a_status(tool, status, words, arguments):
    done = tool.run("bench", *arguments, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (status, ""), done
    assert done.stderr.startswith("aml-dist: ") and done.stderr.count("\n") == 1 and words in done.stderr
