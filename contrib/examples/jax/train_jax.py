#!/usr/bin/env python3
"""Data-parallel training with JAX: a plane is fitted to points of which each process has its own.

jax.distributed.initialize() needs no arguments: where process 0 listens comes from JAX_COORDINATOR_ADDRESS, how many
processes there are and which one this is JAX finds out by itself.
Exit status 1: a sum over the processes is wrong, they disagree about the plane, or the loss has not fallen.
"""
import json
import sys

import jax

jax.distributed.initialize()

import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

WANTED = np.array([2.0, -3.0, 0.5])
STEPS = 40


def loss_of(plane, points, heights):
    return jnp.mean((points @ plane - heights) ** 2)


@jax.jit
def step(plane, points, heights):
    loss, gradient = jax.value_and_grad(loss_of)(plane, points, heights)  # the compiler adds the sum over processes
    return plane - 0.1 * gradient, loss


def main() -> int:
    rank, size = jax.process_index(), jax.process_count()
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    shared = NamedSharding(mesh, PartitionSpec("data"))

    random = np.random.default_rng(rank)
    own_points = random.normal(size=(64 * jax.local_device_count(), 3)).astype(np.float32)
    points = jax.make_array_from_process_local_data(shared, own_points)
    heights = jax.make_array_from_process_local_data(shared, (own_points @ WANTED).astype(np.float32))
    plane = jax.device_put(jnp.zeros(3), NamedSharding(mesh, PartitionSpec()))

    losses = []
    for number in range(1, STEPS + 1):
        plane, loss = step(plane, points, heights)
        losses.append(float(loss))
        if rank == 0 and number % 10 == 0:
            print(f"step {number:3d}/{STEPS}   loss {losses[-1]:.6f}", flush=True)

    ranks = multihost_utils.process_allgather(np.array([rank]))
    weights = multihost_utils.process_allgather(np.array([float(jnp.sum(plane.addressable_data(0)))]))
    good = (int(ranks.sum()) == size * (size - 1) // 2 and len(set(weights.ravel().tolist())) == 1
            and losses[-1] < losses[0] / 100)
    if rank == 0:
        print("result: " + json.dumps({
            "framework": "jax", "version": jax.__version__, "world_size": size, "devices": jax.device_count(),
            "rank_sum": int(ranks.sum()), "loss": [losses[0], losses[-1]], "weights": weights.ravel().tolist(),
            "plane": np.asarray(plane.addressable_data(0)).tolist(), "good": good}), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
