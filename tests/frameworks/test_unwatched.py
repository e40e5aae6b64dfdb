"""What a step says at its start, and later, whose calls nobody records: torch RPC, and JAX between processors. Each gets stuck."""

from __future__ import annotations

import pathlib
import re

import pytest
from conftest import VENV, need

STEP = "srun -w node[1-2] -N2 -n4 --ntasks-per-node=2"
RPC = """import os, time
import torch.distributed.rpc as rpc
rank = int(os.environ["RANK"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=4)
if rank == 0:
    rpc.rpc_sync("worker2", time.sleep, args=(1000,))  # never answers in time
rpc.shutdown()
"""
JAX = """import os, time
import jax, jax.numpy as jnp
from jax.experimental import multihost_utils
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize()
multihost_utils.process_allgather(jnp.ones(4))
print("begun", flush=True)
if jax.process_index() == 2:
    time.sleep(1000)
multihost_utils.process_allgather(jnp.ones(4))
"""


@pytest.mark.parametrize("kind, package, program, unwatched", [
    ("pytorch", "torch", RPC, "those of torch.distributed.rpc are not"),
    ("jax", "jax", JAX, "those of JAX between processors (jax_cpu_collectives_implementation) are not"),
])
def test_what_is_not_watched_says_so_and_blames_nobody(cluster, kind, package, program, unwatched):
    need(package)
    folder = pathlib.Path(f"/var/tmp/aml-dist-unwatched-{kind}")
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(program)
    done = cluster.run(f"cd {folder} && timeout 85 {STEP} --aml-dist={kind},hang=5 {VENV}/bin/python program.py", timeout=110)
    assert f"amldist is installed are recorded, {unwatched}; 'aml-dist trace " in done.err, done
    assert not re.search(r"^aml-dist: (hang|busy|straggler): ", done.err, re.MULTILINE), done
    said = re.findall(r"^aml-dist: hang=5: (?:no rank has recorded a call in the first 60 s: .*)$", done.err, re.MULTILINE)
    assert len(said) == 1, done
