"""srun --async (Slurm 26.05, in jobs with a step manager): srun has gone when the tasks start, and a node stands in for it."""

import json
import re

import pytest
import ways
from cluster import PROBE, read_reports
from late_step import late_step
from oracle import check_pytorch, own_names
from test_batch import script
from test_fabric import EXACT, fabric, four_healthy, one_sick  # noqa: F401 (fixtures)
from test_first_failure import LINE, by_rank
from test_parameter_servers import CHIEF, SERVE, WORKERS, nobody_is_left


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


UNTIL_ENDED = "sleep 1; while scontrol show step $SLURM_JOB_ID.0 >/dev/null 2>&1; do sleep 0.2; done"


def own_lines(text: str) -> list[str]:
    """Ours in a step's output, without what Slurm puts before them."""
    return [line[line.index("aml-dist: "):] for line in text.splitlines() if "aml-dist: " in line]


@pytest.mark.parametrize("flags", ["", "-m cyclic"])
def test_the_first_failure_is_told_in_the_steps_output(cluster, workdir, flags):
    text = run_async(cluster, workdir, f"{flags} --aml-dist=pytorch", by_rank(r3="sleep 1; exit 7", other="exec sleep 5"), UNTIL_ENDED)
    (line,) = own_lines(text)
    found = LINE.match(line)
    assert found and (found["rank"], found["local"], found["host"], found["end"]) == ("3", "1", "node2", "exit status 7"), line
    assert found["advice"] == "the others may wait for it: scancel would end the step", "--kill-on-bad-exit is srun's"


def test_it_is_the_first_even_if_all_end_with_it(cluster, workdir):
    text = run_async(cluster, workdir, "--aml-dist=pytorch", by_rank(r3="sleep 1; kill -9 $$", other="sleep 1.5; exit 1"), UNTIL_ENDED)
    (line,) = own_lines(text)
    found = LINE.match(line)
    assert found and (found["rank"], found["end"]) == ("3", "signal 9 (SIGKILL)"), line


def test_a_step_that_succeeds_or_whose_job_is_cancelled_has_no_line(cluster, workdir):
    assert own_lines(run_async(cluster, workdir, "--aml-dist=pytorch", "sleep 1", UNTIL_ENDED)) == []
    job = script(workdir, f"srun --async --open-mode=append -o {workdir}/step.out --aml-dist=pytorch sleep 60", "sleep 3",
                 "scancel $SLURM_JOB_ID", "sleep 30")
    cluster.run(f"sbatch --wait -N2 -n4 -o {workdir}/job.out {job}", timeout=60)
    assert own_lines((workdir / "step.out").read_text()) == []


@pytest.mark.parametrize("flags, counts, tasks", [
    ("", WORKERS, {"r0": "sleep 2", "r1": "sleep 1"}), ("-m cyclic", WORKERS, {"r0": "sleep 1", "r1": "sleep 2"}),
    ("", CHIEF, {"r0": "sleep 1", "r1": "sleep 2", "r2": "sleep 2"})])
def test_parameter_servers_end_with_the_steps_work(cluster, workdir, flags, counts, tasks):
    task = by_rank(**tasks, other=SERVE).replace("$RANK", "$SLURM_PROCID")
    text = run_async(cluster, workdir, f"{flags} --aml-dist=tensorflow,{counts}", task, f"timeout 25 bash -c '{UNTIL_ENDED}'")
    assert own_lines(text) == [], text
    nobody_is_left(cluster)


def test_servers_have_the_same_cluster(cluster, workdir):
    text = run_async(cluster, workdir, f"--aml-dist=tensorflow,{WORKERS}", "printenv TF_CONFIG")
    configs = [json.loads(line[line.index("{"):]) for line in text.splitlines() if "{" in line]
    assert sorted(each["task"]["type"] for each in configs) == ["ps", "ps", "worker", "worker"], text
    assert len({json.dumps(each["cluster"], sort_keys=True) for each in configs}) == 1


SOCKETS = "bash -c 'echo ib ${NCCL_IB_DISABLE:-unset} ${NCCL_IB_HCA:-unset}'"


def verified(cluster, workdir, nodes, policy: str) -> tuple[list[str], list[str]]:
    """What four tasks on nodes 1 to 4 have of the fabric, and our lines."""
    job = script(workdir, f"srun --async --open-mode=append -o {workdir}/step.out --aml-dist=pytorch,rdma={policy} {SOCKETS}", UNTIL_ENDED)
    done = cluster.run(f"sbatch --wait -N4 -n4 -o {workdir}/job.out {job}", env=nodes.environment(), timeout=90)
    assert done.status == 0, str(done) + (workdir / "job.out").read_text()
    text = (workdir / "step.out").read_text()
    return [line.partition(" ")[2] for line in text.splitlines() if line.startswith("ib ")], own_lines(text)


def test_nodes_agree_on_healthy_fabric(cluster, workdir, four_healthy):  # noqa: F811
    have, lines = verified(cluster, workdir, four_healthy, "require")
    assert lines == []
    assert have == [f"unset {EXACT}"] * 4


def test_one_sick_node_moves_the_whole_step_to_sockets(cluster, workdir, one_sick):  # noqa: F811
    have, lines = verified(cluster, workdir, one_sick, "prefer")
    assert have == ["1 unset"] * 4
    assert len(lines) == 1 and "rdma=prefer" in lines[0] and "node3" in lines[0] and "ib.state" in lines[0], lines


def test_a_vote_before_the_steps_output_is_there_is_told_nevertheless(cluster, workdir, one_sick):  # noqa: F811
    """node1 answers for the step, and its slurmstepd is held up until node3 has voted."""
    with late_step(cluster, workdir, "node1", 4):
        have, lines = verified(cluster, workdir, one_sick, "prefer")
    assert have == ["1 unset"] * 4
    assert len(lines) == 1 and "rdma=prefer" in lines[0] and "node3" in lines[0] and "ib.state" in lines[0], lines


def test_one_sick_node_under_require_starts_no_program(cluster, workdir, one_sick):  # noqa: F811
    have, lines = verified(cluster, workdir, one_sick, "require")
    assert have == []
    assert len(lines) == 1 and "rdma=require" in lines[0] and "node3" in lines[0] and "ib.state" in lines[0], lines


FORGE = """import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for code in ("0" * 16, "f" * 16, "00c0ffee00c0ffee"):
    for word in ("failed;0;0;9;1;node1", "refused;0;0;256;1;node1", "ended;worker;0;0;0;2", "ended;worker;1;0;0;2", "x" * 4000):
        s.sendto(f"aml-dist;2;{code};{code};{code};{word}".encode(), ("ADDRESS", 23123))
print("sent")
"""


def test_a_stranger_cannot_report_to_it(cluster, workdir, addresses):
    """Anybody reaches its port; without the token of the step nothing is taken."""
    job = script(workdir, f"srun --async --open-mode=append -o {workdir}/step.out --aml-dist=pytorch,master_port=23123 sleep 6",
                 "touch started", UNTIL_ENDED)
    batch = cluster.run(f"cd {workdir} && sbatch --parsable -w node[1-2] -N2 -n4 -o {workdir}/job.out {job}").out.strip()
    port = "until [ -e started ] && ss -Hlun sport = :23123 | grep -q .; do sleep 0.1; done"
    assert cluster.run(f"cd {workdir}; timeout 20 bash -c '{port}'", on="node1").status == 0, (workdir / "job.out").read_text()
    stranger = FORGE.replace("ADDRESS", addresses["node1"])
    assert cluster.run(f"/usr/bin/python3 - <<'END'\n{stranger}END", user="bob").out == "sent\n"
    cluster.run(f"while squeue -h -j {batch} | grep -q .; do sleep 0.2; done", timeout=30)
    assert own_lines((workdir / "step.out").read_text()) == []


def test_where_its_port_is_taken_the_step_is_refused(cluster, workdir):
    hold = "import socket,time; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind((str(),23123)); time.sleep(15)"
    job = script(workdir, f"/usr/bin/python3 -c '{hold}' &", "until ss -Hlun sport = :23123 | grep -q .; do sleep 0.1; done",
                 f"srun --async --open-mode=append -o {workdir}/step.out --aml-dist=pytorch,master_port=23123 bash -c 'exit 5'", UNTIL_ENDED)
    cluster.run(f"sbatch --wait -w node[1-2] -N2 -n4 -o {workdir}/job.out {job}", timeout=60)
    (line,) = own_lines((workdir / "step.out").read_text())
    assert re.search(r"no srun waits for this step, and node1 cannot stand in for it \(UDP port 23123: Address already in use\): "
                     "its tasks do not start: choose another master_port=", line), line


def test_verbose_says_what_rank_0s_node_computed(cluster, workdir):
    text = run_async(cluster, workdir, "--aml-dist=pytorch,verbose", "true")
    (line,) = [line for line in text.splitlines() if "aml-dist: " in line]
    assert "pytorch per-process: 4 tasks on 2 nodes, map (vector," in line and "rank 0 on node1" in line, text


def test_nobody_watches_for_hangs_and_a_line_says_so(cluster, workdir):
    out = run_async(cluster, workdir, "--aml-dist=pytorch,hang=60")
    assert out.count("hang=60: this step is not watched for hangs, because there is no srun") == 1, out
