"""AMLDIST_END_RECORD: one line of JSON for each step, however it ends."""

import json
import pathlib
import time

import pytest
from test_bare_tasks import bare  # noqa: F401 (fixture)
from test_faults import Background

KEYS = ["schema", "step", "cause", "rank", "node", "status", "signal", "time", "evidence", "nodes_blamed"]


def read(path: pathlib.Path) -> dict:
    (line,) = path.read_text().splitlines()
    record = json.loads(line)
    assert list(record) == KEYS and record["schema"] == 1 and abs(record["time"] - time.time()) < 300, line
    return record


@pytest.mark.parametrize("flags, command, said", [
    ("-N2 -n4", "true", {"cause": "done", "rank": None, "node": None, "status": 0, "signal": None, "nodes_blamed": []}),
    ("-w node[1-2] -N2 -n2 -K", "bash -c '[ $RANK = 0 ] || exit 7; sleep 20'", {"cause": "rank_exit", "rank": 1, "node": "node2", "status": 7}),
    ("-w node[1-2] -N2 -n2 -K", "bash -c '[ $RANK = 0 ] || kill -SEGV $$; sleep 20'", {"cause": "rank_signal", "rank": 1, "node": "node2", "signal": 11}),
    ("-N2 -n2 --aml-dist=pytorch,process_count=3", "true", {"cause": "refused", "rank": None, "status": 1}),
    ("-N1 -n1 -w node3 -t 1", "sleep 150", {"cause": "time_limit", "rank": None}),
])
def test_causes(cluster, workdir, flags, command, said):
    path = workdir / "end.json"
    done = cluster.run(f"AMLDIST_END_RECORD={path} srun --aml-dist=pytorch {flags} {command}", timeout=160)
    record = read(path)
    assert {key: record[key] for key in said} == said, str(done)
    if record["cause"] in ("rank_exit", "rank_signal"):
        assert f"aml-dist: first failure: {record['evidence']}\n" in done.err, "the terminal's line is made from it: " + str(done)


def test_a_missing_plugin(cluster, workdir, bare):  # noqa: F811
    for program in ("true", "sleep 60"):
        path = workdir / f"{program}.json"
        done = cluster.run(f"AMLDIST_END_RECORD='{path}' srun -w node[1-2] -N2 --aml-dist=pytorch {program}")
        record = read(path)
        assert (record["cause"], record["node"], record["nodes_blamed"], record["status"]) == ("plugin_missing", "node2", ["node2"], 1), str(done)
        assert f"aml-dist: {record['evidence']}\n" in done.err, str(done)


def test_a_cancelled_job(cluster, workdir):
    path = workdir / "end.json"
    step = Background(cluster, workdir, f"AMLDIST_END_RECORD={path} srun -J cancelled -N2 --aml-dist=pytorch bash -c \"echo runs; sleep 60\"")
    step.says("runs")
    cluster.run("scancel -n cancelled")
    text = step.wait()
    assert read(path)["cause"] == "cancelled" and "first failure" not in text, text


def test_each_step_adds_a_line_and_no_task_sees_the_file(cluster, workdir):
    path = workdir / "end.json"
    step = "srun -N1 -n1 --aml-dist=pytorch bash -c 'echo record=$AMLDIST_END_RECORD'"
    done = cluster.run(f"export AMLDIST_END_RECORD={path}; {step} && {step}")
    assert done.out == "record=\nrecord=\n", str(done)
    assert [json.loads(line)["cause"] for line in path.read_text().splitlines()] == ["done", "done"]


def test_a_full_disk(cluster, workdir):
    """The step's own end is not changed, and a line is whole or not there."""
    full = workdir / "full"
    made = cluster.run(f"mkdir {full}; mount -t tmpfs -o size=8k none {full}; head -c 8k /dev/zero >{full}/file; chmod 777 {full}")
    assert made.status == 0 or "No space" in made.err, str(made)
    try:
        done = cluster.run(f"AMLDIST_END_RECORD={full}/end.json srun -N1 -n1 --aml-dist=pytorch bash -c 'exit 7'", "alice")
        left = cluster.run(f"cat {full}/end.json").out
    finally:
        assert cluster.run(f"umount {full}").status == 0
    first, second = sorted(done.own_lines())
    assert done.status == 7 and "first failure: rank 0" in first, str(done)
    assert second == f"aml-dist: the record of this step's end cannot be written to {full}/end.json: No space left on device", str(done)
    assert left == "", left


@pytest.mark.parametrize("spoil", ["mkfifo {0}", "ln -s /etc/passwd {0}", "mkdir {0}", "ln -s /dev/full {0}"])
def test_what_is_no_file_is_not_written_to(cluster, workdir, spoil):
    path = workdir / "end.json"
    done = cluster.run(f"{spoil.format(path)}; AMLDIST_END_RECORD={path} srun -N1 -n1 --aml-dist=pytorch true", timeout=30)
    (line,) = done.own_lines()
    assert done.status == 0 and f"aml-dist: the record of this step's end cannot be written to {path}: " in line, str(done)
