"""`aml-dist trace` beside other witnesses: dumps of PyTorch's flight recorder, and a stand-in for NCCL's RAS.

The stand-in speaks the protocol of NCCL 2.28.7 and later, which needs a GPU: CLIENT PROTOCOL, TIMEOUT, SET FORMAT, STATUS.
"""

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import threading
import time

import pytest

from recorder_files import Recorder, waiting, working
from test_trace_dumps import dump, entry
from test_trace_dumps import waiting as waiting_entry

FINE, USAGE = 0, 2
NAMED = "rank 2 (local 0) on node2"
TORCH, RAS = "PyTorch's flight recorder", "NCCL RAS"
HASH = 1  # of the communicator in recorder_files


def step(folder, missing=2, source=b"amldist", pid=4711):
    for rank in range(4):
        recorder = working(rank, 4, 2)
        recorder.pid = pid
        path = (recorder if rank == missing else waiting(recorder)).write(folder)
        as_source(path, source)
    return folder


def as_source(path, source):
    """Another library's recorder, whose communicators have a hash as their id."""
    content = path.read_bytes()
    path.write_bytes(content.replace(b"amldist\0", source.ljust(8, b"\0"), 1))
    if source != b"amldist":
        path.rename(path.with_name(f"{path.stem}.{source.decode()}.trace"))


def dumps(folder, missing=2, entries=2, operation="all_reduce"):
    folder.mkdir(exist_ok=True)
    return [dump(folder, rank, [entry(number) for number in range(1, entries + 1)]
                 + ([waiting_entry(entries + 1, operation)] if rank != missing else [])) for rank in range(4)]


def lines_of(done, witness):
    assert done.returncode == FINE, done
    return [line for line in done.stdout.splitlines() if line.startswith(witness)]


def test_the_flight_recorder_agrees(tool, tmp_path):
    done = tool.run("trace", str(step(tmp_path / "42.0")), *dumps(tmp_path / "d"))
    (line,) = lines_of(done, TORCH)
    assert line.startswith(f"{TORCH} agrees: allreduce #3 (4 float32, 16 bytes): rank 2 has not called it"), done.stdout
    whole = json.loads(tool.run("trace", str(tmp_path / "42.0"), *dumps(tmp_path / "d"), "--json").stdout)
    (agreement,) = whole["agreement"]
    assert (agreement["witness"], agreement["agrees"], agreement["sentence"]) == (TORCH, True, line)


def test_the_flight_recorder_says_otherwise(tool, tmp_path):
    done = tool.run("trace", str(step(tmp_path / "42.0")), *dumps(tmp_path / "d", missing=1))
    (line,) = lines_of(done, TORCH)
    assert line.startswith(f"{TORCH} says otherwise: allreduce #3 (4 float32, 16 bytes): rank 1 has not called it"), done.stdout
    assert NAMED in done.stdout, "our verdict stays"


def test_a_last_call_that_differs_is_told(tool, tmp_path):
    done = tool.run("trace", str(step(tmp_path / "42.0")), *dumps(tmp_path / "d", operation="all_gather"))
    (line,) = lines_of(done, TORCH)
    assert "agrees: " in line and "; the last call of rank 0 in group 'world' is allgather #3" in line and line.endswith(" here"), line


def test_dumps_in_the_folder_of_the_step_are_found(tool, tmp_path):
    folder = step(tmp_path / "42.0")
    dumps(folder)
    assert lines_of(tool.run("trace", str(folder)), f"{TORCH} agrees: ")


def test_a_bad_dump_in_the_folder_is_a_problem_and_no_end(tool, tmp_path):
    folder = step(tmp_path / "42.0")
    (folder / "nccl_trace_rank_0").write_bytes(b"\x80")
    done = tool.run("trace", str(folder))
    assert done.returncode == FINE and NAMED in done.stdout and "is not a dump of PyTorch's flight recorder" in done.stderr
    done = tool.run("trace", str(folder), str(folder / "nccl_trace_rank_0"))
    assert done.returncode == USAGE and done.stdout == "", done


# ---- RAS ----

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def answer(counts, missing=(), size=4, communicator=HASH):
    """`counts`: calls of each function by rank."""
    where = {"host": "10.0.0.1", "pid": 1, "cuda_dev": 0, "nvml_dev": 0}
    ranks = [{"rank": rank, **where, "collective_counts": dict(zip(FUNCTIONS, each))} for rank, each in counts.items()]
    gone = [{"rank": rank, **where, "status": {"unresponsive": True, "considered_dead": False}} for rank in missing]
    return json.dumps({"nccl_version": "2.28.9", "communicators": [
        {"hash": f"0x{communicator:x}", "size": size, "ranks_count": len(ranks), "missing_ranks_count": len(gone),
         "ranks": ranks, "missing_ranks": gone}], "ras": {}}).encode()


def serve(listener, reply, greeting=b"SERVER PROTOCOL 2\n", knows_json=True):
    with contextlib.suppress(OSError):
        link, _ = listener.accept()
        with link:
            words = link.makefile("rb")
            for line in words:
                if line.startswith(b"CLIENT PROTOCOL"):
                    link.sendall(greeting)
                elif line.startswith(b"SET FORMAT") and not knows_json:
                    link.sendall(b"ERROR: Unknown command " + line)
                elif line == b"STATUS\n":
                    link.sendall(reply)
                    return
                else:
                    link.sendall(b"OK\n")


def ask(tool, tmp_path, reply, source=b"nccl", env=(), **how):
    """The step's processes are one that sleeps and has the address of the stand-in in its environment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = {"NCCL_RAS_ADDR": f"127.0.0.1:{listener.getsockname()[1]}"} | dict(env)
        thread = threading.Thread(target=serve, args=(listener, reply), kwargs=how, daemon=True)
        thread.start()
        sleeper = subprocess.Popen(["sleep", "60"], env=os.environ | address)
        try:
            folder = step(tmp_path / "42.0", source=source, pid=sleeper.pid)
            with contextlib.ExitStack() as held:
                for path in folder.glob("*.trace"):  # a living writer holds a lock on its file
                    if not path.name.startswith("2."):
                        fcntl.lockf(held.enter_context(open(path, "r+b")), fcntl.LOCK_EX)
                return tool.run("trace", str(folder))
        finally:
            sleeper.kill()
            sleeper.wait()


EQUAL = {rank: (0, 0, 0, 0, 3) for rank in range(4)}


@pytest.mark.parametrize("reply, words", [
    (answer({0: (0, 0, 0, 0, 3), 1: (0, 0, 0, 0, 3), 3: (0, 0, 0, 0, 3)}, missing=[2]), "agrees: rank 2 does not answer"),
    (answer(EQUAL | {2: (0, 0, 0, 0, 2)}), "agrees: rank 2 has made fewer calls than others"),
    (answer(EQUAL | {2: (0, 0, 1, 0, 2)}), "agrees: rank 2 has made other calls than most"),
    (answer(EQUAL | {1: (0, 0, 0, 0, 2)}), "says otherwise: rank 1 has made fewer calls than others"),
    (answer(EQUAL), "leaves it open: all ranks of the group answer, and have made the same calls"),
    (answer(EQUAL, communicator=7), "does not know the group of this call"),
    (b"Job summary\n", "is not heard: its answer cannot be read"),
    (b"[" * 100000, "is not heard: its answer cannot be read"),
    (b'{"communicators": [{"hash": 3}, 7, {"hash": "0x1", "size": 99999999}, {"hash": "0x1", "size": 4, "ranks": {"a": 1}, "missing_ranks": [-1, {}, '
     b'{"rank": 9}]}]}', "leaves it open: all ranks of the group answer, and have made the same calls"),
], ids=("silent", "behind", "differs", "otherwise", "equal", "unknown", "text", "deep", "rubbish"))
def test_ras_as_a_witness(tool, tmp_path, reply, words):
    done = ask(tool, tmp_path, reply)
    assert lines_of(done, RAS) == [f"{RAS} {words}"], done.stdout
    assert NAMED in done.stdout, "our verdict stays"


def test_a_ras_without_json_and_another_service_are_told(tool, tmp_path):
    assert lines_of(ask(tool, tmp_path, b"", knows_json=False), RAS) == [f"{RAS} is not heard: it is older than NCCL 2.28.7 and writes no JSON"]
    other = ask(tool, tmp_path / "b", b"", greeting=b"220 mail\x1b[2J\n")
    assert lines_of(other, RAS) == [f"{RAS} is not heard: what answers on its port is not RAS"]


def test_a_ras_that_is_silent_takes_seconds_only(tool, tmp_path):
    begin = time.monotonic()
    done = ask(tool, tmp_path, b"", greeting=b"")
    assert lines_of(done, RAS) == [f"{RAS} is not heard: it does not answer"] and 3 < time.monotonic() - begin < 12


@pytest.mark.parametrize("source, env", [(b"mpi", {}), (b"nccl", {"NCCL_RAS_ENABLE": "0"})])
def test_ras_is_asked_only_where_it_is(tool, tmp_path, source, env):
    assert not lines_of(ask(tool, tmp_path, answer(EQUAL), source=source, env=env), RAS)
