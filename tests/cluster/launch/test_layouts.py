"""Every layout that the step's own variables describe: the environment against what the tasks observed."""

import pytest
from oracle import check_master_is_on_host_of_rank_zero, check_pytorch, own_names

LAYOUTS = [
    "-N1 -n1",
    "-N1 -n5",
    "-N4 -n4",
    "-N4 -n8",
    "-N4 --ntasks-per-node=2",
    "-N4 --ntasks-per-node=2 -m block",
    "-N4 --ntasks-per-node=2 -m cyclic",
    "-N3 -n7 -m block",
    "-N3 -n7 -m cyclic",
    "-N4 -n11 -m cyclic:block",
    "-N2 -n8 -m block:cyclic",
    "-N2 -n24 --overcommit",
    "-N3 -n8 -m plane=2",
    "-w node3,node2 -N2 -n4",
    "-x node1 -N2 -n4 -m cyclic",
    "-N4 -n8 --export=NONE",
    "-N4 -n8 --mpi=pmix",
    "-N4 -n8 --mpi=pmi2",
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_environment_matches_what_tasks_observe(cluster, addresses, layout, request):
    if "--mpi=pmix" in layout: request.getfixturevalue("pmix")
    tasks = cluster.tasks(f"--aml-dist=pytorch {layout}")
    check_pytorch(tasks)
    check_master_is_on_host_of_rank_zero(tasks, addresses)


def test_host_file_moves_the_master(cluster, addresses, workdir):
    hosts = workdir / "hosts"
    hosts.write_text("node3\nnode1\nnode3\nnode2\n")
    tasks = cluster.tasks("--aml-dist=pytorch -n4 -m arbitrary", env={"SLURM_HOSTFILE": str(hosts)})
    assert tasks[0].host == "node3"
    check_pytorch(tasks)
    check_master_is_on_host_of_rank_zero(tasks, addresses)


def test_without_the_option_a_step_has_nothing_of_ours(cluster):
    done_with_lines = cluster.run("srun -N4 -n8 true")
    assert done_with_lines.status == 0 and not done_with_lines.own_lines(), str(done_with_lines)
    for task in cluster.tasks("-N4 -n8"):
        assert own_names(task) == set()


def test_a_healthy_step_is_silent(cluster):
    done = cluster.run("srun -N4 -n8 --aml-dist=pytorch true")
    assert done.status == 0 and done.out == "" and done.said == "", str(done)


def test_the_launch_record_does_not_reach_tasks(cluster):
    for task in cluster.tasks("-N2 -n4 --aml-dist=pytorch"):
        assert "SLURM_AMLDIST_LAUNCH" not in task.env


def test_verbose_says_what_was_computed_and_from_what(cluster, addresses):
    done = cluster.run("srun -N2 -n4 --aml-dist=pytorch,verbose true")
    lines = done.own_lines()
    assert done.status == 0 and all(line.startswith("aml-dist: rank ") for line in lines[1:]), str(done)  # where each rank is
    for word in ("4 tasks", "2 nodes", "(vector,", "exact", addresses["node1"]):
        assert word in lines[0], word
