"""srun --async (Slurm 26.05, in jobs with a step manager): srun has gone when the tasks start, and nobody listens."""

import json

import pytest
import ways
from cluster import PROBE, read_reports
from oracle import check_pytorch, own_names
from test_batch import script


@pytest.fixture(autouse=True)
def has_async(cluster):
    if "--async" not in cluster.run("srun --help").out:
        pytest.skip("this Slurm's srun has no --async")
    if not ways.STEPS:
        pytest.skip("srun --async needs a step manager: tests/run-generation 26.05 stepmgr")


def run_async(cluster, workdir, option: str, command: str = str(PROBE), *more: str) -> str:
    """The output of an asynchronous step of four tasks on two nodes, when it has ended."""
    (workdir / "step.out").unlink(missing_ok=True)
    # Each node opens the file: without append the later one empties it.
    started = f"srun --async --label --open-mode=append -o {workdir}/step.out {option} {command}"
    job = script(workdir, started, *more, "sleep 5")  # nothing else waits for it
    done = cluster.run(f"sbatch --wait -N2 -n4 --ntasks-per-node=2 -o {workdir}/job.out {job}", timeout=60)
    assert done.status == 0, str(done) + (workdir / "job.out").read_text()
    return (workdir / "step.out").read_text()


def reports(text: str):
    return read_reports("\n".join(line.partition(": ")[2] for line in text.splitlines()))


def test_every_task_has_its_numbers(cluster, workdir):
    check_pytorch(reports(run_async(cluster, workdir, "--aml-dist=pytorch")))


def test_they_are_those_of_a_step_with_an_srun(cluster, workdir):
    tasks = reports(run_async(cluster, workdir, "--aml-dist=pytorch -m cyclic"))
    waited = cluster.tasks("-N2 -n4 --ntasks-per-node=2 -m cyclic --aml-dist=pytorch")
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    assert [[task.env[name] for name in names] for task in tasks] == [[task.env[name] for name in names] for task in waited]


def test_its_tasks_share_a_secret_of_their_own(cluster, workdir):
    tasks = reports(run_async(cluster, workdir, "--aml-dist=pytorch"))
    again = reports(run_async(cluster, workdir, "--aml-dist=pytorch"))
    secrets = [{task.env["AMLDIST_STEP_SECRET"] for task in each} for each in (tasks, again)]
    assert [len(each) for each in secrets] == [1, 1] and secrets[0] != secrets[1]


def test_none_sets_nothing(cluster, workdir):
    for task in reports(run_async(cluster, workdir, "--aml-dist=none")):
        assert own_names(task) == set()


def test_a_wrong_option_is_refused_before_the_step(cluster, workdir):
    job = script(workdir, "srun --async --aml-dist=pytorch,launch=x true; echo status $?")
    _, out = cluster.job_output(f"-N2 -n2 {job}", workdir)
    assert "launch='x'" in out and "status 1" in out and "Submitted step" not in out, out


def test_counts_that_do_not_fit_are_told_in_the_steps_output(cluster, workdir):
    text = run_async(cluster, workdir, "--aml-dist=pytorch,process_count=3", "true")
    assert text.count("process_count=3 but the step has 4 tasks") == 2, "a line from each node: " + text  # no srun tells it once


def test_parameter_servers_are_told_to_be_on_their_own(cluster, workdir):
    text = run_async(cluster, workdir, "--aml-dist=tensorflow,worker_count=2,parameter_server_count=2", "printenv TF_CONFIG")
    assert text.count("will not end by themselves") == 1, text
    configs = [json.loads(line[line.index("{"):]) for line in text.splitlines() if "{" in line]
    assert sorted(each["task"]["type"] for each in configs) == ["ps", "ps", "worker", "worker"], text
    assert len({json.dumps(each["cluster"], sort_keys=True) for each in configs}) == 1


def test_verbose_says_what_rank_0s_node_computed(cluster, workdir):
    text = run_async(cluster, workdir, "--aml-dist=pytorch,verbose", "true")
    (line,) = [line for line in text.splitlines() if "aml-dist: " in line]
    assert "pytorch per-process: 4 tasks on 2 nodes, map (vector," in line and "rank 0 on node1" in line, text


def test_nobody_watches_for_hangs_and_a_line_says_so(cluster, workdir):
    out = run_async(cluster, workdir, "--aml-dist=pytorch,hang=60")
    assert out.count("hang=60: nobody watches this step for hangs, because there is no srun") == 1, out
