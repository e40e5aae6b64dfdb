"""The samples in contrib/site-policy: which kinds a partition offers, and the kind of batch jobs that name none."""

import contextlib
import pathlib

import pytest
from cluster import PROBE
from oracle import check_pytorch, own_names

SAMPLES = pathlib.Path(__file__).resolve().parents[3] / "contrib/site-policy"


@contextlib.contextmanager
def lua(cluster, plugins: str, **texts: str):
    """Slurm with these lua plugins, whose scripts have these texts."""
    folder = pathlib.Path(f"/run/aml-devcluster/{cluster.name}/slurm")
    before = (folder / "slurm.conf").read_text()
    try:
        for name, text in texts.items():
            (folder / f"{name}.lua").write_text(text)
        (folder / "slurm.conf").write_text(before + plugins)
        assert cluster.run("scontrol reconfigure").status == 0
        yield
    finally:
        (folder / "slurm.conf").write_text(before)
        assert cluster.run("scontrol reconfigure").status == 0
        for name in texts:
            (folder / f"{name}.lua").unlink()


@pytest.fixture(autouse=True)
def has_lua(cluster):
    if cluster.run("ls /usr/lib/*/slurm*/cli_filter_lua.so").status != 0:
        pytest.skip("this Slurm has no cli_filter_lua.so")


def sample(name: str, partition: str) -> str:
    """The sample, with the test cluster's partition in the place of one of its own."""
    text = (SAMPLES / f"{name}.lua").read_text()
    assert f"{partition} = " in text
    return text.replace(f"{partition} = ", "main = ").replace('default_partition = "cpu"', 'default_partition = "main"')


def test_a_partition_offers_some_kinds_only(cluster):
    with lua(cluster, "CliFilterPlugins=cli_filter/lua\n", cli_filter=sample("cli_filter", "cpu")):
        for command, env in (("srun --aml-dist=pytorch,verbose true", {}), ("sbatch --aml-dist=jax --wrap true", {}),
                             ("srun true", {"SLURM_AML_DIST": "pytorch"})):
            refused = cluster.run(command.replace(" ", " -p main ", 1), env=env)
            assert refused.status != 0 and "partition main does not offer --aml-dist=" in refused.err, str(refused)
            assert "it offers mpi, none" in refused.err, str(refused)
        for where in ("", "-p main,main"):
            refused = cluster.run(f"srun {where} --aml-dist=pytorch true")
            assert refused.status != 0 and "partition main does not offer --aml-dist=pytorch" in refused.err, str(refused)
        assert "OMPI_COMM_WORLD_RANK" in cluster.tasks("-p main -N1 -n1 --aml-dist=mpi")[0].env
        assert cluster.run("srun -p main true").status == 0
    check_pytorch(cluster.tasks("-p main -N2 -n4 --aml-dist=pytorch"))


def test_a_batch_job_gets_the_kind_of_its_partition(cluster, workdir):
    job = workdir / "job.sh"
    job.write_text(f"#!/bin/bash\nsrun {PROBE}\n")
    with lua(cluster, "JobSubmitPlugins=lua\n", job_submit=sample("job_submit", "gpu")):
        _, out = cluster.job_output(f"-p main -N2 -n2 {job}", workdir)
        assert "LOCAL_WORLD_SIZE" in out
        _, out = cluster.job_output(f"-N2 -n2 {job}", workdir)
        assert "LOCAL_WORLD_SIZE" in out, "main is the default partition"
        _, out = cluster.job_output(f"-p main -N2 -n2 --aml-dist=jax {job}", workdir)
        assert "JAX_COORDINATOR_ADDRESS" in out
        _, out = cluster.job_output(f"-p main -N2 -n2 --aml-dist=none {job}", workdir)
        assert "AMLDIST_STAMP" not in out
        for task in cluster.tasks("-p main -N2 -n2"):
            assert own_names(task) == set()


@pytest.mark.parametrize("answer", ["nil", "'yes'", "{}", "error('no')"])
def test_a_filter_that_answers_nonsense_changes_no_environment(cluster, answer):
    """Slurm lets the step through or ends it; a step that runs has its numbers."""
    text = "\n".join(f"function slurm_cli_{name}(...) return {answer} end" for name in ("setup_defaults", "pre_submit", "post_submit"))
    with lua(cluster, "CliFilterPlugins=cli_filter/lua\n", cli_filter=text):
        done = cluster.run("srun -N2 -n2 --aml-dist=pytorch bash -c 'echo rank $RANK of $WORLD_SIZE'", timeout=40)
    assert done.status not in (124, 139) and sorted(done.out.splitlines()) in ([], ["rank 0 of 2", "rank 1 of 2"]), str(done)
