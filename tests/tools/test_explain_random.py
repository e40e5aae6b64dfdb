"""Random layouts through `aml-dist explain`, judged by an oracle that shares nothing with it."""

import random

import pytest
from expectations import check_step, random_option
from layouts import one_task_per_node, random_layout

SEED = 20261121
BATCHES, IN_BATCH = 12, 100
KINDS = [("pytorch", False), ("pytorch", True), ("mpi", False), ("mpi", True), ("tensorflow", False), ("jax", False),
         ("ray", True)]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_explain_agrees_with_the_oracle(tool, tmp_path, batch):
    rng = random.Random(f"{SEED}-{batch}")
    shared = heterogeneous = tasks = 0
    for number in range(IN_BATCH):
        kind, per_node = KINDS[number % len(KINDS)]
        layout = one_task_per_node(rng) if per_node else random_layout(rng, tmp_path)
        option = random_option(rng, kind, per_node, len(layout.host_of_rank))
        arguments = ["--aml-dist", option.text(), *layout.arguments()]
        if option.gpus:
            arguments += ["--gpus-per-node", str(option.gpus)]
        print(f"seed {SEED}-{batch}, layout {number}:", arguments)  # shown when the oracle disagrees
        check_step(tool.tasks(*arguments), layout.host_of_rank, option)
        tasks += len(layout.host_of_rank)
        heterogeneous += len(layout.components) > 1
        shared += len(layout.components) > 1 and len(set(layout.host_of_rank)) < sum(
            len(set(part.host_of_rank)) for part in layout.components)
    print(f"seed {SEED}-{batch}: {IN_BATCH} layouts, {tasks} tasks, {heterogeneous} heterogeneous, {shared} sharing nodes")
    assert shared > 0, "the generator must reach components that share nodes"
