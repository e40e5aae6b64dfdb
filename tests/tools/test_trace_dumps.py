"""`aml-dist trace` on dumps of PyTorch's flight recorder, made here as PyTorch 2.15 makes them, and on pickles that are an attack."""

import os
import pickle
import random

import pytest

FINE, FAILED, USAGE, NOT_FOUND = 0, 1, 2, 4
START = 1_790_000_000_000_000_000


def entry(number, operation="all_reduce", state="completed", group=("0", "default_pg"), sizes=((4,),), types=("Float",), retired=True):
    is_message = operation.startswith(("send", "recv"))
    return {"frames": [{"name": "step", "filename": "train.py", "line": 3}], "record_id": number, "pg_id": 0, "process_group": group,
            "collective_seq_id": 0 if is_message else number, "p2p_seq_id": number if is_message else 0, "op_id": number,
            "profiling_name": f"nccl:{operation}", "time_created_ns": START + number * 10**6,
            "input_sizes": [list(each) for each in sizes], "input_dtypes": list(types),
            "output_sizes": [list(each) for each in sizes], "output_dtypes": list(types), "state": state,
            "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": retired, "timeout_ms": 600000,
            "is_p2p": is_message}


def waiting(number, *arguments, **named):
    return entry(number, *arguments, state="started", retired=False, **named)


def dump(folder, rank, entries, groups=None, protocol=2):
    text = {"version": "2.10", "pg_config": groups or {}, "pg_status": {}, "comm_lib_version": "", "entries": entries}
    path = folder / f"nccl_trace_rank_{rank}"
    path.write_bytes(pickle.dumps(text, protocol))
    return str(path)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_the_rank_that_has_not_come_is_named(tool, tmp_path, protocol):
    files = [dump(tmp_path, rank, [entry(1), entry(2)] + ([waiting(3)] if rank != 2 else []), protocol=protocol) for rank in range(4)]
    done = tool.run("trace", *files)
    assert (done.returncode, done.stderr) == (FINE, ""), done
    assert done.stdout.splitlines()[-1].startswith(
        "allreduce #3 (4 float32, 16 bytes): rank 2 has not called it"), done.stdout
    assert done.stdout.splitlines()[-1].endswith("; 3 ranks wait"), done.stdout


def test_subgroups_name_their_members(tool, tmp_path):
    """Ranks 1 and 3 are a group; 3 has never called anything on it."""
    groups = {"5": {"name": "5", "desc": "tp", "ranks": "[1, 3]"}}
    files = [dump(tmp_path, rank, [entry(1)] + ([waiting(1, group=("5", "tp"))] if rank == 1 else []), groups if rank in (1, 3) else {})
             for rank in range(4)]
    assert "allreduce #1 (4 float32, 16 bytes) of group 'tp': rank 3 has not called it" in tool.run("trace", *files).stdout


def test_other_calls_and_messages_are_told(tool, tmp_path):
    one = [dump(tmp_path, 0, [waiting(1, "all_reduce")]), dump(tmp_path, 1, [waiting(1, "_all_gather_base")])]
    assert "rank 0 called allreduce #1 (4 float32, 16 bytes), rank 1 called allgather #1 (4 float32, 16 bytes)" in tool.run("trace", *one).stdout
    two = [dump(tmp_path, 0, [waiting(1, "recv 0<-1")]), dump(tmp_path, 1, [])]
    assert "recv (4 float32, 16 bytes) from rank 1" in tool.run("trace", *two).stdout


def test_dumps_that_are_written_are_dumps(tool, tmp_path):
    """--export-fr writes what torchfrtrace reads; test_torch_trace.py has the real one read it."""
    files = [dump(tmp_path, rank, [entry(1), waiting(2, "send 0->1" if rank == 0 else "recv 1<-0")]) for rank in range(2)]
    done = tool.run("trace", *files, "--export-fr", str(tmp_path / "out"))
    assert done.returncode == FINE, done
    for rank in range(2):
        read = pickle.loads((tmp_path / f"out/rank_{rank}").read_bytes())
        assert read["version"] == "2.10" and [each["desc"] for each in read["pg_config"].values()] == ["default_pg"]
        first, second = read["entries"]
        assert set(first) >= set(entry(1)) and first["state"] == "completed" and first["input_sizes"] == [[4]]
        assert (first["profiling_name"], first["input_dtypes"], first["time_created_ns"]) == ("gloo:all_reduce", ["Float"], START + 10**6)
        assert second["profiling_name"] == ("gloo:send 0->1", "gloo:recv 1<-0")[rank] and second["is_p2p"] is True
    again = tool.run("trace", str(tmp_path / "out/rank_0"), str(tmp_path / "out/rank_1"))
    assert again.stdout.splitlines()[3:] == done.stdout.splitlines()[3:], "what was exported reads the same"


class Attack:
    def __reduce__(self):
        return os.system, ("touch /tmp/aml-dist-was-executed",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_nothing_of_a_dump_is_executed(tool, tmp_path, protocol):
    path = tmp_path / "rank_0"
    path.write_bytes(pickle.dumps({"entries": [Attack()]}, protocol))
    done = tool.run("trace", str(path))
    assert done.returncode == USAGE and done.stdout == "" and done.stderr.count("\n") == 1, done
    assert "is not a dump of PyTorch's flight recorder" in done.stderr and not os.path.exists("/tmp/aml-dist-was-executed")


@pytest.mark.parametrize("name, content, words", [
    ("rank_0", b"", "it is damaged or cut off (EOFError"),
    ("rank_0", b"\x80\x02}q\x00.", "it has no 'entries'"),
    ("rank_0", b"\x80\x02]q\x00h\x00a" + b"h\x00a" * 1000 + b".", "it has no 'entries'"),
    ("rank_0", b"\x80\x02" + b"(" * 100000, "it is damaged or cut off"),
    ("rank_0", b"\x80\x02" + b"]" * 100000 + b"a" * 99999 + b".", "it has no 'entries'"),
    ("rank_0", b"\x80\x02X\xff\xff\xff\xff.", "it is damaged"),
    ("rank_0", b"\x80\x02}X\x07\0\0\0entries]}q\0X\x01\0\0\0ah\0sas.", "it is damaged or cut off (ValueError: Circular"),
    ("rank_x", b"\x80\x02}.", "its name does not end with a rank"),
])
def test_bad_dumps_are_one_sentence(tool, tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    done = tool.run("trace", str(tmp_path / name))
    assert done.returncode == USAGE and done.stdout == "" and done.stderr.count("\n") == 1 and words in done.stderr, done


def test_two_dumps_of_one_rank_are_refused(tool, tmp_path):
    (tmp_path / "b").mkdir()
    done = tool.run("trace", dump(tmp_path, 1, []), dump(tmp_path / "b", 1, []))
    assert done.returncode == USAGE and "another one is of rank 1, too" in done.stderr, done


def test_damaged_dumps_never_crash(tool, tmp_path):
    good = pickle.dumps({"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
                         "entries": [entry(1), waiting(2), waiting(3, "recv 0<-1")]}, 2)
    chance = random.Random(18)
    path = tmp_path / "rank_0"
    for _ in range(150):
        bytes_ = bytearray(good)
        for _ in range(chance.randrange(1, 6)):
            bytes_[chance.randrange(len(bytes_))] = chance.randrange(256)
        path.write_bytes(bytes_[:chance.randrange(len(bytes_))] if chance.random() < 0.2 else bytes_)
        done = tool.run("trace", str(path))
        assert done.returncode in (FINE, USAGE), (done, bytes(bytes_))
        assert done.stderr.count("\n") <= 1
