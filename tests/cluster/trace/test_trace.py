"""A program with libamldist hangs or dies on the real cluster: the recorder, `aml-dist trace` and srun's line show it."""

import json
import os
import pathlib
import re
import shutil
import time

import pytest
from cluster import BUILD, readable_copy

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIBRARY = pathlib.Path(os.environ.get("AMLDIST_LIBRARY", BUILD / "lib/libamldist.so"))
TOOL = os.environ.get("AMLDIST_TOOL", str(ROOT / "build-development/bin/aml-dist"))
PEER = -8  # AMLDIST_EPEER

PROGRAM = '''
import ctypes, glob, os, signal, sys, time
library = ctypes.CDLL(sys.argv[1])
library.amldist_last_error.restype = ctypes.c_char_p
comm = ctypes.c_void_p()
if library.amldist_init(ctypes.byref(comm), 60000) != 0:
    sys.exit(library.amldist_last_error().decode())
data = (ctypes.c_float * 1024)()
def allreduce():
    return library.amldist_allreduce(comm, data, data, ctypes.c_size_t(1024), 7, 0)
for step in range(5):
    if allreduce() != 0:
        sys.exit(library.amldist_last_error().decode())
open(os.path.join(os.path.dirname(sys.argv[0]), "ready%%d" %% library.amldist_rank(comm)), "w").close()
if library.amldist_rank(comm) == 2:
    while len(glob.glob(os.path.join(os.path.dirname(sys.argv[0]), "ready*"))) < 4:
        time.sleep(0.01)
    %s
if library.amldist_rank(comm) == 3:
    time.sleep(%s)
status = allreduce()
library.amldist_finalize(comm)
sys.exit(status != 0)
'''


@pytest.fixture
def program(workdir):
    """program(CULPRIT): a command whose rank 2 does that instead of its sixth allreduce, when all have made their fifth."""
    assert LIBRARY.is_file(), "libamldist.so is not built (AMLDIST_LIBRARY)"
    library = readable_copy(LIBRARY)

    def write(culprit: str, seconds_of_rank_3: float = 0) -> str:
        script = workdir / "program.py"
        script.write_text(PROGRAM % (culprit, seconds_of_rank_3))
        return f"/usr/bin/python3 {script} {library}"
    return write


# As torchrun does: one launcher on a node starts the ranks and numbers them.
LAUNCHER = """import os, subprocess, sys
node = int(os.environ['NODE_RANK'])
ranks = [subprocess.Popen(sys.argv[1:], env={**os.environ, 'RANK': str(2 * node + i), 'LOCAL_RANK': str(i), 'WORLD_SIZE': '4',
                                             'LOCAL_WORLD_SIZE': '2'}) for i in range(2)]
sys.exit(max(abs(rank.wait()) for rank in ranks))
"""


def test_the_ranks_of_launchers_are_watched(cluster, program, workdir):
    (workdir / "launch.py").write_text(LAUNCHER)
    done = cluster.run(f"srun -w node[1-2] -N2 --aml-dist=pytorch,launch=per-node,hang=4 /usr/bin/python3 {workdir}/launch.py "
                       f"{program('time.sleep(1000)')}", timeout=80)
    lines = [line for line in done.err.splitlines() if line.startswith("aml-dist: hang: ")]
    assert done.status == 75 and len(lines) == 1, done
    assert re.search(r"allreduce #6 .*: rank 2 \(local 0\) on node2 has not called it for \d+ s; 3 ranks wait", lines[0]), done


def test_a_receive_from_any_rank_waits_for_those_that_are_idle(cluster, program, workdir):
    """Rank 2 waits, too, so only rank 3 is to blame."""
    receive = "library.amldist_recv_tagged(comm, data, ctypes.c_size_t(1), 7, -1, 3, None)"
    done = cluster.run(f"cd {workdir} && srun -w node[1-2] -N2 -n4 --ntasks-per-node=2 --aml-dist=pytorch,hang=3,hang_busy=2 {program(receive, 1000)}",
                       timeout=80)
    lines = [line for line in done.err.splitlines() if line.startswith("aml-dist: hang: ")]
    assert done.status == 75 and len(lines) == 1, done
    assert "rank 3 (local 1) on node2" in lines[0] and "rank 2 (local" not in lines[0] and "3 ranks wait" in lines[0], done
    (report,) = workdir.glob("aml-dist-hang-*.txt")
    assert "(1 float32, 4 bytes, tag 3) from any rank" in report.read_text(), report.read_text()


@pytest.mark.parametrize("mpi", ["none", "pmix"])
def test_the_line_names_the_last_call_of_the_rank_that_died_first(request, cluster, program, mpi):
    if mpi == "pmix":
        request.getfixturevalue("pmix")
    task = program("os.kill(os.getpid(), signal.SIGKILL)")
    done = cluster.run(f"srun --mpi={mpi} --aml-dist=pytorch -K -w node[1-2] -N2 -n4 --ntasks-per-node=2 {task}")
    assert done.status != 0, str(done)
    lines = [line for line in done.err.splitlines() if "first failure" in line]
    assert len(lines) == 1, done.err
    assert re.match(r"aml-dist: first failure: rank 2 \(local 0\) on node2: signal 9 \(SIGKILL\), \d+\.\d s after the start, "
                    r"after allreduce #\d+ \(1024 float32, 4 KiB\)", lines[0]), lines[0]


@pytest.mark.parametrize("mode, told", [("600", True), ("000", False)])
def test_a_recorder_is_read_with_its_users_rights(cluster, program, mode, told):
    """The line has the last call only where the user may read the recorder; root may read it in both cases."""
    own = "glob.glob('/dev/shm/aml-dist-%d/*/2.trace' % os.getuid())"
    task = program(f"[os.chmod(name, 0o{mode}) for name in {own}]; os.kill(os.getpid(), signal.SIGKILL)")
    done = cluster.run(f"srun --aml-dist=pytorch -K -w node[1-2] -N2 -n4 --ntasks-per-node=2 {task}", user="alice")
    lines = [line for line in done.err.splitlines() if "first failure: rank 2 " in line]
    assert len(lines) == 1, done.err
    assert ("allreduce" in lines[0]) == told, lines[0]


@pytest.mark.parametrize("folder", ["{}/traces", "traces", "link/traces"])
def test_a_recorder_is_read_where_the_user_wants_it(cluster, program, workdir, folder):
    (workdir / "link").symlink_to(workdir)
    task = program("os.kill(os.getpid(), signal.SIGKILL)")
    done = cluster.run(f"cd {workdir} && AMLDIST_TRACE_DIR={folder.format(workdir)} srun --aml-dist=pytorch -K -w node[1-2] -N2 -n4 --ntasks-per-node=2 {task}")
    lines = [line for line in done.err.splitlines() if "first failure" in line]
    assert len(lines) == 1 and re.search(r"rank 2 \(local 0\) on node2: signal 9 .*, after allreduce #\d+ ", lines[0]), str(done)


def test_a_recorder_of_an_earlier_run_of_the_job_tells_nothing(cluster, program, workdir):
    """A job that was requeued has steps of the same names. Here the first step's recorders get the name of the third."""
    task = program("os.kill(os.getpid(), signal.SIGKILL)")
    (workdir / "job.sh").write_text(f"""#!/bin/bash
srun --aml-dist=pytorch -K -n4 --ntasks-per-node=2 {task}
srun --ntasks-per-node=1 -n2 bash -c 'cd /dev/shm/aml-dist-$UID && mv $SLURM_JOB_ID.0 $SLURM_JOB_ID.2'
sleep 2
srun --aml-dist=pytorch -K -n4 --ntasks-per-node=2 bash -c '[ $RANK != 2 ] || exit 3; sleep 20'
""")
    done = cluster.run(f"cd {workdir} && salloc -Q -w node[1-2] -N2 -n4 --ntasks-per-node=2 bash job.sh", user="alice", timeout=90)
    lines = [line for line in done.err.splitlines() if "first failure: rank 2 " in line]
    assert len(lines) == 2 and "after allreduce #" in lines[0], str(done)
    assert "exit status 3" in lines[1] and "allreduce" not in lines[1], str(done)


def test_a_call_that_comes_too_late_is_recorded_with_the_reason(cluster, program, workdir):
    task = program("os.kill(os.getpid(), signal.SIGKILL)", seconds_of_rank_3=1)
    done = cluster.run(f"AMLDIST_TRACE_DIR={workdir}/traces srun --aml-dist=pytorch -w node[1-2] -N2 -n4 "
                       f"--ntasks-per-node=2 {task}")
    assert done.err.count("aml-dist: first failure: rank ") == 1 and "first failure: rank 2 (local 0) on node2: signal 9" in done.err, done.err
    assert re.search(r"^aml-dist: allreduce #6 \(.*\): rank 2 \(local 0\) on node2 is dead; 2 ranks wait$", done.err, re.MULTILINE), done.err
    (folder,) = (workdir / "traces").iterdir()
    trace = json.loads(cluster.run(f"{TOOL} trace --json {folder}", on="node2").out)
    last = {recorder["rank"]: recorder["calls"][-1] for recorder in trace["recorders"]}
    assert (last[2]["sequence"], last[2]["state"]) == (5, "completed")
    for rank in (0, 1, 3):
        assert (last[rank]["sequence"], last[rank]["state"], last[rank]["status"]) == (6, "failed", PEER), (rank, last)


def test_trace_tells_who_is_stopped_in_a_running_step_and_of_a_dead_one(cluster, program, workdir):
    task = program("os.kill(os.getpid(), signal.SIGSTOP)")
    env = f"AMLDIST_TRACE_DIR={workdir}/traces"
    job = workdir / "job"
    job.write_text(f"#!/bin/bash\n{env} srun --aml-dist=pytorch -w node[1-2] -N2 -n4 --ntasks-per-node=2 {task}\n")
    identifier = cluster.run(f"sbatch --parsable --output=/dev/null -w node[1-2] -N2 -n4 --ntasks-per-node=2 {job}").out.strip()
    folder = workdir / "traces" / f"{identifier}.0"
    deadline = time.monotonic() + 30
    stalls = []
    while not stalls or stalls[0]["stragglers"][0]["why"] != "stopped" or len(stalls[0]["waiting"]) < 3:
        assert time.monotonic() < deadline, stalls
        time.sleep(0.3)
        done = cluster.run(f"{TOOL} trace --json {folder}", on="node2")
        stalls = json.loads(done.out)["stalls"] if done.status == 0 else []
    (straggler,) = stalls[0]["stragglers"]
    assert (straggler["rank"], straggler["host"]) == (2, "node2")
    assert stalls[0]["operation"] == "allreduce" and stalls[0]["waiting"] == [0, 1, 3]
    # Not by scancel, which lets a stopped process go on before it kills it.
    for node in ("node2", "node1"):
        cluster.run("pkill -KILL -f program.py; true", on=node)
    cluster.run(f"scancel {identifier}; while squeue -h -j {identifier} | grep -q .; do sleep 0.1; done")
    dead = cluster.run(f"{TOOL} trace {folder}")
    assert f"step {identifier}.0: 4 ranks, recorders of 4 on 2 nodes" in dead.out, str(dead)
    assert re.search(r"^2 +node2 +dead ", dead.out, re.M), str(dead)
    # The survivors may have lived long enough to find out, and to say it in their recorders.
    assert "rank 2 (local 0) on node2 is dead after allreduce #" in dead.out or "rank 2 (node2)" in dead.out, str(dead)


WORLDS = '''
import os, signal, sys, time
sys.path.insert(0, sys.argv[2])
os.environ["AMLDIST_LIBRARY"] = sys.argv[1]
import amldist
from array import array

class Store:
    """A folder that all nodes see: each key a file."""
    def path(self, key): return os.path.join(os.path.dirname(sys.argv[0]), "store-" + key.encode().hex())
    def set(self, key, value):
        with open(self.path(key) + ".new", "wb") as file: file.write(value)
        os.rename(self.path(key) + ".new", self.path(key))
    def get(self, key, timeout):
        end = time.monotonic() + timeout
        while not os.path.exists(self.path(key)):
            if time.monotonic() > end: raise KeyError(key)
            time.sleep(0.02)
        with open(self.path(key), "rb") as file: return file.read()

own = int(os.environ["SLURM_PROCID"])
def world(name, members):
    return amldist.init(60, rank=members.index(own), size=len(members), name=name, label=name, store=Store())

everybody = world("all", [3, 2, 1, 0])
mine = world(f"pair {own % 2}", [own % 2, own % 2 + 2])
for step in range(5):
    for each in (everybody, mine): each.allreduce(array("f", [1.0]))
if own == 3 and sys.argv[3] != "well":
    time.sleep(1000)
mine.allreduce(array("f", [1.0]))
everybody.finalize()
mine.allreduce(array("f", [1.0]))
mine.finalize()
print("done")
'''


@pytest.fixture
def worlds(workdir):
    """worlds(ENDING): a command whose ranks are in two worlds each, both made from a store, as PyTorch makes its groups."""
    library = readable_copy(LIBRARY)
    shutil.copytree(ROOT / "libdist/api/python/amldist", workdir / "site/amldist", ignore=shutil.ignore_patterns("__pycache__"))
    (workdir / "worlds.py").write_text(WORLDS)
    return lambda ending: f"/usr/bin/python3 {workdir}/worlds.py {library} {workdir}/site {ending}"


def test_worlds_from_a_store_are_watched_and_found_as_communicators_of_the_step(cluster, worlds, workdir):
    traces = workdir / "traces"
    done = cluster.run(f"cd {workdir} && AMLDIST_TRACE_DIR={traces} srun --aml-dist=pytorch,hang=2 -w node[1-2] -N2 -n4 "
                       f"--ntasks-per-node=2 {worlds('late')}")
    said = [line for line in done.err.splitlines() if line.startswith("aml-dist: hang: ")]
    assert len(said) == 1 and done.status == 75, done
    assert re.match(r"aml-dist: hang: finalize #6 of group 'all': rank 3 \(local 1\) on node2 has not called it for \d+ s; 3 ranks wait;",
                    said[0]), f"ranks are those of the step: {said}"
    report = (workdir / f"aml-dist-hang-{re.search(r'hang-(.*).txt', said[0])[1]}.txt").read_text()
    assert "allreduce #6 (1 float32, 4 bytes) of group 'pair 1': rank 3 (local 1) on node2 has not called it" in report, "the pair, too: " + report
    (folder,) = traces.iterdir()
    assert re.fullmatch(r"\d+\.0", folder.name), "all worlds are recorded in the step's folder"
    seen = json.loads(cluster.run(f"{TOOL} trace --json {folder}", on="node2").out)
    assert [each["rank"] for each in seen["recorders"]] == [0, 1, 2, 3]
    for each in seen["recorders"]:
        assert [one["name"] for one in each["communicators"]] == ["all", f"pair {each['rank'] % 2}"], each


def test_worlds_from_a_store_that_end_well_leave_nothing(cluster, worlds, workdir):
    traces = workdir / "traces"
    done = cluster.run(f"cd {workdir} && AMLDIST_TRACE_DIR={traces} srun --aml-dist=pytorch,hang=20 -w node[1-2] -N2 -n4 "
                       f"--ntasks-per-node=2 {worlds('well')}")
    assert done.status == 0 and done.out.count("done") == 4, done
    assert not list(traces.iterdir())


def test_all_nodes_of_a_running_step_are_seen_from_anywhere(cluster, program, workdir):
    """Nobody has named a folder: each node's part is read there, by a short step beside the one that runs."""
    step = f"srun -w node[1-2] -N2 -n4 --ntasks-per-node=2 --aml-dist=pytorch,trace {program('time.sleep(25)', 25)}"
    find = "$(squeue --noheader --steps --format=%i | grep -E '^[0-9]+[.][0-9]+ *$' | tail -1)"
    look = f"{TOOL} trace $step"  # found once: the first look's short step may still be listed at the second
    done = cluster.run(f"cd {workdir} && {{ {step} & sleep 9; step={find}; {look} --stacks; echo ==; {look} --json; echo ==; {TOOL} trace 999999.0; "
                       "scancel --name srun 2>/dev/null; wait $!; }", timeout=100)
    table, text, _ = done.out.split("==\n")
    assert re.search(r"^step \d+\.\d+: 4 ranks, recorders of 4 on 2 nodes in memory of node\[1-2\]$", table, re.MULTILINE), done
    assert re.search(r"^allreduce #6 .*: rank 2 \(local 0\) on node2 has not called it for \d+ s, .*; 2 ranks wait$|"
                     r"^allreduce #6 .*: rank 2 \(local 0\) on node2 has not called it", table, re.MULTILINE), done
    assert re.search(r"^\d ranks? \(.*\), as rank \d:\nprocess \d+", table, re.MULTILINE), done
    assert {(each["rank"], each["host"]) for each in json.loads(text)["recorders"]} == \
        {(0, "node1"), (1, "node1"), (2, "node2"), (3, "node2")}, done
    assert "aml-dist: no flight recorder of '999999.0' on this node" in done.err, done
