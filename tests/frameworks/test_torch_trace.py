"""PyTorch over Gloo that knows nothing of aml-dist, under `trace` and `hang=` on the real cluster.

AMLDIST_HANG_TRIALS=30 tries each kind of failure so often, AMLDIST_HANG_HEALTHY=100 so many healthy runs of each way.
"""

from __future__ import annotations

import os
import pathlib
import random
import re
import shutil
import time

import pytest
from conftest import VENV, need
from torch_sentences import CALLS, FAULTS, OWN, install_package, is_circle, parts_of

TRIALS = int(os.environ.get("AMLDIST_HANG_TRIALS", "1"))
HEALTHY = int(os.environ.get("AMLDIST_HANG_HEALTHY", "1"))
SEED = int(os.environ.get("AMLDIST_HANG_SEED", time.strftime("%Y%m%d")))
STEP = "srun -w node[1-2] -N2 -n4 --ntasks-per-node=2"


@pytest.fixture(scope="module")
def program(cluster):
    """The command. The package is installed as pip would do it."""
    need("torch")
    folder = pathlib.Path(f"/var/tmp/aml-dist-torch-trace-{os.getpid()}")
    yield install_package(folder, VENV)
    shutil.rmtree(folder)


@pytest.fixture
def workdir():
    folder = pathlib.Path(f"/var/tmp/aml-dist-torch-trace-work-{os.getpid()}")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def hang_lines(done) -> list[str]:
    return [line for line in done.err.splitlines() if line.startswith("aml-dist: hang: ")]


@pytest.mark.parametrize("trial", range(TRIALS))
@pytest.mark.parametrize("fault", ["late", "stopped", "operation"])  # tests/soak/hang_trials tries the others
@pytest.mark.parametrize("way", CALLS)
def test_the_right_rank_is_named_with_its_place(cluster, program, workdir, way, fault, trial):
    seed = random.Random(f"{SEED} {way} {fault} {trial}").randrange(1 << 30)
    done = cluster.run(f"cd {workdir} && timeout 120 {STEP} --aml-dist=pytorch,hang=5 {program} {way} {fault} {seed} 5")
    lines = hang_lines(done)
    assert len(lines) == 1, f"seed {seed}: {done}"
    if is_circle(way, fault, lines[0]):
        assert done.status == 75
        return
    said = parts_of(lines[0])
    assert said and re.fullmatch(FAULTS[fault], said[1]), f"seed {seed}: {lines[0]}"
    assert re.fullmatch(CALLS[way], said[0]), f"seed {seed}: {lines[0]}"
    assert done.status == 75, f"seed {seed}: {done}"
    report = (workdir / said[2]).read_text()
    assert "rank 2 (local 0) on node2, torch: " in report, report
    if fault == "late":
        assert re.search(r"^rank 2:\nPython stacks of process \d+\n  thread MainThread\n    do_wrong at ", report, re.MULTILINE), report
    assert report.count("Python stacks of process") >= (1 if fault == "stopped" else 2), "and that of one who waits: " + report


@pytest.mark.parametrize("trial", range(HEALTHY))
@pytest.mark.parametrize("way", CALLS)
def test_nobody_is_named_in_a_healthy_run(cluster, program, workdir, way, trial):
    seed = random.Random(f"{SEED} {way} healthy {trial}").randrange(1 << 30)
    recorders = "ls /dev/shm/aml-dist-0/"
    before = cluster.run(recorders, on="node1").out
    done = cluster.run(f"cd {workdir} && timeout 120 {STEP} --aml-dist=pytorch,hang=5 {program} {way} none {seed} 20")
    assert done.status == 0 and done.out.count("done") == 4 and not hang_lines(done), f"seed {seed}: {done}"
    assert not list(workdir.iterdir())
    more = set(cluster.run(recorders, on="node1").out.split()) - set(before.split())
    assert not more, "a step that ended well leaves nothing"


@pytest.mark.parametrize("fault, said", {"killed": "signal 9", "exception": "status 1"}.items())
def test_a_rank_that_ends_is_named(cluster, program, workdir, fault, said):
    done = cluster.run(f"cd {workdir} && timeout 120 {STEP} --aml-dist=pytorch,hang=10 {program} ddp {fault} 1 5")
    named = [line for line in done.own_lines() if OWN in line and ("first failure" in line or "hang: " in line)]
    assert named and said in named[0], done


LEAVES = ["import os, time, torch, torch.distributed as d",
          "d.init_process_group('gloo')",
          "[d.all_reduce(torch.ones(4)) for _ in range(5)]"]


@pytest.mark.parametrize("rest, failed", {
    "d.get_rank() == 2 and os._exit(0); d.all_reduce(torch.ones(4))": r"rank 2 .*: exit status 0 without destroy_process_group, .*after allreduce #\d ",
    "time.sleep(d.get_rank() == 3); os._exit(7 if d.get_rank() == 3 else 0)": r"rank 3 .*: exit status 7, "}.items())
def test_a_rank_that_leaves_past_pythons_end_is_named_only_where_others_wait(cluster, program, workdir, rest, failed):
    (workdir / "leave.py").write_text("\n".join([*LEAVES, rest]) + "\n")
    python = program.rpartition(" ")[0]
    done = cluster.run(f"cd {workdir} && timeout 120 {STEP} -K --aml-dist=pytorch,hang=10 {python} leave.py")
    lines = [line for line in done.own_lines() if "first failure: " in line]
    assert len(lines) == 1 and re.search("first failure: " + failed, lines[0]), done


def test_without_trace_the_entry_point_does_nothing(cluster, program):
    tell = "import sys, torch; print(sorted(each for each in sys.modules if each.startswith('amldist')))"
    python = program.rpartition(" ")[0]
    done = cluster.run(f'srun -N1 -n1 --aml-dist=pytorch {python} -c "{tell}"')
    assert done.status == 0 and done.out.strip() == "['amldist_trace']" and done.err == "", done


def test_an_entry_point_that_fails_does_not_break_the_import(cluster, program):
    python = program.rpartition(" ")[0]
    program = "import torch, torch.distributed as d; d.init_process_group('gloo'); d.barrier(); print('fine')"
    done = cluster.run(f'AMLDIST_TRACE_DIR=/proc/none srun -N1 -n2 --aml-dist=pytorch,trace {python} -c "{program}"')
    assert done.status == 0 and done.out.count("fine") == 2, done
    assert "calls are not traced: " in done.err, done


def test_pytorchs_own_analysis_reads_what_is_exported(cluster, program, tool, workdir):
    """And ours reads what PyTorch's recorder dumps: both name rank 2."""
    folder = workdir / "recorders"
    folder.mkdir()
    ended = cluster.run(f"cd {workdir} && AMLDIST_TRACE_DIR={folder} timeout 120 {STEP} --aml-dist=pytorch,hang=2 {program} ddp late 1 3")
    assert ended.status == 75, ended
    step, = folder.iterdir()
    done = cluster.run(f"{tool} trace {step} --export-fr {workdir}/fr && {VENV}/bin/torchfrtrace {workdir}/fr --prefix rank_")
    assert done.status == 0 and "missing ranks: {2}" in done.out + done.err, done
    assert "collective: gloo:all_reduce" in done.out + done.err, done


# Rank 1 leaves out the second all-reduce.
ONE_LEFT_OUT = ["import os, torch, torch.distributed as d, time",
                "d.init_process_group('gloo')",
                "x = torch.ones(4)",
                "d.all_reduce(x)",
                "d.get_rank() != 1 and d.all_reduce(x, async_op=True)",
                "time.sleep(1)"]


def test_dumps_of_pytorchs_own_recorder_are_read(cluster, program, tool, workdir):
    lines = [*ONE_LEFT_OUT,
             f"open('{workdir}/rank_%d' % d.get_rank(), 'wb').write(torch._C._distributed_c10d._dump_fr_trace())",
             "os._exit(0)"]
    (workdir / "dump.py").write_text("\n".join(lines) + "\n")
    python = program.rpartition(" ")[0]
    done = cluster.run(f"TORCH_FR_BUFFER_SIZE=100 srun -N1 -n3 --aml-dist=pytorch {python} {workdir}/dump.py")
    assert done.status == 0, done
    read = cluster.run(f"{tool} trace {workdir}/rank_0 {workdir}/rank_1 {workdir}/rank_2")
    assert "allreduce #2 (4 float32, 16 bytes): rank 1 has not called it" in read.out, read


def test_pytorchs_own_recorder_agrees(cluster, program, tool, workdir):
    """Its dumps beside the recorders of the same step, while it hangs."""
    lines = [*ONE_LEFT_OUT,
             "dump = torch._C._distributed_c10d._dump_fr_trace()",
             f"open('{workdir}/rank_%d' % d.get_rank(), 'wb').write(dump)",
             "time.sleep(30)"]
    (workdir / "dump.py").write_text("\n".join(lines) + "\n")
    folder = workdir / "recorders"
    folder.mkdir()
    python = program.rpartition(" ")[0]
    done = cluster.run(f"cd {workdir} && {{ AMLDIST_TRACE_DIR={folder} TORCH_FR_BUFFER_SIZE=100 timeout 40 srun -N1 -n3 --aml-dist=pytorch,trace {python} dump.py & "
                       f"for i in $(seq 100); do [ -e rank_0 ] && [ -e rank_1 ] && [ -e rank_2 ] && break; sleep 0.3; done; sleep 1; "
                       f"{tool} trace {folder}/*.* rank_0 rank_1 rank_2; kill $!; wait $!; }}", timeout=100)
    assert re.search(r"^PyTorch's flight recorder agrees: allreduce #2 \(4 float32, 16 bytes\): rank 1 has not called it", done.out, re.MULTILINE), done.out + done.err
