"""What each task must get, from nothing but the host of each rank and the option: the tables of the documentation, in
Python."""

from __future__ import annotations

import collections
import dataclasses
import json
import random

STAMP = "AMLDIST_STAMP"


@dataclasses.dataclass
class Option:
    """An --aml-dist option, and what it must do."""

    kind: str
    per_node: bool = False
    keys: tuple[str, ...] = ()
    master_addr: str = ""
    master_port: int = 0
    nproc_per_node: str = ""
    backend: str = ""
    roles: tuple[tuple[str, int], ...] = ()
    gpus: int = 0

    def text(self) -> str:
        return ",".join((self.kind, *self.keys))


def random_option(rng: random.Random, kind: str, per_node: bool, size: int) -> Option:
    option = Option(kind, per_node)
    keys = ["launch=per-node"] if per_node else []
    if rng.random() < 0.2:
        option.master_addr = "elsewhere.example.org"
        keys.append("master_addr=elsewhere.example.org")
    if rng.random() < 0.3:
        option.master_port = rng.randint(1024, 60000)
        keys.append(f"master_port={option.master_port}")
    if kind == "pytorch" and rng.random() < 0.3:
        option.backend = "gloo"
        keys.append("backend=gloo")
    if kind == "pytorch" and per_node and rng.random() < 0.6:
        option.nproc_per_node = rng.choice(["3", "auto", "gpu", "cpu"])
        keys.append(f"nproc_per_node={option.nproc_per_node}")
    if kind == "tensorflow":
        option.roles, more = random_roles(rng, size)
        keys += more
    if rng.random() < 0.3:
        keys.append(f"process_count={size}")
    option.gpus = rng.choice([0, 0, 1, 4])
    option.keys = tuple(rng.sample(keys, len(keys)))
    return option


def random_roles(rng: random.Random, size: int) -> tuple[tuple[tuple[str, int], ...], list[str]]:
    left, keys = size - 1, []  # one stays a worker
    counts = {}
    for role, key, most in (("chief", "chief_count", 1), ("ps", "parameter_server_count", 4),
                            ("evaluator", "evaluator_count", 1)):
        counts[role] = rng.randint(0, min(most, left)) if rng.random() < 0.5 else 0
        left -= counts[role]
        if counts[role] or rng.random() < 0.2:
            keys.append(f"{key}={counts[role]}")
    workers = left + 1
    if rng.random() < 0.5:
        keys.append(f"worker_count={workers}")
    counts["worker"] = workers
    return tuple((role, counts[role]) for role in ("chief", "worker", "ps", "evaluator")), keys


def check_step(tasks: list[dict], host_of_rank: list[str], option: Option) -> None:
    """Asserts every field and every variable of every task."""
    assert [task["rank"] for task in tasks] == list(range(len(host_of_rank)))
    port = int(tasks[0]["env"]["MASTER_PORT"])
    assert port == option.master_port if option.master_port else 20000 <= port <= 29999, port
    nodes = list(dict.fromkeys(host_of_rank))  # in the order of each node's lowest rank
    tasks_of_node = collections.Counter(host_of_rank)
    seen: collections.Counter[str] = collections.Counter()
    local_rank_of = []
    for host in host_of_rank:
        local_rank_of.append(seen[host])
        seen[host] += 1
    for rank, (task, host) in enumerate(zip(tasks, host_of_rank)):
        where = {"rank": rank, "local_rank": local_rank_of[rank], "node_rank": nodes.index(host), "host": host}
        assert {name: task[name] for name in where} == where
        expected = {name: str(value) for name, value in environment(rank, host_of_rank, nodes, tasks_of_node,
                                                                    local_rank_of, option, port).items()}
        observed = dict(task["env"])
        stamp = observed.pop(STAMP).split(" ")
        assert stamp[1:3] == [f"kind={option.kind}", f"nodes={len(nodes)}"]
        assert stamp[-2:] == [f"MASTER_ADDR={expected['MASTER_ADDR']}", f"MASTER_PORT={port}"]
        if "TF_CONFIG" in expected:
            assert json.loads(observed.pop("TF_CONFIG")) == json.loads(expected.pop("TF_CONFIG"))
        assert observed == expected, f"rank {rank}"


def environment(rank, host_of_rank, nodes, tasks_of_node, local_rank_of, option, port) -> dict:
    """The documentation's table, row by row."""
    host, size = host_of_rank[rank], len(host_of_rank)
    address = option.master_addr or host_of_rank[0]
    node_rank = nodes.index(host)
    env = {"MASTER_ADDR": address, "MASTER_PORT": port, "NODE_RANK": node_rank,
           "AZ_BATCH_MASTER_NODE": f"{address}:{port}"}
    if len(set(tasks_of_node.values())) == 1:
        env["SLURM_NTASKS_PER_NODE"] = tasks_of_node[host]
    if option.per_node:
        env |= {"AMLDIST_HIDDEN_SLURM_NTASKS": size, "AMLDIST_HIDDEN_SLURM_NPROCS": size,
                "AMLDIST_HIDDEN_SLURM_STEP_ID": 0}
    else:
        env |= {"WORLD_SIZE": size, "RANK": rank, "LOCAL_RANK": local_rank_of[rank],
                "LOCAL_WORLD_SIZE": tasks_of_node[host]}
    if option.backend:
        env["AMLDIST_BACKEND"] = option.backend
    if option.kind == "pytorch" and option.per_node:
        env |= {"PET_NNODES": len(nodes), "PET_NODE_RANK": node_rank, "PET_MASTER_ADDR": address,
                "PET_MASTER_PORT": port, "PET_NPROC_PER_NODE": option.nproc_per_node or max(1, option.gpus)}
    elif option.kind == "pytorch":
        env |= {"GROUP_RANK": node_rank, "GROUP_WORLD_SIZE": len(nodes)}
    elif option.kind == "mpi":
        env |= {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": size,
                "OMPI_COMM_WORLD_LOCAL_RANK": local_rank_of[rank], "OMPI_COMM_WORLD_LOCAL_SIZE": tasks_of_node[host],
                "MASTER_ADDRESS": address, "AZ_BATCHAI_MPI_MASTER_NODE": address, "AZ_BATCH_HOST_LIST": ",".join(nodes),
                "AZUREML_NODE_COUNT": len(nodes), "AZUREML_CR_NODE_RANK": node_rank}
    elif option.kind == "ray":
        env |= {"WORLD_SIZE": len(nodes), "RAY_ADDRESS": f"{address}:{port}"}
    elif option.kind == "jax":
        env["JAX_COORDINATOR_ADDRESS"] = f"{address}:{port}"
        if option.gpus == 1:
            env["JAX_LOCAL_DEVICE_IDS"] = "0"
    elif option.kind == "tensorflow":
        env["TF_CONFIG"] = json.dumps(tf_config(rank, host_of_rank, local_rank_of, option, address, port))
    return env


def tf_config(rank, host_of_rank, local_rank_of, option, address, port) -> dict:
    named = [address if host == host_of_rank[0] else host for host in host_of_rank]
    endpoints = [f"{host}:{port + local}" for host, local in zip(named, local_rank_of)]
    roles = [(role, index) for role, count in option.roles for index in range(count)]
    cluster: dict[str, list[str]] = {}
    for (role, _), endpoint in zip(roles, endpoints):
        if role != "evaluator":
            cluster.setdefault(role, []).append(endpoint)
    role, index = roles[rank]
    return {"cluster": cluster, "task": {"type": role, "index": index}, "environment": "cloud"}
