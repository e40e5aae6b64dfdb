"""What users can type, export and do to their own srun: at most one clear message, no crash of slurmstepd, no drained
node, no job that hangs. (A fixture of conftest.py looks at the nodes after each test.)"""

import random
import re
import time

import pytest
from cluster import Cluster, Finished
from conftest import NAME, PLUGIN, RELEASE

STEP = "srun -N2 -n4 --aml-dist=pytorch"
SHOW = "bash -c 'echo ran $RANK of $WORLD_SIZE'"
RAN = [f"ran {rank} of 4" for rank in range(4)]


def ran(done: Finished) -> list[str]:
    return sorted(line for line in done.out.splitlines() if line.startswith("ran "))


def wait_for_empty_queue(cluster: Cluster) -> None:
    done = cluster.run("while squeue -h --user alice | grep -q .; do sleep 0.2; done", timeout=60)
    assert done.status == 0, cluster.run("squeue; squeue -s").out


@pytest.fixture(autouse=True)
def nothing_runs_on(cluster):
    yield
    wait_for_empty_queue(cluster)
    for node in ("node1", "node2"):
        # pgrep fails where it finds no process, which is what is wanted.
        assert cluster.run("pgrep -u alice -l 'sleep|bash' || true", on=node).out == ""


def test_the_largest_environment_that_linux_starts_a_program_with(cluster):
    """6 MiB with a large stack, in pieces of 100 kB; Slurm passes it on, we add to it."""
    fill = "ulimit -s 65536; for i in $(seq 1 50); do export FILL_$i=$(head -c 100000 /dev/zero | tr '\\0' x); done"
    done = cluster.run(f"{fill}; {STEP} {SHOW}", user="alice")
    assert done.status == 0 and ran(done) == RAN and done.own_lines() == [], str(done)


def test_sixty_four_mebibytes_of_environment(cluster, workdir):
    """No program could be started with it; sbatch takes it from a file. Whatever Slurm makes of it, nobody crashes."""
    (workdir / "environment").write_bytes(b"".join(b"FILL_%d=%s\0" % (i, b"x" * 100_000) for i in range(670)))
    (workdir / "job").write_text(f"#!/bin/bash\nsrun --aml-dist=pytorch {SHOW}\n")
    submit = f"cd {workdir} && sbatch --wait --export-file=environment --output=out -N2 -n4 --aml-dist=pytorch job"
    done = cluster.run(submit, user="alice", timeout=80)
    out = (workdir / "out").read_text() if (workdir / "out").exists() else ""
    assert done.status != 0 or sorted(line for line in out.splitlines() if line.startswith("ran ")) == RAN, str(done) + out


@pytest.mark.parametrize("option", ["pyt\\e[31morch\\n%n%s", "pytorch,\\xff=1", "pytorch,master_addr=$(reboot)", ",,,,", "=",
                                    "pytorch,process_count=99999999999999999999", "pytorch,master_port=-1"])
@pytest.mark.parametrize("way", ["variable of sbatch's", "command line"])
def test_a_hostile_option(cluster, way, option):
    if way == "command line":
        done = cluster.run(f"srun -N1 -n1 --aml-dist=$'{option}' true", user="alice")
    else:
        variable = "SLURM_SPANK__SLURM_SPANK_OPTION_aml_dist_aml_dist"
        done = cluster.run(f"export {variable}=$'{option}'; srun -N1 -n1 true", user="alice")
    assert done.status == 1 and len(done.own_lines()) == 1, str(done)
    assert re.fullmatch(r"aml-dist: [\x20-\x7e]+", done.own_lines()[0]), str(done)


@pytest.mark.parametrize("name", ["$'\\e[31m\\nx;reboot %s%n'", "$'a\\xffb'", "'$(touch /var/tmp/owned)'", "' '"])
def test_a_hostile_job_name(cluster, name):
    """None of our messages contains it, and nothing depends on it."""
    done = cluster.run(f"{STEP} --job-name={name} bash -c '[ $RANK = 2 ] && exit 7; sleep 1'", user="alice")
    assert len(done.own_lines()) == 1 and done.own_lines()[0].startswith("aml-dist: first failure: rank 2 "), str(done)
    assert done.status == 7, str(done)


@pytest.mark.parametrize("content", ["node1\\nnode2;reboot\\n", "node[1-99999999]\\n", "\\e[31m\\n", "", "node1 node2 \\xff\\n"])
def test_a_hostile_host_file(cluster, workdir, content):
    done = cluster.run(f"printf '{content}' >{workdir}/hosts; export SLURM_HOSTFILE={workdir}/hosts; "
                       "timeout 30 srun --immediate=5 -n2 -m arbitrary --aml-dist=pytorch true", user="alice")
    assert done.status not in (0, 124, 139, 134) and len(done.own_lines()) <= 1, str(done)


FORGED = ["SLURM_STEP_NUM_TASKS=4294967295", "SLURM_STEP_NODELIST=n[1-99999999]", "SLURM_HET_SIZE=99999999",
          "SLURM_STEP_TASKS_PER_NODE=1(x99999999)", "SLURM_AMLDIST_REPORT=2;port=1;token=x", "SLURM_PROCID=-1",
          "SLURM_AMLDIST_LAUNCH=1;step=1.0;addr=evil;ports=1-2;map=(vector,(0,1,2))", "AMLDIST_HIDDEN_SLURM_NTASKS=%n",
          "NODE_RANK=", "LD_PRELOAD=/nowhere/evil.so"]
LONG = "; ".join(f"export {name}=$(head -c 100000 /dev/zero | tr '\\0' '{piece}')"
                 for name, piece in {"AMLDIST_STAMP": "=", "TF_CONFIG": "{", "SLURM_JOB_GPUS": ","}.items())


@pytest.mark.parametrize("how", ["exported", "--export"])
def test_forged_variables_of_slurms_and_ours(cluster, how):
    """Those that Slurm sets itself it sets anew; ours are replaced. Or one of us refuses the step: srun of 26.05 does, for
    want of the heterogeneous job that SLURM_HET_SIZE speaks of."""
    if how == "exported":
        line = "; ".join(f"export '{each}'" for each in FORGED) + f"; {LONG}; {STEP} {SHOW}"
    else:
        line = f"{STEP} '--export=ALL,{','.join(each for each in FORGED if ',' not in each)}' {SHOW}"
    done = cluster.run(line, user="alice")
    if done.status == 0:
        assert ran(done) == RAN, str(done)
    else:
        assert ran(done) == [] and re.search("^(srun: error|aml-dist): ", done.err, re.MULTILINE), str(done)


@pytest.mark.parametrize("limit", ["-v 400000", "-u 40", "-f 0", "-s 256", "-l 0", "-c unlimited"])
def test_narrow_limits(cluster, limit):
    """Slurm gives the limits of srun's shell to the tasks; either all run with the right numbers, or srun says why not."""
    done = cluster.run(f"ulimit {limit}; timeout 40 {STEP} {SHOW}", user="alice")
    assert done.status != 124 and (ran(done) == RAN or done.status != 0), str(done)


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_descriptors(cluster, workdir, closed):
    """srun's socket for reports may then have the number of a standard stream."""
    done = cluster.run(f"{STEP} bash -c 'echo ran $RANK of $WORLD_SIZE >{workdir}/$RANK; [ $RANK != 3 ] || exit 4' {closed}",
                       user="alice")
    assert done.status == 4, str(done)
    assert sorted(path.read_text().strip() for path in workdir.iterdir()) == RAN, str(done)


@pytest.mark.parametrize("signal", ["INT", "TERM", "HUP", "QUIT", "USR1", "STOP", "KILL", "PIPE"])
def test_signals_at_odd_times(cluster, signal):
    """During the launch, at the start, at the end: twelve moments of a second, and the queue is empty afterwards."""
    moments = random.Random(signal).sample(range(0, 1200), 12)
    again = f"pkill -{'CONT' if signal == 'STOP' else 'INT'} -u alice -x srun"
    each = " ".join(f"{moment / 1000:.3f}" for moment in moments)
    done = cluster.run(f"for moment in {each}; do timeout --foreground -k 1 20 {STEP} sleep 0.5 & sleep $moment; "
                       f"pkill -{signal} -u alice -x srun; sleep 0.3; {again}; wait; echo round $moment; done 2>&1; "
                       "scancel --me", user="alice", timeout=120)
    assert done.status == 0 and len(re.findall("^round ", done.out, re.MULTILINE)) == 12, str(done)
    assert not re.search(r"Segmentation|Aborted|terminate called", done.out), str(done)
    for line in done.own_lines():
        assert line.startswith("aml-dist: "), line


def test_an_array_of_steps_that_race(cluster):
    """Thirty steps of one job at once: each has its own port and its own right numbers."""
    began = time.monotonic()
    step = "srun --overlap -N2 -n4 --aml-dist=pytorch bash -c 'echo ran $RANK of $WORLD_SIZE at $MASTER_PORT'"
    steps = f"for i in $(seq 30); do {step} & done; wait".replace("$", r"\$")
    done = cluster.run(f'salloc --quiet -N2 -n4 bash -c "{steps}"', user="alice", timeout=85)
    lines = [line.split() for line in done.out.splitlines() if line.startswith("ran ")]
    ports = {line[5] for line in lines}
    assert done.status == 0 and len(lines) == 120 and len(ports) == 30, (time.monotonic() - began, str(done))
    for port in ports:
        assert sorted(line[1] for line in lines if line[5] == port) == ["0", "1", "2", "3"], port


@pytest.fixture
def with_gpus():
    """Nodes whose GPUs Slurm hands out."""
    own = Cluster(f"{NAME}-gp"[-16:].lstrip("-"), 2)
    started = own.devcluster("start", "--nodes", "2", "--restart", "--gres", "gpu:4", "--plugin", PLUGIN, *(["--release", RELEASE] if RELEASE else []))
    assert started.status == 0, str(started)
    yield own
    assert own.devcluster("stop").status == 0


@pytest.mark.parametrize("asks, told", [("", ""), ("--gres=gpu:1", "0")])
def test_slurm_says_which_gpus_are_the_steps(with_gpus, asks, told):
    """The variable by which root picks from the kernel's log what it tells about a failed task. (SLURM_JOB_GPUS is the user's: it was read
    too, and told of other users' GPUs.)"""
    done = with_gpus.run("export SLURM_STEP_GPUS=0-3 SLURM_JOB_GPUS=0-3; "
                         f"srun -w node1 {asks} --aml-dist=pytorch bash -c 'echo own: $SLURM_STEP_GPUS; echo job: $SLURM_JOB_GPUS'", user="alice")
    own, job = done.out.splitlines()
    assert own.split() == ["own:", *told.split()] and job == "job: 0-3", str(done)
