"""`aml-dist trace` on recorders that a program in another language wrote, by the description of the format."""

import fcntl
import json
import os
import shutil
import subprocess
import time
import xml.etree.ElementTree as ElementTree

import pytest

from recorder_files import Call, Recorder, waiting, working

SVG = "{http://www.w3.org/2000/svg}"
FINE, FAILED, USAGE, NOT_FOUND = 0, 1, 2, 4


def step_without(folder, missing=2, size=4):
    """All ranks but one wait in the sixth allreduce."""
    for rank in range(size):
        recorder = working(rank, size, 5)
        (recorder if rank == missing else waiting(recorder)).write(folder)
    return folder


def read_json(tool, *arguments, env=None):
    done = tool.run("trace", "--json", *arguments, env=env)
    assert (done.returncode, done.stderr) == (FINE, ""), done
    return json.loads(done.stdout)


def test_the_rank_that_is_behind_is_named_with_operation_and_number(tool, tmp_path):
    done = tool.run("trace", str(step_without(tmp_path / "42.0")))
    assert (done.returncode, done.stderr) == (FINE, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("step 42.0: 4 ranks, recorders of 4 on 2 nodes")
    assert lines[2].split() == ["RANK", "HOST", "PROCESS", "CALLS", "CALL", "STATE", "SINCE"]
    assert lines[-1] == ("allreduce #6 (1048576 float32, 4 MiB): rank 2 (local 0) on node2 is dead after allreduce #5 (1048576 float32, "
                         "4 MiB); 3 ranks wait")


def test_without_a_step_those_that_left_recorders_are_listed(tool, tmp_path):
    for step in ("42.0", "42.1"):
        step_without(tmp_path / step)
    listed = sorted(str(tmp_path / step) for step in ("42.0", "42.1"))
    env = {"AMLDIST_TRACE_DIR": str(tmp_path)}
    assert set(listed) <= set(tool.run("trace", env=env).stdout.splitlines())
    assert set(listed) <= set(read_json(tool, env=env)["steps"])


def test_json_has_stalls_and_recorders(tool, tmp_path):
    step = read_json(tool, str(step_without(tmp_path / "42.0")), "--last", "3")
    assert (step["job"], step["size"], step["problems"]) == ("42.0", 4, [])
    (stall,) = step["stalls"]
    assert (stall["operation"], stall["sequence"], stall["bytes"], stall["type"]) == ("allreduce", 6, 4 << 20, "float32")
    assert stall["waiting"] == [0, 1, 3]
    (straggler,) = stall["stragglers"]
    assert (straggler["rank"], straggler["host"], straggler["why"]) == (2, "node2", "dead")
    assert straggler["last"]["sequence"] == 5
    assert [recorder["rank"] for recorder in step["recorders"]] == [0, 1, 2, 3]
    first = step["recorders"][0]
    assert [call["sequence"] for call in first["calls"]] == [4, 5, 6]
    assert [call["state"] for call in first["calls"]] == ["completed", "completed", "started"]
    created = Recorder(0, 1).created
    assert abs(first["calls"][0]["started_ns"] - (created + 4_000_000)) < 1000
    assert abs(first["calls"][0]["ended_ns"] - (created + 4_400_000)) < 1000


def test_metrics_say_who_is_waited_for(tool, tmp_path):
    done = tool.run("trace", str(step_without(tmp_path / "42.0")), "--format", "openmetrics")
    assert (done.returncode, done.stderr) == (FINE, "")
    lines = done.stdout.splitlines()
    straggler = '{step="42.0",rank="2",host="node2",why="dead",communicator="",operation="allreduce"}'
    assert 'aml_dist_trace_stalled_calls{step="42.0"} 1' in lines
    assert f"aml_dist_trace_waiting_ranks{straggler} 3" in lines
    (waited,) = [float(line.split()[-1]) for line in lines if line.startswith(f"aml_dist_trace_awaited_seconds{straggler} ")]
    assert 9.9 < waited < 10.1
    runs = [line for line in lines if line.startswith("aml_dist_trace_process_runs{")]
    assert len(runs) == 4 and all(line.endswith(" 0") for line in runs) and 'rank="3",host="node2"' in runs[3]
    assert lines[-1] == "# EOF"


def test_metrics_of_a_working_step_name_nobody(tool, tmp_path):
    for rank in range(3):
        working(rank, 3, 5).write(tmp_path)
    done = tool.run("trace", str(tmp_path), "--format", "openmetrics")
    assert 'aml_dist_trace_stalled_calls{step="42.0"} 0' in done.stdout and "awaited" not in done.stdout, done


def test_metrics_accuse_no_rank_of_another_node(tool, tmp_path):
    """Each node has only its own ranks' recorders; of the others nothing is known there."""
    for rank in (0, 1):
        waiting(working(rank, 4, 5)).write(tmp_path)
    done = tool.run("trace", str(tmp_path), "--format", "openmetrics")
    assert 'aml_dist_trace_stalled_calls{step="42.0"} 1' in done.stdout, done
    assert "no-recorder" not in done.stdout and "awaited_seconds{" not in done.stdout, done


def step_with_straggler(folder, late=2, size=4):
    """One rank comes 3.5 milliseconds late to each of twenty calls."""
    for rank in range(size):
        recorder = Recorder(rank, size, f"node{1 + rank // 2}")
        for sequence in range(1, 21):
            start = sequence * 10_000_000
            recorder.calls.append(Call("allreduce", sequence, start=start + (3_500_000 if rank == late else 0), end=start + 4_000_000))
        recorder.write(folder)
    return str(folder)


def test_a_straggler_is_named_with_its_share_of_the_waits(tool, tmp_path):
    folder = step_with_straggler(tmp_path / "42.0")
    sentence = ("rank 2 (local 0) on node2: the others waited for it in 20 of 20 calls, which is 100 % of all waits and "
                "27 % of the time of all ranks")
    done = tool.run("trace", folder)
    assert (done.returncode, done.stderr) == (FINE, "") and done.stdout.splitlines()[-1] == f"straggler: {sentence}", done
    step = read_json(tool, folder)
    assert step["stalls"] == []
    assert step["waits"] == {"calls": 20, "waited_ns": 20 * 3 * 3_500_000, "straggler": 2, "sentence": sentence, "ranks": [
        {"rank": 2, "host": "node2", "calls": 20, "waited_ns": 20 * 3 * 3_500_000, "share": 1.0}]}
    metrics = tool.run("trace", folder, "--format", "openmetrics").stdout.splitlines()
    labels = '{step="42.0",rank="2",host="node2"}'
    assert f"aml_dist_trace_wait_share{labels} 1" in metrics and f"aml_dist_trace_straggler{labels} 1" in metrics


def test_where_nobody_is_waited_for_nobody_is_a_straggler(tool, tmp_path):
    for rank in range(3):
        working(rank, 3, 20, late=rank * 100_000).write(tmp_path)
    assert "straggler" not in tool.run("trace", str(tmp_path)).stdout
    waits = read_json(tool, str(tmp_path))["waits"]
    assert (waits["calls"], waits["ranks"], waits["straggler"], waits["sentence"]) == (20, [], None, None)
    assert "aml_dist_trace_straggler{" not in tool.run("trace", str(tmp_path), "--format", "openmetrics").stdout


def test_formats(tool, tmp_path):
    folder = str(step_without(tmp_path / "42.0"))
    assert tool.run("trace", folder, "--format", "json").stdout == tool.run("trace", folder, "--json").stdout
    for wrong in (["--format", "xml"], ["--format", "text", "--json"]):
        assert tool.run("trace", folder, *wrong).returncode == USAGE
    done = tool.run("trace", "--format", "openmetrics")
    assert done.returncode == USAGE and "needs a step" in done.stderr


def test_a_living_writer_is_told_from_a_dead_one(tool, tmp_path):
    folder = step_without(tmp_path / "42.0", size=2, missing=1)
    with open(folder / "1.trace", "r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        step = read_json(tool, str(folder))
    assert [recorder["process"] for recorder in step["recorders"]] == ["dead", "runs"]
    assert step["stalls"][0]["stragglers"][0]["why"] == "never-called"


@pytest.mark.parametrize("host, env, shown", [
    (os.uname().nodename, {}, True),
    (os.uname().nodename.partition(".")[0] + ".some.domain", {}, True),
    ("elsewhere", {"SLURMD_NODENAME": "elsewhere"}, True),
    ("elsewhere", {"SLURMD_NODENAME": "here"}, False),
    ("elsewhere", {}, False),
])
def test_stacks_are_those_of_processes_of_this_machine(tool, tmp_path, host, env, shown):
    """A rank of another node has the number of this process, which is not that rank."""
    for rank in range(3):
        recorder = working(rank, 3, 5, host)
        recorder.pid = os.getpid()
        recorder.write(tmp_path)
    with open(tmp_path / "1.trace", "r+b") as first, open(tmp_path / "2.trace", "r+b") as second:
        fcntl.lockf(first, fcntl.LOCK_EX)
        fcntl.lockf(second, fcntl.LOCK_EX)
        done = tool.run("trace", str(tmp_path), "--stacks", env=env)
    assert done.returncode == FINE, done
    own = f"process {os.getpid()}\n  thread {os.getpid()} ("
    assert [f"\nrank {rank} on {host}:\n{own}" in done.stdout for rank in range(3)] == [False, shown, shown], done
    said = (f"aml-dist: no stacks of ranks 1,2: this is {os.uname().nodename}, and they are on other nodes (the first on elsewhere); "
            "ask there, with srun --overlap\n")
    assert (own in done.stdout, done.stderr) == ((True, "") if shown else (False, said)), done


def test_a_working_step_has_no_stall(tool, tmp_path):
    for rank in range(3):
        working(rank, 3, 5).write(tmp_path)
    assert read_json(tool, str(tmp_path))["stalls"] == []


def test_another_operation_is_told(tool, tmp_path):
    for rank in (0, 1, 2):
        waiting(working(rank, 4, 5), "barrier" if rank == 1 else "allreduce").write(tmp_path)
    (stall,) = read_json(tool, str(tmp_path))["stalls"]
    assert {s["rank"]: s["why"] for s in stall["stragglers"]} == {1: "differs"}, "the first call that differs is the fault"


def test_a_message_that_never_comes(tool, tmp_path):
    receiver = working(0, 2, 1)
    receiver.calls.append(Call("recv", 0, 100, "started", 2_000_000, peer=1))
    receiver.write(tmp_path)
    working(1, 2, 1).write(tmp_path)
    (stall,) = read_json(tool, str(tmp_path))["stalls"]
    assert (stall["operation"], stall["waiting"], stall["stragglers"][0]["rank"]) == ("recv", [0], 1)


def test_what_the_watchdog_found_is_repeated(tool, tmp_path):
    recorder = working(0, 1, 1)
    recorder.note = "allreduce #2: rank 1 (local 0) on node2 has not called it"
    recorder.write(tmp_path)
    assert "rank 0 found: allreduce #2: rank 1 (local 0) on node2 has not called it" in tool.run("trace", str(tmp_path)).stdout


def test_steps_are_found_by_name_where_programs_put_them(tool, tmp_path):
    step_without(tmp_path / "42.0")
    working(0, 1, 1).write(tmp_path / "43.0")
    working(0, 1, 1).write(tmp_path / "43.1")
    env = {"AMLDIST_TRACE_DIR": str(tmp_path)}
    assert read_json(tool, "42.0", env=env)["folder"] == str(tmp_path / "42.0")
    assert read_json(tool, "42", env=env)["folder"] == str(tmp_path / "42.0")
    ambiguous = tool.run("trace", "43", env=env)
    assert ambiguous.returncode == USAGE and "matches 2 steps" in ambiguous.stderr
    listed = tool.run("trace", env=env).stdout.splitlines()
    assert {str(tmp_path / name) for name in ("42.0", "43.0", "43.1")} <= set(listed)


@pytest.mark.parametrize("status, words, argument", [
    (NOT_FOUND, "no flight recorder of '77777.7'", "77777.7"),
    (NOT_FOUND, "neither a folder nor a step", "/nonexistent/folder"),
    (NOT_FOUND, "holds no flight recorder", "."),
    (USAGE, "--last", "--last=0"),
])
def test_bad_input_is_one_sentence_and_a_status(tool, status, words, argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = tool.run("trace", argument)
    assert (done.returncode, done.stdout) == (status, ""), done
    assert done.stderr.startswith("aml-dist: ") and done.stderr.count("\n") == 1 and words in done.stderr


def test_files_that_are_none_are_named_and_the_rest_is_read(tool, tmp_path):
    working(0, 2, 1).write(tmp_path)
    (tmp_path / "1.trace").write_bytes(b"rubbish" * 10000)
    os.mkfifo(tmp_path / "2.trace")
    done = tool.run("trace", str(tmp_path))
    assert done.returncode == FINE and done.stdout.startswith("step 42.0")
    assert all(line.startswith("aml-dist: ") for line in done.stderr.splitlines()) and "'1.trace'" in done.stderr


def test_only_rubbish_is_an_error(tool, tmp_path):
    (tmp_path / "1.trace").write_bytes(os.urandom(20000))
    done = tool.run("trace", str(tmp_path))
    assert done.returncode in (FAILED, USAGE) and done.stdout == "" and done.stderr.count("\n") == 1


def test_the_picture_has_a_lane_for_each_rank_and_the_missing_in_red(tool, tmp_path):
    picture = tmp_path / "timeline.svg"
    done = tool.run("trace", str(step_without(tmp_path / "42.0")), "--svg", str(picture))
    assert done.returncode == FINE
    words = [text.text for text in ElementTree.parse(picture).iter(f"{SVG}text")]
    assert [f"rank {rank}" for rank in range(4)] == [word for word in words if word.startswith("rank") and len(word) < 9]
    assert "dead: allreduce #6" in words
    red = [shape for shape in ElementTree.parse(picture).iter(f"{SVG}rect") if shape.get("stroke") == "#b3261e"]
    assert len(red) == 1


def test_the_picture_of_many_ranks_stays_bounded(tool, tmp_path):
    step_without(tmp_path / "42.0", missing=190, size=200)
    picture = tmp_path / "timeline.svg"
    assert tool.run("trace", str(tmp_path / "42.0"), "--svg", str(picture)).returncode == FINE
    words = [text.text for text in ElementTree.parse(picture).iter(f"{SVG}text")]
    assert "rank 190" in words and "at most 64 of 200 ranks are shown" in words


def test_a_picture_that_cannot_be_written_is_said(tool, tmp_path):
    done = tool.run("trace", str(step_without(tmp_path / "42.0")), "--svg", "/nonexistent/x.svg")
    assert (done.returncode, done.stdout) == (FAILED, "") and "cannot be written" in done.stderr


@pytest.fixture
def slurmstepd(tmp_path):
    """Begins what looks like the slurmstepd of a step."""
    (tmp_path / "slurmstepd").symlink_to(shutil.which("sleep"))
    started = []
    yield lambda step: started.append(subprocess.Popen([f"slurmstepd: [{step}]", "60"], executable=tmp_path / "slurmstepd"))
    for process in started:
        process.kill()
        process.wait()


def test_recorders_of_an_earlier_run_of_a_requeued_job_are_not_shown(tool, tmp_path, slurmstepd):
    folder = tmp_path / "42.0"
    for rank in (0, 1):  # the earlier run had them here
        waiting(working(rank, 4, 3)).write(folder)
    assert len(read_json(tool, str(folder))["recorders"]) == 2
    slurmstepd("42.1")
    assert len(read_json(tool, str(folder))["recorders"]) == 2, "another step"
    slurmstepd("42.0")
    done = tool.run("trace", str(folder))
    assert (done.returncode, done.stdout) == (NOT_FOUND, "") and "are of an earlier run of the job" in done.stderr
    for rank in (2, 3):
        recorder = working(rank, 4, 5)
        recorder.created = time.time_ns()
        recorder.write(folder)
    assert [each["rank"] for each in read_json(tool, str(folder))["recorders"]] == [2, 3]


def test_two_recorders_of_each_rank_here_are_not_those_of_all_ranks(tool, tmp_path):
    """Of two nodes, this one's ranks have recorders of libamldist and PyTorch: the other node has to be asked."""
    for rank in (0, 1):
        path = working(rank, 4, 3).write(tmp_path / "42.0")
        shutil.copy(path, path.with_name(f"{rank}.torch.trace"))
    (tmp_path / "squeue").write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    (tmp_path / "squeue").chmod(0o755)
    tool.run("trace", "42.0", env={"AMLDIST_TRACE_DIR": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert (tmp_path / "asked").exists()
