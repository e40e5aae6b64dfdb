"""Launchers (torchrun and its like) as the program of a step: one world, or a sentence before anything starts."""

import json
import os
import shlex

import pytest
from cluster import READABLE

NAMES = "srun-results ft_launcher axolotl llamafactory-cli torchrun accelerate fabric composer deepspeed colossalai horovodrun mpirun python3 nsys numactl uv conda torchrun-results.sh"
PER_NODE = "use launch=per-node with --ntasks-per-node=1"


@pytest.fixture(scope="module")
def programs(tmp_path_factory, cluster):
    """Stand-ins of these names: what the launcher would do does not matter here, only whether it starts."""
    made = cluster.run("mktemp -d /var/tmp/aml-dist-launchers-XXXXXX && chmod 755 /var/tmp/aml-dist-launchers-*").out.strip()
    for name in NAMES.split():
        cluster.run(f"printf '#!/bin/sh\\necho started {name}\\n' >{made}/{name}; chmod 755 {made}/{name}")
    yield made
    cluster.run(f"rm -r {made}")


def run(cluster, programs, step, **options):
    return cluster.run(f"export PATH={programs}:$PATH; {step}", user="alice", **options)


REFUSED = [
    ("-N1 -n2 -O --aml-dist=pytorch torchrun --nproc_per_node=8 train.py",
     f"2 tasks on the node, each of which would start 8 processes (torchrun): {PER_NODE}"),
    ("-N2 -n2 --aml-dist=pytorch python3 -m torch.distributed.run --nproc_per_node=4 train.py",
     f"2 tasks on 2 nodes, each of which would start 4 processes (torch.distributed.run): {PER_NODE}"),
    ("-N2 --ntasks-per-node=2 -O --aml-dist=pytorch accelerate launch train.py",
     f"2 tasks on the node, each of which would start a node's processes (accelerate launch): {PER_NODE}"),
    ("-N2 -n2 --aml-dist=pytorch bash -c 'cd / && fabric run --devices=2 train.py'",
     f"2 tasks on 2 nodes, each of which would start 2 processes (fabric run): {PER_NODE}"),
    ("-N2 -n2 --aml-dist=pytorch env A=b numactl -N 0 composer -n 8 train.py",
     f"2 tasks on 2 nodes, each of which would start 8 processes (composer): {PER_NODE}"),
    ("-N2 -n2 --aml-dist=jax conda run -n torch nsys profile -o x torchrun train.py",
     "2 tasks on 2 nodes, each of which would start a node's processes (torchrun): leave torchrun out (srun starts every process)"),
    ("-N1 -n2 -O --aml-dist=pytorch ft_launcher --nproc-per-node=8 train.py",
     f"2 tasks on the node, each of which would start 8 processes (ft_launcher): {PER_NODE}"),
    ("-N2 --ntasks-per-node=1 --aml-dist=pytorch,launch=per-node llamafactory-cli train c.yml",
     "llamafactory-cli on each of 2 nodes is not told of the others and would make 2 worlds: export NNODES=2"),
    ("-N2 --ntasks-per-node=1 --aml-dist=mpi,launch=per-node mpirun -np 8 ./program",
     "mpirun on each of 2 nodes is not told of the others and would make 2 worlds: leave it out (srun starts every process), or "
     "start it outside srun"),
    *((f"-N2 -n2 --aml-dist={kind} {launcher}",
       f"2 tasks on 2 nodes, each of which would start {starts} ({name}): leave {name} out (srun starts every process), or start "
       "it outside srun")
      for kind, launcher, starts, name in [
          ("mpi", "mpirun -np 4 ./program", "4 processes", "mpirun"), ("mpi", "horovodrun -np 4 python3 x.py", "4 processes", "horovodrun"),
          ("pytorch", "deepspeed x.py", "a node's processes", "deepspeed"),
          ("pytorch", "uv run colossalai run x.py", "a node's processes", "colossalai run"),
          ("tensorflow", "mpirun ./x", "a node's processes", "mpirun")]),
    ("-N2 --ntasks-per-node=1 --aml-dist=pytorch,launch=per-node torchrun --standalone train.py",
     "torchrun --standalone on each of 2 nodes would make 2 worlds: leave that flag out and use launch=per-node"),
]


@pytest.mark.parametrize(("step", "sentence"), REFUSED)
def test_several_worlds_are_refused_before_anything_starts(cluster, programs, step, sentence):
    done = run(cluster, programs, f"srun {step}")
    assert done.status == 1 and "started" not in done.out, str(done)
    assert done.own_lines() == [f"aml-dist: {sentence}"], str(done)


def test_the_number_of_a_node_that_a_batch_script_has_put_in_is_named(cluster, programs, workdir):
    (workdir / "job").write_text(f"#!/bin/bash\nexport PATH={programs}:$PATH\nsrun --ntasks-per-node=1 --aml-dist=pytorch,launch=per-node "
                                 "torchrun --nnodes 2 --node_rank $SLURM_NODEID --nproc_per_node 8 train.py\n")
    done, out = cluster.job_output(f"-N2 {workdir}/job", workdir, user="alice")
    assert done.status == 1 and "started" not in out, out
    assert ("aml-dist: torchrun is told that it is on node 0 in all 2 tasks on 2 nodes (a batch script has put the number there): "
            "leave that flag out\n") in out


@pytest.mark.parametrize(("step", "warning"), [
    ("-N2 -n2 --aml-dist=pytorch accelerate launch --config_file c.yml train.py", PER_NODE),
    ("-N2 -n2 --aml-dist=pytorch axolotl train c.yml", PER_NODE),
    ("-N1 -n2 -O --aml-dist=pytorch bash -c 'torchrun --nnodes 2 --node_rank $RANK train.py'", PER_NODE),
    ("-N2 -n2 --aml-dist=pytorch bash -c 'torchrun --nnodes 2 --node_rank $NODE_RANK train.py'", ""),
    ("-N2 --ntasks-per-node=1 --aml-dist=pytorch,launch=per-node torchrun train.py", ""),
    ("-N1 -n1 --aml-dist=pytorch torchrun --nproc_per_node=8 train.py", ""),
    ("-N2 -n2 --aml-dist=pytorch torchrun-results.sh", ""),
    ("-N2 -n2 --aml-dist=pytorch python3 train.py -m torch.distributed.run", ""),
    ("-N2 -n2 --aml-dist=pytorch bash -c 'if [ $RANK = 0 ]; then mpirun -np 8 ./program; else echo started; fi'", ""),
    ("-N2 -n2 --aml-dist=pytorch srun-results", ""),
    ("-N2 -n2 --aml-dist=none torchrun train.py", ""),
    ("-N2 -n2 torchrun train.py", ""),
])
def test_one_world_and_what_may_be_meant_start(cluster, programs, step, warning):
    done = run(cluster, programs, f"srun {step}")
    assert done.status == 0 and "started" in done.out, str(done)
    assert len(done.own_lines()) == (1 if warning else 0) and warning in done.err, str(done)


@pytest.mark.parametrize(("step", "warned"), [
    ("-N2 -n2 --aml-dist=pytorch {0}", True), ("-N2 -n2 --aml-dist=pytorch env A=b bash {0}", True),
    ("-N2 --ntasks-per-node=1 --aml-dist=pytorch,launch=per-node {0}", False), ("-N2 -n2 --aml-dist=none {0}", False)])
def test_a_launcher_in_a_script_is_warned_of(cluster, programs, workdir, step, warned):
    """What a script does, only its author knows: it starts."""
    script = workdir / "train.sh"
    script.write_text("#!/bin/bash\nset -e\ntorchrun --nproc_per_node 4 train.py\n")
    script.chmod(0o755)
    done = run(cluster, programs, f"srun {step.format(script)}")
    assert done.status == 0 and "started" in done.out, str(done)
    said = f"aml-dist: '{script}': 2 tasks on 2 nodes, each of which would start 4 processes (torchrun): {PER_NODE}"
    assert done.own_lines() == ([said] if warned else []), str(done)


def test_copies_of_one_task_are_warned_of(cluster, programs):
    done = run(cluster, programs, "srun -N1 -n1 --aml-dist=pytorch mpirun -np 4 python3 train.py")
    assert done.status == 0 and "started mpirun" in done.out, str(done)
    assert done.own_lines() == ["aml-dist: 1 task, which would start 4 processes (mpirun), each of them with RANK=0 and WORLD_SIZE=1: leave mpirun out and use -n4"]


@pytest.mark.parametrize("launcher", ["mpirun --oversubscribe", "mpiexec.hydra"])
@pytest.mark.parametrize("way", ["{} salloc -Q", "salloc -Q --aml-dist=pytorch"])
def test_real_daemons_of_launchers_have_no_numbers(cluster, launcher, way):
    """orted, and Hydra's proxies (AMLDIST_PEER_MPICH: a folder with MPICH), which start the ranks of the second node."""
    path = f"export PATH=$PATH:{os.environ.get('AMLDIST_PEER_MPICH', '/opt/peer-mpich')}/bin; cd /"
    if cluster.run(f"{path}; command -v {launcher.split()[0]}").status != 0:
        pytest.skip(f"no {launcher.split()[0]}")
    rank = "echo =$RANK=$WORLD_SIZE=$AMLDIST_STEP_SECRET=${OMPI_COMM_WORLD_RANK-$PMI_RANK}="
    done = cluster.run(f"{path}; {way.format('SLURM_AML_DIST=pytorch')} -N2 -n4 {launcher} -np 4 bash -c {shlex.quote(rank)}", user="alice", timeout=60)
    assert done.status == 0 and sorted(done.out.split()) == [f"===={rank}=" for rank in range(4)], str(done)


@pytest.mark.parametrize(("step", "launcher", "verdict"), [
    ("-N2 --ntasks-per-node=2 -O --aml-dist=pytorch", "torchrun --nproc_per_node=8 t.py", "fails: 2 tasks on the node, each of "
     "which would start 8 processes (torchrun)"),
    ("-N2 --ntasks-per-node=1 --aml-dist=pytorch,launch=per-node", "torchrun --nproc_per_node=8 t.py", "fine: "),
    ("-N2 --ntasks-per-node=1 --aml-dist=mpi,launch=per-node", "mpirun -np 8 x", "fails: mpirun on each of 2 nodes is not told"),
])
def test_the_doctor_says_what_srun_would(cluster, step, launcher, verdict):
    done = cluster.run(f"srun {step} bash -c '[ $SLURM_PROCID != 0 ] || {READABLE}/aml-dist doctor --json -- {launcher}'", user="alice")
    rows = {row["framework"]: row for row in json.loads(done.out)}
    assert f"{rows['command']['verdict']}: {rows['command']['reason']}".startswith(verdict), str(done)


@pytest.mark.parametrize("outer", ["--ntasks-per-node=2 -O --aml-dist=pytorch", "--ntasks-per-node=1 --aml-dist=pytorch,launch=per-node"])
@pytest.mark.parametrize("inner", ["", "--aml-dist=pytorch"])
def test_tasks_per_node_of_an_outer_step_are_no_option_of_an_inner_one(cluster, outer, inner):
    """srun takes SLURM_NTASKS_PER_NODE, which frameworks need in a task, for its own --ntasks-per-node."""
    step = f"[ $SLURM_PROCID != 0 ] || srun --overlap -N2 -n8 -O {inner} bash -c 'echo inner ${{SLURM_NTASKS_PER_NODE-unset}}'"
    done = cluster.run(f"srun -N2 {outer} bash -c {shlex.quote(step)}")
    assert done.status == 0 and "honor" not in done.err, str(done)
    assert done.out.count("inner 4" if inner else "inner unset") == 8, str(done)
