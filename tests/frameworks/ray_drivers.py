"""Drivers for the tests of `aml-dist ray`, each as one library of Ray's users begins; its last line tells whether all is right."""

# Ray Data: a map over all nodes, an aggregation, a shuffle.
DATA = """import ray
ray.init(log_to_driver=False)
rows = ray.data.range(400, override_num_blocks=8).map_batches(lambda batch: {"square": batch["id"] ** 2}).random_shuffle()
print("result:", rows.sum("square") == sum(i * i for i in range(400)), flush=True)
"""

# RLlib: weights through the object store, rollouts on all nodes, an actor that dies and comes again.
ROLLOUTS = """import os, ray
ray.init(log_to_driver=False)
@ray.remote(num_cpus=0.5, max_restarts=1, max_task_retries=1, scheduling_strategy="SPREAD")
class Rollouts:
    def sample(self, weights, seed):
        if seed == 5 and not ray.get_runtime_context().was_current_actor_reconstructed: os._exit(1)
        return 3 - sum(weights) / len(weights)
actors, weight = [Rollouts.remote() for _ in ray.nodes()], 0.0
for start in range(0, 12, 4):
    weights = ray.put([weight] * 100_000)  # too long for a message: it goes through the stores
    waiting, steps = [each.sample.remote(weights, start + i) for i, each in enumerate(actors)], []
    while waiting:
        done, waiting = ray.wait(waiting)
        steps += ray.get(done)
    weight += sum(steps) / len(steps) / 2
print("result:", abs(weight - 2.625) < 1e-9, flush=True)
"""

# vLLM: the running cluster, a placement group of a bundle for each node with the first on the driver's, an actor in each.
PLACEMENT = """import os, ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
ray.init(address="auto", ignore_reinit_error=True, log_to_driver=False)
own, nodes = ray.util.get_node_ip_address(), len(ray.nodes())
group = placement_group([{"CPU": 1, f"node:{own}": 0.001}] + [{"CPU": 1}] * (nodes - 1), strategy="STRICT_SPREAD")
ray.get(group.ready(), timeout=200)
@ray.remote(num_cpus=1)
class Worker:
    def where(self): return ray.util.get_node_ip_address(), [name for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "MASTER_ADDR") if name in os.environ]
workers = [Worker.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i)).remote() for i in range(nodes)]
places = ray.get([each.where.remote() for each in workers])
print("result:", places[0][0] == own and len({host for host, _ in places}) == nodes and not any(names for _, names in places), flush=True)
"""

# verl: the main program is an actor that the driver starts with variables of its own.
RUNNER = """import os, ray
if not ray.is_initialized(): ray.init(runtime_env={"env_vars": {"TOKENIZERS_PARALLELISM": "true"}}, log_to_driver=False)
@ray.remote(num_cpus=1)
class TaskRunner:
    def run(self):
        @ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
        def work(i): return os.environ["TOKENIZERS_PARALLELISM"], i * i
        return ray.get([work.remote(i) for i in range(8)])
print("result:", ray.get(TaskRunner.remote().run.remote()) == [("true", i * i) for i in range(8)], flush=True)
"""
