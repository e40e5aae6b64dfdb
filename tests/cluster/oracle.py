"""The expected variables for pytorch, derived only from what the tasks observed.

Independent of the plugin's own computation: hosts come from the kernel, ranks from SLURM_PROCID.
"""

from __future__ import annotations

from cluster import Task


def check_pytorch(tasks: list[Task]) -> None:
    """Asserts every variable of a per-process pytorch step."""
    size = len(tasks)
    assert [task.procid for task in tasks] == list(range(size)), "ranks are dense"
    hosts_by_lowest_rank: list[str] = []
    ranks_of_host: dict[str, list[int]] = {}
    for task in tasks:
        if task.host not in ranks_of_host:
            hosts_by_lowest_rank.append(task.host)
        ranks_of_host.setdefault(task.host, []).append(task.procid)
    meeting_points = {(task.env["MASTER_ADDR"], task.env["MASTER_PORT"]) for task in tasks}
    assert len(meeting_points) == 1, f"one master for all, not {meeting_points}"
    (address, port), = meeting_points
    assert 1 <= int(port) <= 65535
    for task in tasks:
        here = ranks_of_host[task.host]
        node_rank = hosts_by_lowest_rank.index(task.host)
        expected = {
            "RANK": task.procid,
            "WORLD_SIZE": size,
            "LOCAL_RANK": here.index(task.procid),
            "LOCAL_WORLD_SIZE": len(here),
            "NODE_RANK": node_rank,
            "GROUP_RANK": node_rank,
            "GROUP_WORLD_SIZE": len(hosts_by_lowest_rank),
        }
        observed = {name: task.number(name) for name in expected}
        assert observed == expected, f"task {task.procid} on {task.host}"
        assert task.env["AZ_BATCH_MASTER_NODE"] == f"{address}:{port}"
        per_node = {len(ranks) for ranks in ranks_of_host.values()}
        if len(per_node) == 1:
            assert task.number("SLURM_NTASKS_PER_NODE") == len(here)
        else:
            assert "SLURM_NTASKS_PER_NODE" not in task.env


def check_master_is_on_host_of_rank_zero(tasks: list[Task], address_of_host: dict[str, str]) -> None:
    """The address is the one that the host of rank 0 has on the wire."""
    assert tasks[0].env["MASTER_ADDR"] == address_of_host[tasks[0].host]


def own_names(task: Task) -> set[str]:
    """Variables that only aml-dist sets. (OMPI_MCA_plm_slurm_args is Slurm's own, from 23.11 on.)"""
    ours = ("MASTER_", "PET_", "AMLDIST_", "OMPI_COMM_", "TF_CONFIG", "JAX_", "AZ", "GROUP_")
    exact = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "SLURM_AMLDIST_LAUNCH"}
    return {name for name in task.env if name.startswith(ours) or name in exact}
