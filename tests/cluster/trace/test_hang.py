"""MPI programs that know nothing of aml-dist, under `trace` and `hang=` on the real cluster: who is named, and what follows.

AMLDIST_HANG_TRIALS=30 tries each kind of failure so often, AMLDIST_HANG_HEALTHY=100 so many healthy runs; AMLDIST_HANG_SEED is
the first seed (tests/soak/hangs does all that).
"""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import time

import pytest
from cluster import BUILD
from conftest import PLUGIN
from hang_sentences import LEFT, OWN, SENTENCES, hang_lines

HERE = pathlib.Path(__file__).resolve().parents[1]
TRIALS = int(os.environ.get("AMLDIST_HANG_TRIALS", "1"))
HEALTHY = int(os.environ.get("AMLDIST_HANG_HEALTHY", "1"))
SEED = int(os.environ.get("AMLDIST_HANG_SEED", time.strftime("%Y%m%d")))
TOOL = os.environ.get("AMLDIST_TOOL", str(BUILD / "bin/aml-dist"))
FRAMEWORKS = os.environ.get("AMLDIST_FRAMEWORKS", "/var/tmp/aml-dist-frameworks")
PY_SPY = shutil.which("py-spy", path=f"{os.environ['PATH']}:{FRAMEWORKS}/venv/bin")
# Open MPI's ranks wait without sleeping unless they are told to yield; with idle_yield.c they sleep then.
STEP = "env OMPI_MCA_mpi_yield_when_idle=1 srun --mpi=pmix -w node[1-2] -N2 -n4 --ntasks-per-node=2"


@pytest.fixture(scope="module")
def program(cluster, traced_libraries):
    """The command; the plugin knows where the libraries are."""
    folder = pathlib.Path(f"/var/tmp/aml-dist-hang-{os.getpid()}")
    folder.mkdir()
    # With the MPI beside the Slurm under test: Open MPI 4 has other names for MPI 4's calls than Open MPI 5.
    for source in ("mpi_faults.c", "idle_yield.c"):
        shutil.copy(HERE / source, folder)
    built = cluster.run(f"cd {folder} && mpicc -O1 -rdynamic -o mpi_faults mpi_faults.c idle_yield.c", timeout=60)
    assert built.status == 0, str(built)
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
    yield str(folder / "mpi_faults")
    shutil.rmtree(folder)


@pytest.mark.parametrize("trial", range(TRIALS))
@pytest.mark.parametrize("kind", SENTENCES)
def test_the_right_rank_is_named_and_the_step_ended(cluster, pmix, program, workdir, kind, trial):
    seed = random.Random(f"{SEED} {kind} {trial}").randrange(1 << 30)
    done = cluster.run(f"cd {workdir} && {STEP} --aml-dist=mpi,hang=1 {program} {kind} {seed} 5")
    lines = hang_lines(done)
    assert len(lines) == 1, f"seed {seed}: {done}"
    said = re.fullmatch(r"aml-dist: hang: (.*); its stack is in (aml-dist-hang-\d+\.\d+\.txt)", lines[0])
    words = said[1].replace(": it waits for a processor", "") if said else ""  # where others keep the machine busy
    assert re.fullmatch(SENTENCES[kind], words), f"seed {seed}: {lines[0]}"
    assert done.status == 75, f"seed {seed}: {done}"
    report = (workdir / said[2]).read_text()
    assert "rank 2 (local 0) on node2, mpi: " in report and re.search(r"^  thread \d+ \(mpi_faults\): state ", report, re.MULTILINE)
    assert "first failure" not in done.err, "the deaths are ours"


@pytest.mark.parametrize("trial", range(TRIALS))
def test_a_killed_rank_is_named(cluster, pmix, program, workdir, trial):
    """PMIx ends such a step by itself, so the line is that about the first failure."""
    seed = random.Random(f"{SEED} killed {trial}").randrange(1 << 30)
    done = cluster.run(f"cd {workdir} && {STEP} --aml-dist=mpi,hang=20 {program} killed {seed} 5")
    assert re.search(rf"^aml-dist: first failure: {re.escape(OWN)}: signal 9 \(SIGKILL\).* (in|after) \w+ #\d+", done.err, re.MULTILINE), done


@pytest.mark.parametrize("trial", range(TRIALS))
def test_a_rank_that_aborts_all_is_named(cluster, pmix, program, workdir, trial):
    seed = random.Random(f"{SEED} aborted {trial}").randrange(1 << 30)
    done = cluster.run(f"cd {workdir} && {STEP} --aml-dist=mpi,hang=20 {program} aborted {seed} 5")
    assert re.search(rf"^aml-dist: first failure: {re.escape(OWN)}: .*, and called MPI_Abort", done.err, re.MULTILINE), done


@pytest.mark.parametrize("trial", range(TRIALS))
def test_a_rank_that_leaves_without_finalize_is_named(cluster, pmix, program, workdir, trial):
    seed = random.Random(f"{SEED} exited {trial}").randrange(1 << 30)
    done = cluster.run(f"cd {workdir} && {STEP} --aml-dist=mpi,hang=3 {program} exited {seed} 5")
    assert re.search(rf"^aml-dist: {LEFT}", done.err, re.MULTILINE) and done.status != 0, done


@pytest.mark.parametrize("trial", range(HEALTHY))
def test_nobody_is_named_in_a_healthy_run_with_pauses(cluster, pmix, program, workdir, trial):
    seed = random.Random(f"{SEED} healthy {trial}").randrange(1 << 30)
    recorders = "ls /dev/shm/aml-dist-0/ /tmp/aml-dist-0/ 2>&1"
    before = cluster.run(recorders, on="node1").out
    # Ten times the longest pause: on a busy machine a rank may come a second late because it has no processor.
    done = cluster.run(f"cd {workdir} && {STEP} --aml-dist=mpi,hang=3 {program} none {seed} 40")
    assert done.status == 0 and not hang_lines(done) and "straggler" not in done.err, f"seed {seed}: {done}"
    assert not list(workdir.iterdir())
    more = set(cluster.run(recorders, on="node1").out.splitlines()) - set(before.splitlines())
    assert not [line for line in more if not line.endswith(":")], "a step that ended well leaves nothing"


def test_a_thread_that_waits_for_word_to_stop_is_no_hang(cluster, pmix, program, workdir):
    done = cluster.run(f"cd {workdir} && {STEP} --aml-dist=mpi,hang=2 {program} service 1 40")
    assert done.status == 0 and not hang_lines(done), done


def test_communicators_that_come_and_go_are_no_hang(cluster, pmix, program, workdir):
    done = cluster.run(f"cd {workdir} && {STEP} --aml-dist=mpi,hang=5 {program} churn 1 40")
    assert done.status == 0 and not hang_lines(done) and "not traced" not in done.err, done


def test_ranks_that_compute_and_ask_for_word_to_stop_are_no_hang(cluster, pmix, program, workdir):
    done = cluster.run(f"cd {workdir} && {STEP} --aml-dist=mpi,hang=2 {program} search 1 40")
    assert done.status == 0 and not hang_lines(done), done


def said_of_straggler(done) -> tuple[int, int]:
    """The part of their time that the others wait for rank 2, and of their waits, by srun's one line."""
    lines = [line for line in done.err.splitlines() if "aml-dist: straggler" in line]
    said = re.fullmatch(rf"aml-dist: straggler: {re.escape(OWN)}: the others wait for it (\d+) % of their time, which is (\d+) % of their "
                        "waits", lines[0] if lines else "")
    assert done.status == 0 and len(lines) == 1 and said and not hang_lines(done), done
    return int(said[1]), int(said[2])


@pytest.mark.parametrize("trial", range(TRIALS))
def test_a_straggler_is_named_with_its_share_of_the_waits(cluster, pmix, program, workdir, trial):
    """Rank 2 comes to every round 0.8 s late. Nothing hangs, so the step goes on to its end.

    So late, because on a busy machine each round also waits a fifth of a second for a processor, which is nobody's fault.
    """
    part, share = said_of_straggler(cluster.run(f"cd {workdir} && {STEP} --aml-dist=mpi,hang=10 {program} straggler {SEED + trial} 36"))
    assert part > 50 and share > 66


@pytest.mark.parametrize("trial", range(TRIALS))
def test_the_slow_stage_of_a_pipeline_is_named(cluster, pmix, program, workdir, trial):
    """Only ranks 1 and 3 exchange messages with it; rank 0 waits for rank 1. No call is made by all."""
    shared = workdir / "recorders"
    shared.mkdir(mode=0o700)
    step = f"AMLDIST_TRACE_DIR={shared} {STEP} --aml-dist=mpi,hang=10 {program} slow-stage {SEED + trial} 40"
    done = cluster.run(f"cd {workdir} && {{ {step} & sleep 25; {TOOL} trace {shared}; {TOOL} trace {shared} --format openmetrics; wait $!; }}")
    part, share = said_of_straggler(done)
    assert part > 40 and share > 66
    assert re.search(rf"^straggler: {re.escape(OWN)}: the others wait for it \d+ % of their time, which is \d+ % of their waits$",
                     done.out, re.MULTILINE), done
    assert re.search(r'^aml_dist_trace_straggler\{step="[\d.]+",rank="2",host="node2"\} 1$', done.out, re.MULTILINE), done


def test_the_live_view_says_from_which_line_a_call_was_made(cluster, pmix, traced_libraries, workdir):
    shutil.copy(HERE / "mpi_faults.c", workdir)
    built = cluster.run(f"cd {workdir} && mpicc -g -O1 -rdynamic -o faults mpi_faults.c", timeout=60)
    assert built.status == 0, built
    step = "step=$(squeue --noheader --steps --format=%i | grep -oE '^[0-9]+[.][0-9]+' | tail -1)"  # later also the looks' own
    done = cluster.run(f"cd {workdir} && {{ timeout 30 {STEP} --aml-dist=mpi,trace ./faults late 1 3 & sleep 8; {step}; {TOOL} trace $step; echo ==; {TOOL} trace $step --json; "
                       "scancel --name srun 2>/dev/null; wait $!; }", timeout=100)
    table, text = done.out.split("==\n")[:2]
    lines = (HERE / "mpi_faults.c").read_text().splitlines()
    rows = [line.split() for line in table.splitlines() if re.match(r"\d ", line)]
    assert len(rows) == 4 and "CALLED FROM" in table, done
    for row in rows:
        place = re.fullmatch(r"mpi_faults\.c:(\d+)", row[-1])
        assert place and "MPI_" in "".join(lines[int(place[1]) - 3:int(place[1]) + 1]), table
    assert {each["called_from"] for each in json.loads(text)["recorders"]} == {row[-1] for row in rows}, done


@pytest.mark.parametrize("trial", range(HEALTHY))
def test_nobody_is_named_in_a_balanced_pipeline(cluster, pmix, program, workdir, trial):
    done = cluster.run(f"cd {workdir} && {STEP} --aml-dist=mpi,hang=10 {program} stages {SEED + trial} 200")
    assert done.status == 0 and not hang_lines(done) and "straggler" not in done.err, done


def test_a_straggler_is_named_by_the_recorders_of_a_running_step(cluster, pmix, program, workdir):
    shared = workdir / "recorders"
    shared.mkdir(mode=0o700)
    step = f"AMLDIST_TRACE_DIR={shared} timeout 40 {STEP} --aml-dist=mpi,trace {program} straggler 1 26"
    look = f"sleep 12; {TOOL} trace {shared}; {TOOL} trace {shared} --format openmetrics"
    done = cluster.run(f"cd {workdir} && {{ {step} & {look}; wait $!; }}")
    assert done.status == 0, done
    assert re.search(rf"^straggler: {re.escape(OWN)}: the others waited for it in \d+ of \d+ calls, which is \d+ % of all waits and \d+ % of "
                     "the time of all ranks$", done.out, re.MULTILINE), done
    assert re.search(r'^aml_dist_trace_straggler\{step="[\d.]+",rank="2",host="node2"\} 1$', done.out, re.MULTILINE), done


def test_a_report_leaves_the_step_alone(cluster, pmix, program, workdir):
    done = cluster.run(f"cd {workdir} && timeout 12 {STEP} --aml-dist=mpi,hang=1,hang_action=report {program} late 3 5")
    assert len(hang_lines(done)) == 1, done
    assert done.status != 75, done


BUSY = {"busy": r"it computes \(1 child, \d+\.\d processors?\)", "locked": "it waits for a lock on a file",
        "paged": "nobody reads its output"}


@pytest.mark.parametrize("kind", BUSY)
def test_a_rank_that_is_busy_is_told_once_and_its_step_goes_on(cluster, pmix, program, workdir, kind):
    """It stays away for more than twice the time that is a hang, and then comes."""
    done = cluster.run(f"cd {workdir} && {STEP} --aml-dist=mpi,hang=3 {program} {kind} 1 5")
    busy = [line for line in done.err.splitlines() if line.startswith("aml-dist: busy: ")]
    assert done.status == 0 and not hang_lines(done) and len(busy) == 1, done
    assert re.match(rf"aml-dist: busy: barrier #\d+: {re.escape(OWN)} has not called it for \d+ s: {BUSY[kind]}; 3 ranks wait", busy[0])


def test_a_busy_rank_is_hung_after_its_time(cluster, pmix, program, workdir):
    done = cluster.run(f"cd {workdir} && {STEP} --aml-dist=mpi,hang=1,hang_busy=2 {program} busy 1 5")
    assert done.status == 75 and len(hang_lines(done)) == 1 and ": it computes (" in hang_lines(done)[0], done


def test_a_debugger_on_any_node_holds_the_judgement(cluster, pmix, program, workdir):
    """Rank 2 of node 2 is late; a rank of node 1 is held by ptrace, as by gdb or py-spy, and let go after 10 s."""
    hold = ("import ctypes, os, sys, time; libc = ctypes.CDLL(None, use_errno=True); pid = int(sys.argv[1]); "
            "assert libc.ptrace(16, pid, None, None) == 0; time.sleep(10); libc.ptrace(17, pid, None, None)")
    step = f"{STEP} --aml-dist=mpi,hang=1 {program} late 3 5"
    done = cluster.run(f"cd {workdir} && {{ {step} & sleep 1.5; date +%s.%N; srun --overlap --jobid=$(squeue -ho %A | tail -1) -w node1 -N1 -n1 "
                       f"bash -c 'pid=$(pgrep -f \"^{program}\" | head -1); exec /usr/bin/python3 -c \"{hold}\" $pid'; "
                       "date +%s.%N; kill -0 $! && echo it lives; wait $!; }")
    assert "it lives" in done.out and len(hang_lines(done)) == 1 and done.status == 75, done


def test_a_step_that_records_nothing_is_said_not_to_be_watched(cluster, program, workdir):
    done = cluster.run("srun -w node[1-2] -N2 --aml-dist=pytorch,hang=2 sleep 75", timeout=100)
    assert done.status == 0 and done.err.count("hang=2: no rank has recorded a call in the first 60 s") == 1, done


FORTRAN = {"mpif.h": ("", "include 'mpif.h'\n  integer :: again"),
           "mpi": ("use mpi", "integer :: again"),
           "mpi_f08": ("use mpi_f08", "type(MPI_Request) :: again")}


@pytest.mark.parametrize("bindings", FORTRAN)
def test_fortran_and_own_preloads_are_traced_too(cluster, pmix, program, workdir, bindings):
    """Persistent collectives are MPIX_ in Open MPI 4.1, and in its mpi_f08 an extension with a module of its own."""
    if cluster.run("mpifort --version").status != 0:
        pytest.skip("no mpifort, or none that has its compiler")
    used, declared = FORTRAN[bindings]
    message = "call MPI_Recv_init(all, 1, MPI_INTEGER, 2, 7, MPI_COMM_WORLD, again, ierr)"
    prepare = "call MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, again, ierr)" if bindings != "mpi_f08" else message
    (workdir / "late.f90").write_text(f"""program late
  {used}
  {declared}
  integer :: rank, ierr, one, all
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  one = rank
  call MPI_Allreduce(one, all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  {prepare}
  if (rank == 2) call sleep(1000)
  call MPI_Start(again, ierr)
  call MPI_Wait(again, MPI_STATUS_IGNORE, ierr)
  call MPI_Finalize(ierr)
end program
""")
    shutil.copy(HERE / "idle_yield.c", workdir)
    build = "mpifort -rdynamic -o late late.f90 idle_yield.o"
    built = cluster.run(f"cd {workdir} && mpicc -c idle_yield.c && {{ {build} || {{ sed -i 's/MPI_Barr/MPIX_Barr/' late.f90; {build}; }}; }}")
    assert built.status == 0, built
    preload = "libm.so.6"
    done = cluster.run(f"cd {workdir} && {STEP} --export=ALL,LD_PRELOAD={preload} --aml-dist=mpi,hang=1 ./late")
    call = "recv .* from rank 2" if bindings == "mpi_f08" else "barrier #1 of group 'persistent barrier #3 of ranks 0-3'"
    assert len(hang_lines(done)) == 1 and re.search(rf"{call}: {re.escape(OWN)} has not (called|met) it", hang_lines(done)[0]), done


MPI4PY = """import sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
half = world.Split(world.rank % 2)
for _ in range(3):
    world.allreduce(world.rank)
    half.barrier()

def load():
    if sys.argv[1] == 'late':
        time.sleep(1000)
    if sys.argv[1] == 'exception':
        raise ValueError('rank 2 has had enough')

if world.rank == 2:
    load()
world.barrier()
"""


@pytest.mark.parametrize("trial", range(TRIALS))
@pytest.mark.parametrize("kind, said", {
    "late": rf"{re.escape(OWN)} has not called it for \d+ s; 3 ranks wait",
    "exception": rf"{re.escape(OWN)} called finalize #\d+ instead; 3 ranks wait",
}.items())
def test_mpi4py_which_loads_mpi_for_itself_is_traced(cluster, pmix, program, workdir, kind, said, trial):
    """An exception ends the program, and mpi4py then waits in MPI_Finalize for the others, who wait for it."""
    if subprocess.run(["/usr/bin/python3", "-c", "import mpi4py"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mpi4py")
    (workdir / "late.py").write_text(MPI4PY)
    path = f"PATH=$PATH:{pathlib.Path(PY_SPY).parent}" if PY_SPY else ""
    done = cluster.run(f"cd {workdir} && {path} {STEP} --aml-dist=mpi,hang=1 /usr/bin/python3 late.py {kind}")
    lines = hang_lines(done)
    assert len(lines) == 1 and done.status == 75, done
    assert re.fullmatch(rf"aml-dist: hang: barrier #\d+: {said}(; it is in load at late\.py:\d+)?; its stack is in \S+", lines[0]), lines
    assert kind != "late" or not PY_SPY or "; it is in load at late.py:" in lines[0], "py-spy told where"
    assert kind != "exception" or "ValueError: rank 2 has had enough" in done.err, done


CUT = """import sys
from mpi4py import MPI
world = MPI.COMM_WORLD
world.barrier()
try:
    if world.rank == 2:
        world.Send(bytearray(8), 3)
    if world.rank == 3:
        world.Recv(bytearray(4), 2)
except MPI.Exception:
    if sys.argv[1] == 'raise':
        raise
"""


@pytest.mark.parametrize("how", ["raise", "go on"])
def test_a_message_that_is_too_long_blames_nobody(cluster, pmix, program, workdir, how):
    """Python calls MPI_Finalize before it ends of MPI's error, and all end; a program that goes on leaves nothing behind."""
    if subprocess.run(["/usr/bin/python3", "-c", "import mpi4py"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mpi4py")
    (workdir / "cut.py").write_text(CUT)
    recorders = "ls /dev/shm/aml-dist-0/ /tmp/aml-dist-0/ 2>&1"
    before = cluster.run(recorders, on="node1").out
    done = cluster.run(f"cd {workdir} && {STEP} --aml-dist=mpi,hang=5 /usr/bin/python3 cut.py '{how}'")
    lines = [line for line in done.err.splitlines() if line.startswith("aml-dist: first failure: ")]
    more = set(cluster.run(recorders, on="node1").out.splitlines()) - set(before.splitlines())
    if how == "raise":
        assert done.status == 1 and len(lines) == 1 and not hang_lines(done), done
        assert re.search(r"rank 3 .*: exit status 1, .*, in recv \(.*, 4 bytes\) from rank 2, where a message was too long; nothing recorded "
                         "tells whose call is wrong$", lines[0]), lines
    else:
        assert done.status == 0 and not lines and not hang_lines(done), done
        assert not [line for line in more if not line.endswith(":")], "a step that ended well leaves nothing"


def test_without_trace_nothing_is_loaded_set_or_printed(cluster, pmix, program):
    tell = "'env | grep -E \"AMLDIST_TRACE|LD_PRELOAD\"; grep -c amldist-mpitrace /proc/self/maps; ls /dev/shm'"
    done = cluster.run(f"{STEP} --aml-dist=mpi bash -c {tell}")
    assert "AMLDIST_TRACE" not in done.out and "LD_PRELOAD" not in done.out and done.said == "", done
    off = cluster.run(f"{STEP} --aml-dist=mpi,trace=off bash -c {tell}")
    assert "AMLDIST_TRACE" not in off.out and "LD_PRELOAD" not in off.out and off.said == "", off


def test_what_an_outer_step_left_is_removed(cluster, pmix, program):
    inherited = "AMLDIST_TRACE=1.0,LD_PRELOAD=libm.so.6:/x/libamldist-mpitrace-preload.so"
    done = cluster.run(f"{STEP} --export=ALL,{inherited} --aml-dist=mpi bash -c 'echo $AMLDIST_TRACE $LD_PRELOAD'")
    assert done.out.splitlines() == ["libm.so.6"] * 4, done


def test_a_container_without_the_library_is_said(cluster, pmix, traced_libraries):
    assert cluster.devcluster("plugin", PLUGIN, "trace_libraries=/nowhere").status == 0
    done = cluster.run(f"{STEP} --aml-dist=mpi,trace bash -c 'echo runs $LD_PRELOAD'")
    assert done.out.split() == ["runs"] * 4, done
    assert done.err.count("MPI calls are not recorded, because there is no /nowhere/") == 1, done
    assert cluster.devcluster("plugin", PLUGIN, f"trace_libraries={traced_libraries}").status == 0


def compiled(source: str, folder: pathlib.Path, *options: str) -> pathlib.Path:
    (folder / "program.c").write_text(source)
    subprocess.run(["mpicc" if "mpi.h" in source else "cc", "-O1", "-o", folder / "program", folder / "program.c", *options], check=True)
    return folder / "program"


HELLO = '#include <stdio.h>\nint main(void) { puts("runs"); return 0; }\n'


def test_a_statically_linked_program_is_said_not_to_be_traced(cluster, pmix, program, workdir):
    static = compiled(HELLO, workdir, "-static")
    done = cluster.run(f"{STEP} --aml-dist=mpi,trace {static}")
    assert done.out.split() == ["runs"] * 4 and done.status == 0, done
    assert [line for line in done.err.splitlines() if "trace: " in line] == [
        f"aml-dist: trace: MPI calls are not recorded, because {static} is statically linked: the system loads no other library "
        "into such a program"], done


def test_a_setuid_program_is_said_not_to_be_traced(cluster, pmix, program, workdir):
    other = compiled(HELLO, workdir)
    shutil.chown(other, "nobody")
    other.chmod(0o4755)
    done = cluster.run(f"{STEP} --aml-dist=mpi,trace {other}")
    assert done.out.split() == ["runs"] * 4 and done.status == 0, done
    assert done.err.count(f"MPI calls are not recorded, because {other} runs with another user's rights (setuid)") == 1, done


WEAK = """#include <stdio.h>
int MPI_Init(int*, char***) __attribute__((weak));
int main(void) { return puts(MPI_Init ? "has MPI" : "has none") < 0; }
"""


def test_a_program_that_asks_whether_it_has_mpi_is_told_the_truth(cluster, pmix, program, workdir):
    """With our names it would believe that it has one, and end in MPI_Init."""
    asking = compiled(WEAK, workdir)
    done = cluster.run(f"{STEP} --aml-dist=mpi,trace {asking}")
    assert done.out.splitlines() == ["has none"] * 4 and done.status == 0, done


@pytest.fixture
def shm(cluster):
    """shm(OPTIONS): another /dev/shm on the two nodes."""
    nodes = ("node1", "node2")

    def mount(options: str) -> None:
        for node in nodes:
            assert cluster.run(f"mount -t tmpfs -o {options} tmpfs /dev/shm", on=node).status == 0
    yield mount
    for node in nodes:
        cluster.run("umount /dev/shm", on=node)


def test_with_a_full_memory_file_system_the_program_runs_untraced(cluster, pmix, program, workdir, shm):
    shm("size=64k")
    done = cluster.run(f"cd {workdir} && OMPI_MCA_btl=self,tcp {STEP} --aml-dist=mpi,hang=20 {program} none 1 3")
    assert done.status == 0 and not hang_lines(done), done
    for rank in range(4):
        assert f"aml-dist: rank {rank} is not traced: the flight recorder cannot reserve room for " in done.err, done


def test_without_a_memory_file_system_the_recorders_are_in_tmp(cluster, pmix, program, workdir, shm):
    shm("ro")
    done = cluster.run(f"cd {workdir} && OMPI_MCA_btl=self,tcp {STEP} --aml-dist=mpi,hang=1 {program} late 1 3")
    assert done.status == 75 and len(hang_lines(done)) == 1 and OWN in hang_lines(done)[0], done


def test_rank_0s_node_watches_when_srun_has_been_killed(cluster, pmix, program, workdir):
    """srun has a child that ends the step when srun dies; it dies with it here, as where the whole batch script's memory is taken.
    squeue does not list the steps of a step manager, so the script looks for their processes."""
    script = workdir / "job.sh"
    script.write_text(f"""#!/bin/bash
#SBATCH -w node[1-2] -N2 -n4 --ntasks-per-node=2 -o {workdir}/out
{STEP} --aml-dist=mpi,hang=6 {program} late 3 5 &
sleep 4
pkill -KILL -P $! ; kill -KILL $!
wait
for i in $(seq 50); do sleep 1; pgrep -f 'mpi_faults late' >/dev/null || break; done
echo over after $i s
""")
    done = cluster.run(f"cd {workdir} && sbatch --wait job.sh; cat out; ls")
    reports = list(workdir.glob("aml-dist-hang-*.txt"))
    assert len(reports) == 1, done
    said = reports[0].read_text()
    assert re.match(rf"barrier #\d+: {re.escape(OWN)} has not called it; 3 ranks wait\ndiagnosis: not-come\n", said), said
    assert re.search(r"^  thread \d+ \(mpi_faults\): state ", said, re.MULTILINE), said
    assert re.search(r"^over after \d+ s$", done.out, re.MULTILINE) and "over after 50 s" not in done.out, "the step was ended"
    logs = pathlib.Path(f"/run/aml-devcluster/{cluster.name}/log").glob("node*.log")
    told = [line for each in logs for line in each.read_text(errors="replace").splitlines() if "whose srun does not answer: hang: " in line]
    assert any("barrier #" in line and f"{OWN} has not called it for " in line for line in told), told


def test_slurm_ends_the_step_of_an_srun_that_alone_was_killed(cluster, pmix, program, workdir):
    """Its child is there for that. Nothing hangs any more, so nobody says a line: srun cannot, and there is no report."""
    script = workdir / "job.sh"
    script.write_text(f"""#!/bin/bash
#SBATCH -w node[1-2] -N2 -n4 --ntasks-per-node=2 -o {workdir}/out
{STEP} --aml-dist=mpi,hang=6 {program} late 3 5 &
sleep 4
pgrep -f 'mpi_faults late' >/dev/null && echo runs
kill -KILL $!
wait $!
echo srun ended with $?
for i in $(seq 50); do sleep 1; pgrep -f 'mpi_faults late' >/dev/null || break; done
echo over after $i s
""")
    done = cluster.run(f"cd {workdir} && sbatch --wait job.sh; cat out; ls")
    assert "runs\n" in done.out and "srun ended with 137\n" in done.out, done
    over = re.search(r"^over after (\d+) s$", done.out, re.MULTILINE)
    assert over and int(over[1]) < 50, done
    assert not list(workdir.glob("aml-dist-hang-*.txt")) and "aml-dist: hang" not in done.out, done
