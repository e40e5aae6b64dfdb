"""What the helper in Azure Machine Learning's guide to Lightning does: an MPI job's variables become Lightning's.

Written anew from its description, to show that AZ_BATCH_MASTER_NODE and OMPI_COMM_WORLD_* are there and fit together
in a step of --aml-dist=mpi. A script from Azure ML brings its own.
"""
import os


def set_environment_variables(gpus_per_node: int) -> None:
    """Sets MASTER_*, NODE_RANK, LOCAL_RANK and WORLD_SIZE from the names of Azure Batch and Open MPI."""
    address, port = os.environ["AZ_BATCH_MASTER_NODE"].split(":")
    os.environ["MASTER_ADDR"] = address
    os.environ["MASTER_PORT"] = port
    os.environ["MASTER_ADDRESS"] = os.environ["MASTER_ADDR"]
    os.environ["NODE_RANK"] = str(int(os.environ["OMPI_COMM_WORLD_RANK"]) // gpus_per_node)
    os.environ["LOCAL_RANK"] = os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]
    os.environ["WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_SIZE"]
    for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE"):
        print(f"{name}={os.environ[name]}", flush=True)
