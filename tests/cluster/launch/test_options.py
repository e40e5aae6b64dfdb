"""Wrong options are refused before anything is launched, with one sentence; good ones mean what the help says."""

import re

import pytest
from oracle import own_names

BAD = [
    ("pytorhc", "did you mean 'pytorch'"),
    ("", "is empty"),
    ("pytorch,lunch=per-node", "did you mean 'launch'"),
    ("pytorch,launch=pernode", "did you mean 'per-node'"),
    ("pytorch,master_port=70000", "from 1 to 65535"),
    ("pytorch,verbose,verbose", "given twice"),
    ("pytorch,", "a key is missing"),
    ("pytorch,%s%s%n%n=1", "unknown key '%s%s%n%n'"),
    ("jax,launch=per-node", "is not supported for kind 'jax'"),
    ("none,verbose", "takes no keys"),
    ("ray,launch=per-process", "one task on each node starts Ray there"),
]
SUBMITTERS = ["srun -N1 -n1", "sbatch -N1 --wrap true", "salloc -N1 true"]


def submit(cluster, submitter: str, option: str, user: str = "root"):
    program, rest = submitter.split(" ", 1)
    command = f"""option=$(cat); rest="{rest}"; {program} --aml-dist="$option" ${{rest% true}} true"""
    if program == "sbatch":
        command = f"""option=$(cat); sbatch --aml-dist="$option" -N1 --output=/dev/null --wrap true"""
    return cluster.run(f"printf %s {sh(option)} | {{ {command}; }}", user)


def sh(text: str) -> str:
    """ANSI-C quoting for bash, for control characters too."""
    return "$'" + "".join(f"\\x{byte:02x}" for byte in text.encode()) + "'" if len(text) < 1000 else "$(printf 'a%.0s' {1..102400})"


def jobs_submitted(cluster) -> str:
    return cluster.run("scontrol show config | grep -i '^NEXT_JOB_ID'").out


@pytest.mark.parametrize("submitter", SUBMITTERS)
@pytest.mark.parametrize("option, says", BAD)
def test_bad_options_are_refused_before_launch(cluster, submitter, option, says):
    before = jobs_submitted(cluster)
    done = submit(cluster, submitter, option)
    assert done.status != 0, str(done)
    lines = done.own_lines()
    assert len(lines) == 1 and lines[0].startswith("aml-dist: ") and says in lines[0], str(done)
    assert jobs_submitted(cluster) == before, "no job may exist"


@pytest.mark.parametrize("submitter", SUBMITTERS)
@pytest.mark.parametrize("option, says", [
    ("py\ntorch\x1b[2J", "'py\\x0atorch\\x1b[2J'"),
    ("a" * 102400, "102400 bytes long"),
])
def test_hostile_texts_come_back_printable_and_short(cluster, submitter, option, says):
    done = submit(cluster, submitter, option)
    assert done.status != 0, str(done)[:2000]
    lines = done.own_lines()
    assert len(lines) == 1 and says in lines[0], str(done)[:2000]
    assert len(done.err) < 2000 and "\x1b" not in done.err


@pytest.mark.parametrize("command", ["srun --aml-dist=help", "srun --aml-dist=help true", "sbatch --aml-dist=help",
                                     "salloc --aml-dist=help"])
def test_help_prints_and_succeeds(cluster, command):
    done = cluster.run(command)
    assert done.status == 0, str(done)
    assert done.said == "" and done.out.startswith("--aml-dist=KIND"), str(done)
    assert "process_count_per_instance" in done.out


def test_the_option_stands_in_sruns_own_help(cluster):
    assert "--aml-dist=KIND[,KEY=VALUE]" in cluster.run("srun --help").out


@pytest.mark.parametrize("option, says", [
    ("pytorch,process_count=8", ("process_count=8", "4 tasks")),
    ("pytorch,node_count=3", ("node_count=3", "2 nodes")),
    ("mpi,process_count_per_node=4", ("=4", "2 tasks")),
    ("pytorch,launch=per-node", ("one launcher per node", "2 tasks")),
    ("tensorflow,worker_count=3", ("3 tasks", "4 tasks")),
])
def test_counts_are_assertions(cluster, option, says):
    done = cluster.run(f"srun -N2 --ntasks-per-node=2 --aml-dist={option} true")
    assert done.status != 0, str(done)
    lines = done.own_lines()
    assert len(lines) == 1 and all(word in lines[0] for word in says), str(done)


def test_counts_that_are_right_pass(cluster):
    option = "pytorch,node_count=2,process_count=4,process_count_per_instance=2"
    assert len(cluster.tasks(f"-N2 --ntasks-per-node=2 --aml-dist={option}")) == 4


def test_the_users_port_and_host(cluster):
    for task in cluster.tasks("-N2 -n2 --aml-dist=pytorch,master_port=6105,master_addr=my.host"):
        assert (task.env["MASTER_ADDR"], task.env["MASTER_PORT"]) == ("my.host", "6105")


def test_a_name_when_asked_for(cluster):
    for task in cluster.tasks("-w node[2-3] -N2 -n2 --aml-dist=pytorch,master_addr=name"):
        assert task.env["MASTER_ADDR"] == "node2"


def test_none_leaves_nothing(cluster):
    for task in cluster.tasks("-N2 -n2 --aml-dist=none"):
        assert own_names(task) == set()


def test_none_inside_a_step_keeps_nothing_of_it(cluster):
    inner = "srun --overlap -N1 -n1 --aml-dist=none env"
    for outer in ("pytorch", "mpi", "tensorflow", "jax", "ray", "pytorch,launch=per-node"):
        done = cluster.run(f"srun -N1 -n1 --mpi=none --aml-dist={outer} bash -c 'export KEPT=yes; {inner}'")
        assert done.status == 0, str(done)
        names = {line.partition("=")[0] for line in done.out.splitlines()}
        assert "KEPT" in names and "SLURM_NTASKS" in names
        assert not [name for name in names if re.match("RANK|LOCAL_|WORLD_|NODE_RANK|GROUP_|PET_|OMPI_COMM|TF_CONFIG|JAX_|RAY_|AZ_|"
                                                       "MASTER_|AMLDIST_", name)], str(done)


@pytest.mark.parametrize("inner", ["srun --overlap -N1 -n1 env", "salloc -Q -N1 -n1 env"])
def test_what_a_task_starts_without_the_option_has_nothing_of_its_step(cluster, inner):
    done = cluster.run(f"srun -N1 -n1 --overcommit --mpi=none --aml-dist=pytorch bash -c 'export KEPT=yes; {inner}'")
    assert done.status == 0, str(done)
    names = {line.partition("=")[0] for line in done.out.splitlines()}
    assert "KEPT" in names
    assert not [name for name in names if re.match("RANK|LOCAL_|WORLD_|NODE_RANK|GROUP_|MASTER_|AMLDIST_", name)], str(done)


DAEMON_STEP = "srun -N2 --ntasks-per-node=1 --mpi=none"


@pytest.mark.parametrize("daemon", ["orted", "prted", "hydra_bstrap_proxy", "hydra_pmi_proxy"])
def test_a_step_of_a_launchers_daemons_has_no_kind(cluster, workdir, daemon):
    """mpirun and mpiexec start them by srun inside a job whose option is meant for the ranks."""
    path = workdir / daemon
    path.write_text("#!/bin/bash\nenv\n")
    path.chmod(0o755)
    done = cluster.run(f"{DAEMON_STEP} {path}", env={"SLURM_AML_DIST": "mpi,process_count=8"})
    assert done.status == 0, str(done)
    names = [line.partition("=")[0] for line in done.out.splitlines()]
    assert names.count("SLURM_PROCID") == 2
    assert not [name for name in names if re.match("RANK|LOCAL_|WORLD_|NODE_RANK|OMPI_COMM|MASTER_|AMLDIST_|SLURM_AMLDIST", name)]
    assert "aml-dist:" not in done.err


def test_what_the_user_set_by_hand_wins_and_is_told_once(cluster):
    done = cluster.run("srun -N4 -n8 --aml-dist=pytorch bash -c 'echo $MASTER_ADDR:$MASTER_PORT'",
                       env={"MASTER_ADDR": "node2", "MASTER_PORT": "6105"})
    assert done.status == 0 and done.out.splitlines() == ["node2:6105"] * 8, str(done)
    address = cluster.run("getent hosts node2").out.split()[0]
    assert done.own_lines() == [f"aml-dist: keeping your MASTER_ADDR=node2 and MASTER_PORT=6105, but it is {address}, and rank 0 is on node1: "
                                "unset to let aml-dist choose"], str(done)


@pytest.mark.parametrize("nodes, master, said", [
    (2, "node1", ""), (2, "{node1}", ""), (1, "node1", ""), (1, "localhost", ""),
    (1, "node2", ", but it is {node2}, and rank 0 is on node1"), (2, "{node2}", ", but rank 0 is on node1, which does not have that address"),
    (2, "no-such-host", ", but nobody resolves that name on node1, where rank 0 is"),
])
@pytest.mark.parametrize("form", ["variable", "key"])
def test_a_master_by_hand_that_is_not_rank_0s_host_is_named_before_the_launch(cluster, form, nodes, master, said):
    words = {name: cluster.run(f"getent hosts {name}").out.split()[0] for name in ("node1", "node2")}
    master, said = master.format(**words), said.format(**words)
    key = f",master_addr={master}" if form == "key" else ""
    done = cluster.run(f"srun -w node[1-{nodes}] -N{nodes} -n{nodes} --aml-dist=pytorch{key} true", user="alice",
                       env={} if key else {"MASTER_ADDR": master})
    if form == "variable":
        lines = [f"aml-dist: keeping your MASTER_ADDR={master}{said}: unset to let aml-dist choose"]
    else:
        lines = [f"aml-dist: master_addr={master}: {said.removeprefix(', but ')}: drop the key to let aml-dist choose"] if said else []
    assert done.status == 0 and done.own_lines() == lines, str(done)


def test_rank_0_tells_it_wherever_it_runs(cluster, workdir):
    (workdir / "hosts").write_text("node3\nnode1\nnode3\n")
    done = cluster.run("srun -n3 -m arbitrary --aml-dist=pytorch bash -c 'echo $MASTER_ADDR'",
                       env={"MASTER_ADDR": "my.host", "SLURM_HOSTFILE": str(workdir / "hosts")})
    assert done.status == 0 and done.out.splitlines() == ["my.host"] * 3 and len(done.own_lines()) == 1, str(done)


def test_a_key_beats_what_the_user_set(cluster):
    done = cluster.run("srun -N2 -n2 --aml-dist=pytorch,master_port=7000 bash -c 'echo $MASTER_PORT'",
                       env={"MASTER_PORT": "6105"})
    assert done.out.splitlines() == ["7000"] * 2 and not done.own_lines(), str(done)


def test_an_impossible_port_in_the_environment_is_refused_before_launch(cluster):
    done = cluster.run("srun -N4 -n8 --aml-dist=pytorch touch /var/tmp/never", env={"MASTER_PORT": "abc"}, timeout=20)
    assert done.status not in (0, 124), str(done)
    assert len(done.own_lines()) == 1 and "MASTER_PORT is set to 'abc'" in done.own_lines()[0], str(done)


def test_the_nodes_judge_what_srun_cannot_see(cluster):
    """--export gives the tasks a variable that srun itself does not have."""
    done = cluster.run("srun -N2 -n4 --export=ALL,MASTER_PORT=abc --aml-dist=pytorch sleep 30", timeout=20)
    assert done.status not in (0, 124), str(done)
    assert any("MASTER_PORT is set to 'abc'" in line for line in done.own_lines()), str(done)


def test_stale_identity_from_outside_is_replaced(cluster):
    stale = {"RANK": "99", "WORLD_SIZE": "1000", "LOCAL_RANK": "7", "PET_NNODES": "9", "SLURM_AMLDIST_LAUNCH": "1;rubbish"}
    tasks = cluster.tasks("-N2 -n4 --aml-dist=pytorch", env=stale)
    assert [task.number("RANK") for task in tasks] == [0, 1, 2, 3]
    assert all(task.env["WORLD_SIZE"] == "4" and "PET_NNODES" not in task.env for task in tasks)
