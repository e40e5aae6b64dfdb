"""Random layouts in bulk through the live cluster; Slurm places them, the tasks say where they are."""

import dataclasses
import random
import shlex

import pytest
from cluster import LOST, PROBE, read_reports
from oracle import check_master_is_on_host_of_rank_zero, check_pytorch
from test_batch import script

SEED = 20261121
AT_ONCE = 3
OPTION = "--aml-dist=pytorch"


@dataclasses.dataclass
class Step:
    """A srun line, how many tasks it starts, and where they must be if the line says so."""

    arguments: list[str]  # of each component
    tasks: int
    alone: bool = False
    host_file: list[str] = dataclasses.field(default_factory=list)

    def line(self, number: int, directory) -> str:
        components = " : ".join(f"{arguments} {PROBE}" for arguments in self.arguments)
        environment = f"AMLDIST_TEST_LAYOUT={number}"
        if self.host_file:
            path = directory / f"hosts-{number}"
            path.write_text("\n".join(self.host_file) + "\n")
            environment += f" SLURM_HOSTFILE={path}"
        return f"env {environment} srun {components} > {directory}/{number}.out 2>&1"


def distribution(rng: random.Random) -> str:
    return rng.choice(["", "-m block", "-m cyclic", "-m cyclic", f"-m plane={rng.randint(1, 3)}", "-m block:cyclic,pack"])


def random_step(rng: random.Random, nodes: list[str]) -> Step:
    """A step on some of the job's nodes."""
    way = rng.choice(["plain", "plain", "relative", "nodelist", "exclude", "per-node", "hostfile", "hostfile",
                      "heterogeneous", "exclusive"])
    count = rng.randint(1, len(nodes))
    tasks = rng.randint(count, count + 9)
    common = f"{OPTION} --overlap --overcommit"
    if way == "heterogeneous":
        return heterogeneous(rng, len(nodes))
    if way == "hostfile":
        hosts = [rng.choice(nodes) for _ in range(tasks)]
        return Step([f"{common} -n{tasks} -m arbitrary"], tasks, host_file=hosts)
    if way == "exclusive":
        return Step([f"{OPTION} --exact -N{count} -n{count} {distribution(rng)}"], count, alone=True)
    if way == "per-node":
        each = rng.randint(1, 4)
        return Step([f"{common} -N{count} --ntasks-per-node={each} -n{count * each} {distribution(rng)}"], count * each)
    where = ""
    if way == "relative":
        where = f"--relative={rng.randint(0, len(nodes) - count)}"
    elif way == "nodelist":
        where = "-w " + ",".join(rng.sample(nodes, count))
    elif way == "exclude" and count < len(nodes):
        where = "-x " + rng.choice(nodes)
    return Step([f"{common} -N{count} -n{tasks} {where} {distribution(rng)}"], tasks)


def heterogeneous(rng: random.Random, nodes: int) -> Step:
    """Components that together fit the job: inside one job Slurm 22.05 gives each its own nodes."""
    arguments, total = [], 0
    while nodes and len(arguments) < 3:
        count = rng.randint(1, nodes)
        tasks = rng.randint(count, count + 3)
        arguments.append(f"{OPTION} --overlap --overcommit -N{count} -n{tasks} {distribution(rng)}")
        nodes, total = nodes - count, total + tasks
    return Step(arguments, total)


def job_lines(steps: list[Step], directory) -> list[str]:
    """A few steps at once; one that wants its CPUs for itself waits for the others. A step whose output Slurm has lost is
    launched once more, and the job's output says so."""
    lines = [f'lost() {{ grep -q "{LOST}" {directory}/$1.out; }}',
             'run() { bash -c "$2" || { lost "$1" && echo "layout $1 again" && bash -c "$2"; }; echo "layout $1 status $?"; }']
    for number, step in enumerate(steps):
        command = f"run {number} {shlex.quote(step.line(number, directory))}"
        lines += ["wait", command] if step.alone else [
            f"while (( $(jobs -rp | wc -l) >= {AT_ONCE} )); do wait -n; done", command + " &"]
    return [*lines, "wait"]


def without_reports(output: str) -> str:
    return "\n".join(line for line in output.splitlines() if "probe: " not in line)


def judge(step: Step, tasks, addresses) -> None:
    assert len(tasks) == step.tasks
    check_pytorch(tasks)
    check_master_is_on_host_of_rank_zero(tasks, addresses)
    if step.host_file:
        assert [task.host for task in tasks] == step.host_file


@pytest.mark.parametrize("batch, job, nodes, count", [
    ("whole", "-N4 -n32", ["node1", "node2", "node3", "node4"], 45),
    ("uneven", "-w node[2-4] -N3 -n7 --overcommit", ["node2", "node3", "node4"], 25),
    ("cyclic", "-N2 -n5 -m cyclic -w node1,node4", ["node1", "node4"], 25),
])
def test_every_layout_matches_what_its_tasks_observe(cluster, addresses, workdir, batch, job, nodes, count):
    rng = random.Random(f"{SEED}-{batch}")
    steps = [random_step(rng, nodes) for _ in range(count)]
    done, out = cluster.job_output(f"{job} {script(workdir, *job_lines(steps, workdir))}", workdir, timeout=240)
    wrong = []
    for number, step in enumerate(steps):
        report = (workdir / f"{number}.out").read_text()
        tasks = sorted(read_reports(report), key=lambda task: task.procid)
        try:
            assert f"layout {number} status 0\n" in out, without_reports(report)
            judge(step, tasks, addresses)
        except (AssertionError, KeyError) as problem:
            wrong.append(f"layout {number}, srun {' : '.join(step.arguments)} {step.host_file}: {problem}")
    print(f"seed {SEED}-{batch}: {count} layouts, {sum(step.tasks for step in steps)} tasks, {len(wrong)} disagree")
    assert not wrong and done.status == 0, "\n".join(wrong) + str(done)
