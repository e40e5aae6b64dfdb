"""Datagrams between srun and the nodes: what strangers send, who records and repeats them, and who has the token of one step."""

import pathlib
import re

import pytest
from cluster import Cluster, readable_copy
from sealed import seal
from test_faults import Background, wait_until
from test_first_failure import by_rank, first_failure

ATTACKS = readable_copy(pathlib.Path(__file__).parent / "attacks.py")
#: A line of a shell that gives srun's port.
PORT = "$(sed -n '2,$s/^ *[0-9]*: [0-9A-F]*:\\([0-9A-F]*\\) .*/0x\\1/p' /proc/net/udp6 | head -n1)"


@pytest.fixture(autouse=True)
def nobody_stays(cluster: Cluster):
    yield
    for user in ("alice", "bob"):
        cluster.run(f"scancel --quiet --user {user}; while squeue -h --user {user} | grep -q .; do sleep 0.2; done", timeout=40)


def step_of(cluster, workdir, user: str, command: str) -> Background:
    folder = workdir / user
    folder.mkdir()
    folder.chmod(0o777)
    return Background(cluster, folder, f"setpriv --reuid={user} --regid={user} --init-groups {command}")


def recording(cluster, workdir, seconds: int):
    (workdir / "network").mkdir()
    recorder = Background(cluster, workdir / "network", f"{ATTACKS} record {workdir}/packets {seconds}")
    recorder.says("records")
    return recorder


def recorded(workdir, port: int) -> list[bytes]:
    pairs = [line.split() for line in (workdir / "packets").read_text().splitlines()]
    return [bytes.fromhex(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == str(port)]


def channel(cluster, user: str) -> tuple[int, str]:
    """As a debugger sees it: every user can look into his own srun."""
    done = cluster.run(f"{ATTACKS} channel {user}")
    assert done.status == 0, str(done)
    port, token = done.out.split()
    return int(port), token


def test_no_datagram_contains_the_token(cluster, workdir):
    recorder = recording(cluster, workdir, 8)
    task = by_rank(r2="sleep 3; exit 7", other="exec sleep 4").replace("'", '"').replace("$RANK", "\\$RANK")
    step = step_of(cluster, workdir, "alice", f"srun -w node[1-2] -N2 -n4 -K --aml-dist=pytorch,hang=60 {task}")
    wait_until(lambda: cluster.run("pgrep -u alice sleep", on="node2").status == 0)
    port, token = channel(cluster, "alice")
    assert "first failure: rank 2 " in step.wait()
    recorder.wait()
    packets = b"\n".join(bytes.fromhex(line.split()[1]) for line in (workdir / "packets").read_text().splitlines() if " " in line.strip())
    assert b";here;node2" in packets and b";failed;2;" in packets and b";start" in packets, "the recorder has missed the step"
    assert all(half.encode() not in packets for half in (token[:16], token[16:])), packets
    assert recorded(workdir, port)


def test_repeated_datagrams_change_nothing_and_are_counted(cluster, workdir):
    """Those of a whole step with servers, while it runs, by another user; then to the next step."""
    servers = "tensorflow,worker_count=2,parameter_server_count=2,verbose"
    task = by_rank(r0="echo runs; sleep 2", r1="sleep 7", other="exec sleep 60").replace("'", '"').replace("$RANK", "\\$RANK")
    recorder = recording(cluster, workdir, 5)
    step = step_of(cluster, workdir, "alice", f"srun --overcommit -w node[1-2] -N2 -n4 --aml-dist={servers} {task}")
    step.says("runs")
    port, _ = channel(cluster, "alice")
    recorder.wait()
    packets = recorded(workdir, port)
    assert any(b";ended;worker;0;0;" in each for each in packets), packets
    again = "\n".join(each.hex() for each in packets)
    done = cluster.run(f"{ATTACKS} send 127.0.0.1 {port} 20 <<<'{again}'", user="bob")
    assert done.status == 0, str(done)
    text = step.wait()
    said = [line for line in text.splitlines() if "datagrams that came to" in line]
    assert "status 0" in text and len(said) == 1, text
    counts = re.search(r"were dropped: (\d+) without the step's code, (\d+) repeated", said[0])
    assert int(counts[2]) >= 20 * len(packets) and counts[1] == "0", said
    other = cluster.run(f"srun -N2 -n4 --aml-dist=pytorch,verbose bash -c 'echo up; sleep 2' & sleep 1; "
                        f"setpriv --reuid=bob --regid=bob --clear-groups {ATTACKS} send 127.0.0.1 {PORT} 5 <<<'{again}'; wait $!")
    said = [line for line in other.own_lines() if "datagrams that came to" in line]
    assert other.status == 0 and len(said) == 1 and f" {5 * len(packets)} without the step's code, 0 repeated" in said[0], str(other)


def test_the_first_failure_arrives_in_every_flood(cluster, workdir):
    """13 steps. Of the floods of an audit, two of so many hid it."""
    task = by_rank(r3="sleep 1.5; exit 7", other="exec sleep 20")
    for attempt in range(13):
        done = cluster.run(f"srun -K -w node[1-4] -N4 -n4 --aml-dist=pytorch {task} & step=$!; sleep 0.8; "
                           f"for i in 1 2; do setpriv --reuid=bob --regid=bob --clear-groups {ATTACKS} flood 127.0.0.1 {PORT} $step & done; wait")
        floods = [int(count) for count in done.out.split()]
        assert len(floods) == 2 and min(floods) > 1000, str(done)
        assert first_failure(done.err)["rank"] == "3", f"flood {attempt}: {done}"


def test_who_has_the_token_misleads_his_own_step_alone(cluster, workdir):
    """alice's tasks lie about each other, in every form; bob's step on the same nodes goes on, and so do the nodes."""
    steps = {user: step_of(cluster, workdir, user, "srun --overcommit -w node[1-2] -N2 -n2 --aml-dist=pytorch,hang=60 bash -c \"echo up; sleep 8\"")
             for user in ("alice", "bob")}
    for step in steps.values():
        wait_until(lambda step=step: step.text().count("up\n") == 2)
    port, token = channel(cluster, "alice")
    lies = ["failed;1;0;9;1;node1", "failed;3;1;1792;1;node2;in allreduce #42 (1 float32, 4 B)", "failed;99;0;9;1;node1", "failed;1;0;9;1;\x1b[31m",
            "ended;worker;0;0;0;2", "here;node9", "here;" + "x" * 3000, "waits;999999999999", "shares;" + "y" * 3000, "state;" + "z" * 3900,
            "stack;1;0;" + "w" * 3000, "stand-in;65536", "stand-in;1", "notice;0;0;0;1;" + "n" * 400, "record;1", "end", "start", "", ";" * 400]
    digits = "\n".join(seal(token, lie).hex() for lie in lies)
    (workdir / "lies").write_text(digits)
    done = cluster.run(f"{ATTACKS} send 127.0.0.1 {port} 1 <{workdir}/lies", user="alice")
    assert done.status == 0, str(done)
    hers, his = (steps[user].wait() for user in ("alice", "bob"))
    told = {user: [line for line in text.splitlines() if "aml-dist: " in line and "aml-dist: trace: " not in line]
            for user, text in (("alice", hers), ("bob", his))}
    assert "status 0" in his and told["bob"] == [], his
    lines = told["alice"]
    assert "status 0" in hers and 0 < len(lines) <= 2 and all(re.fullmatch(r"[\x20-\x7e]+", line) for line in lines), hers
    assert any("first failure: rank " in line for line in lines), hers
