"""SLURM_AML_DIST is the option where none can be given."""

import json

import pytest
from cluster import PROBE, read_reports
from oracle import check_pytorch, own_names
from test_citizens import plugin_arguments

VARIABLE = "SLURM_AML_DIST"


def test_the_variable_is_the_option(cluster):
    check_pytorch(cluster.tasks("-N2 -n4", env={VARIABLE: "pytorch"}))
    check_pytorch(cluster.tasks("-N2 -n4 --export=NONE", env={VARIABLE: "pytorch"}))


@pytest.mark.parametrize("value", ["", "none"])
def test_nothing_is_set_for_an_empty_value_and_for_none(cluster, value):
    for task in cluster.tasks("-N2 -n2", env={VARIABLE: value}):
        assert own_names(task) == set()


def test_the_command_line_comes_first(cluster):
    assert "TF_CONFIG" in cluster.tasks("-N2 -n2 --aml-dist=tensorflow", env={VARIABLE: "pytorch"})[0].env
    for task in cluster.tasks("-N2 -n2 --aml-dist=none", env={VARIABLE: "pytorch"}):
        assert own_names(task) == set()
    beside_nonsense = cluster.run("srun --aml-dist=pytorch true", env={VARIABLE: "nonsense"})
    assert beside_nonsense.status == 0 and beside_nonsense.said == "", str(beside_nonsense)


def test_an_inherited_option_comes_before_the_variable_and_that_before_the_sites_default(cluster, workdir):
    job = workdir / "job.sh"
    job.write_text(f"#!/bin/bash\nexport {VARIABLE}=jax\nsrun {PROBE}\n")
    _, out = cluster.job_output(f"-N2 -n2 --aml-dist=tensorflow {job}", workdir)
    assert "TF_CONFIG" in out and "JAX_COORDINATOR_ADDRESS" not in out
    _, out = cluster.job_output(f"-N2 -n2 {job}", workdir)
    assert "JAX_COORDINATOR_ADDRESS" in out
    with plugin_arguments(cluster, "default.main=pytorch"):
        assert "TF_CONFIG" in cluster.tasks("-N2 -n2", env={VARIABLE: "tensorflow"})[0].env
        check_pytorch(cluster.tasks("-N2 -n4", env={VARIABLE: ""}))


def test_sbatch_hands_the_variable_on(cluster, workdir):
    job = workdir / "job.sh"
    job.write_text(f"#!/bin/bash\nsrun {PROBE}\n")
    for export in ("ALL", "NONE"):
        done = cluster.run(f"sbatch --wait --export={export} -N2 -n2 -o {workdir}/out.{export} {job}", env={VARIABLE: "jax"})
        assert done.status == 0, str(done)
        assert "JAX_COORDINATOR_ADDRESS" in (workdir / f"out.{export}").read_text()


@pytest.mark.parametrize("value, says", [("pytroch", "pytorch"), ("pytorch,launch=x", "launch"), ("help", "srun --aml-dist=help"),
                                         ("pytorch,", ""), ("\x1b[31m", ""), ("x" * 100_000, "")])
def test_a_wrong_value_is_one_sentence_that_names_the_variable(cluster, value, says):
    for program in ("srun", "sbatch --wrap"):
        done = cluster.run(f"{program} true", env={VARIABLE: value})
        lines = done.own_lines()
        assert done.status == 1 and len(lines) == 1, str(done)
        assert VARIABLE in lines[0] and says in lines[0] and "\x1b" not in lines[0] and len(lines[0]) < 400, lines[0]
    assert cluster.run("for i in $(seq 100); do [ \"$(sinfo -h -o %T)\" = idle ] && break; sleep 0.2; done; sinfo -h -o %T").out.split() == ["idle"]


def test_verbose_says_that_the_variable_was_used(cluster):
    done = cluster.run("srun -N1 -n1 true", env={VARIABLE: "pytorch,verbose"})
    assert done.status == 0 and VARIABLE in done.err, str(done)
    without = cluster.run("srun -N1 -n1 --aml-dist=pytorch,verbose true", env={VARIABLE: "pytorch"})
    assert without.status == 0 and VARIABLE not in without.err, str(without)


POST = """
import http.client, pathlib, socket, sys
connection = http.client.HTTPConnection("localhost", timeout=20)
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
body = pathlib.Path(sys.argv[2]).read_bytes()
connection.request("POST", sys.argv[3], body, {"Content-Type": "application/json"})
print(connection.getresponse().read().decode())
"""


def rest_api(cluster) -> tuple[str, str] | None:
    """The version of slurmrestd's interface that is tried here, and the arguments that choose it."""
    if cluster.run("command -v slurmrestd").status != 0:
        return None
    has = cluster.run("ls /usr/lib/*/slurm-wlm").out
    if "openapi_v0_0_38.so" in has:
        return "v0.0.38", "-s openapi/v0.0.38"
    if "data_parser_v0_0_42.so" in has:
        return "v0.0.42", "-s slurmctld -d v0.0.42"
    return None


def test_a_job_through_slurmrestd(cluster, workdir):
    """The recipe of the administrator's guide: with Slurm 22.05 an object of variables, from 23.02 on a list."""
    api = rest_api(cluster)
    if api is None:
        pytest.skip("this Slurm has no slurmrestd with the API v0.0.38 or v0.0.42")
    variables = {"PATH": "/usr/bin:/bin", VARIABLE: "pytorch"}
    older = api[0] == "v0.0.38"
    job = {"name": "rest", "tasks": 4, "nodes": 2 if older else "2", "current_working_directory": str(workdir), "standard_output": f"{workdir}/out",
           "environment": variables if older else [f"{name}={value}" for name, value in variables.items()]}
    script = "#!/bin/bash\nsrun bash -c 'echo rank $RANK of $WORLD_SIZE'\n"
    (workdir / "job.json").write_text(json.dumps({"job": job, "script": script}))
    (workdir / "post.py").write_text(POST)
    cluster.run(f"chown -R alice {workdir}")
    done = cluster.run(f"slurmrestd -a rest_auth/local {api[1]} unix:{workdir}/socket >{workdir}/log 2>&1 & "
                       f"until [ -S {workdir}/socket ]; do sleep 0.1; done; "
                       f"/usr/bin/python3 {workdir}/post.py {workdir}/socket {workdir}/job.json /slurm/{api[0]}/job/submit; "
                       "while squeue -h -u alice | grep -q .; do sleep 0.2; done; kill %1; wait", user="alice", timeout=40)
    assert json.loads(done.out[done.out.index("{"):done.out.rindex("}") + 1])["errors"] == [], str(done)
    assert sorted((workdir / "out").read_text().splitlines()) == [f"rank {rank} of 4" for rank in range(4)], str(done)


SECOND = "AMLDIST_OPTION"
DROP = "for name in $(compgen -v SLURM_) $(compgen -v SLURMD_); do unset $name; done\n"  # as snakemake does
LEFT = {SECOND, "SLURM_AMLDIST_OPTION"}


@pytest.mark.parametrize("submit", ["--aml-dist=pytorch", "--export=ALL,SLURM_AML_DIST=pytorch"])
def test_a_jobs_option_reaches_what_a_client_submits_that_drops_slurms_variables(cluster, workdir, submit):
    (workdir / "inner.sh").write_text(f"#!/bin/bash\nsrun {PROBE}\n")
    (workdir / "job.sh").write_text(f"#!/bin/bash\n{DROP}srun -N2 -n4 {PROBE} >{workdir}/srun.out\n"
                                    f"sbatch --wait -N2 -n4 -o {workdir}/sbatch.out {workdir}/inner.sh\n")
    environment = {VARIABLE: "pytorch"} if "=ALL" in submit else {}
    done, out = cluster.job_output(f"-n1 {submit.partition(',')[0]} {workdir}/job.sh", workdir, env=environment)
    assert done.status == 0, str(done) + out
    for each in ("srun", "sbatch"):
        tasks = read_reports((workdir / f"{each}.out").read_text())
        check_pytorch(tasks)
        assert not any(LEFT & set(task.env) for task in tasks), "what a task starts has no option"


def test_the_second_name_has_the_rules_of_the_first(cluster):
    check_pytorch(cluster.tasks("-N2 -n4", env={SECOND: "pytorch"}))
    tasks = cluster.tasks("-N2 -n4 --export=NONE", env={SECOND: "pytorch"})
    check_pytorch(tasks)
    assert not any(LEFT & set(task.env) for task in tasks)
    assert "TF_CONFIG" in cluster.tasks("-N2 -n2 --aml-dist=tensorflow", env={SECOND: "pytorch"})[0].env
    assert "JAX_COORDINATOR_ADDRESS" in cluster.tasks("-N2 -n2", env={SECOND: "pytorch", VARIABLE: "jax"})[0].env
    for step, value in (("--aml-dist=none", "pytorch"), ("", "none"), ("", "")):
        for task in cluster.tasks(f"-N2 -n2 {step}", env={SECOND: value}):
            assert own_names(task) - ({SECOND} if value == "" else set()) == set()
    for program in ("srun", "sbatch --wrap"):
        done = cluster.run(f"{program} true", env={SECOND: "pytroch"})
        assert done.status == 1 and len(done.own_lines()) == 1 and SECOND in done.own_lines()[0], str(done)
