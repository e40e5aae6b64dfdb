"""What a step leaves on a node: nothing secret in an epilog's environment, and no lease of a slurmstepd that was killed."""

import subprocess

import pytest
from cluster import DEVCLUSTER


@pytest.mark.parametrize("option", ["--aml-dist=pytorch", "--aml-dist=mpi,launch=per-node --ntasks-per-node=1",
                                    "--aml-dist=tensorflow,worker_count=2", "--aml-dist=none", ""])
def test_no_epilog_sees_the_steps_secret_or_token(cluster, workdir, option):
    """A site's TaskEpilog gets the same environment as the one that srun names."""
    (workdir / "epilog").write_text(f"#!/bin/sh\nenv >{workdir}/epilog.$SLURM_PROCID\n")
    (workdir / "epilog").chmod(0o755)
    done = cluster.run(f"export AMLDIST_STEP_SECRET={'0' * 64}; srun -N2 -n2 {option} --task-epilog={workdir}/epilog env", user="alice")
    assert done.status == 0, str(done)
    own = {line.partition("=")[2] for line in done.out.splitlines() if line.startswith("AMLDIST_STEP_SECRET=")}
    assert len(own) == (0 if option in ("", "--aml-dist=none") else 1)
    for rank in range(2):
        seen = (workdir / f"epilog.{rank}").read_text().splitlines()
        assert f"SLURM_PROCID={rank}" in seen
        names = {line.partition("=")[0] for line in seen}
        assert not names & {"SLURM_AMLDIST_REPORT", "SLURM_AMLDIST_SECRET", "AMLDIST_STEP_SECRET"}
        assert not [line for line in seen if any(secret in line for secret in own)]


def leases(cluster) -> str:
    return cluster.run("ls /run/aml-dist/ports", on="node1").out


def test_the_lease_of_a_killed_slurmstepd_is_removed_by_the_next_that_claims_a_port(cluster):
    kill = ("for i in $(seq 300); do ls /run/aml-dist/ports | grep -q ^23111 && pgrep -f 'sleep 30[.]5' && break; sleep 0.1; done; pkill -9 -x slurmstepd && "
            "pkill -9 -f 'sleep 30[.]5'")
    for _ in range(3):  # a step of another test that begins at that moment may already have removed it
        step = subprocess.Popen([str(DEVCLUSTER), "run", "--name", cluster.name, "--", "timeout", "40", "srun", "-w", "node1", "-N1", "-n1",
                                 "--aml-dist=pytorch,master_port=23111", "sleep", "30.5"], stderr=subprocess.PIPE)
        killed = cluster.run(kill, on="node1")
        assert killed.status == 0, str(killed)
        left = leases(cluster)
        step.communicate(timeout=60)
        if "23111." in left:
            break
    assert "23111." in left
    held = "srun -w node1 -N1 -n1 --aml-dist=pytorch,master_port=23112 sh -c 'srun --overlap -n1 --aml-dist=pytorch,master_port=23113 ls /run/aml-dist/ports'"
    done = cluster.run(held)
    assert done.status == 0 and "23111." not in done.out, str(done)
    assert "23112." in done.out and "23113." in done.out, "leases that are held stay: " + str(done)
    assert "2311" not in leases(cluster)
