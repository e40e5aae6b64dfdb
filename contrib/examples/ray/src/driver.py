"""Tasks on every node, an actor, and on request Ray Train and Tune; checks what comes out."""

import argparse
import json
import random
import sys

import ray


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def hits(seed: int, points: int) -> tuple[str, int]:
    """How many of the points lie in the circle, and the node that counted."""
    rng = random.Random(seed)
    inside = sum(rng.random() ** 2 + rng.random() ** 2 <= 1 for _ in range(points))
    return ray.get_runtime_context().get_node_id(), inside


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self) -> None:
        self.total = 0

    def add(self, number: float) -> float:
        self.total += number
        return self.total


def estimate_pi(points: int, nodes: int) -> tuple[float, int]:
    tasks, counter = 4 * nodes, Counter.remote()
    results = ray.get([hits.remote(seed, points // tasks) for seed in range(tasks)])
    for _, inside in results:
        total = ray.get(counter.add.remote(inside))
    return 4 * total / (points // tasks * tasks), len({node for node, _ in results})


def train(workers: int, backend: str) -> float:
    """Ray Train with PyTorch: how much the loss falls, in the mean of the workers."""
    from ray.train import ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    ratios = Counter.remote()
    TorchTrainer(fit, train_loop_config={"ratios": ratios}, torch_config=TorchConfig(backend=backend),
                 scaling_config=ScalingConfig(num_workers=workers, placement_strategy="SPREAD")).fit()
    return ray.get(ratios.add.remote(0)) / workers


def fit(config: dict) -> None:
    import torch
    from ray import train as ray_train
    from ray.train.torch import prepare_model

    torch.manual_seed(1)
    model = prepare_model(torch.nn.Linear(4, 1))
    torch.manual_seed(ray_train.get_context().get_world_rank())
    features = torch.randn(256, 4)
    wanted = features.sum(1, keepdim=True)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (model(features) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    ray.get(config["ratios"].add.remote(losses[0] / losses[-1]))


def tune(trials: int) -> float:
    from ray import tune as ray_tune

    def objective(config: dict) -> None:
        ray_tune.report({"score": (config["x"] - 3) ** 2})

    space = {"x": ray_tune.grid_search([i / 2 for i in range(trials)])}
    results = ray_tune.Tuner(objective, param_space=space).fit()
    assert not results.errors and len(results) == trials
    return results.get_best_result("score", "min").config["x"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=400_000)
    parser.add_argument("--train", metavar="BACKEND", help="Ray Train too: gloo, amldist")
    parser.add_argument("--tune", type=int, metavar="TRIALS", help="Tune too")
    options = parser.parse_args()
    # Ray's workers import it before they make their group: an older PyTorch loads no entry points.
    hook = {"worker_process_setup_hook": "amldist.torch.register"} if options.train == "amldist" else None
    ray.init(runtime_env=hook)
    nodes = len(ray.nodes())
    print(f"{nodes} nodes, {int(ray.cluster_resources().get('CPU', 0))} CPUs, Ray {ray.__version__}", flush=True)
    pi, used = estimate_pi(options.points, nodes)
    result = {"nodes": nodes, "used": used, "pi": round(pi, 3)}
    good = abs(pi - 3.1416) < 0.05
    if options.train:
        result["ratio"] = round(train(nodes, options.train), 1)
        good = good and result["ratio"] > 4
    if options.tune:
        result["best"] = tune(options.tune)
        good = good and result["best"] == 3
    print("result:", json.dumps(result | {"good": good}), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
