"""An unmodified PyTorch program over NCCL, in which rank 1 of two does something wrong after some calls.

    trace_rank.py FAULT        FAULT: none, stopped, late, operation, killed; or cost
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

CALLS = 5


def measure(calls_of: dict[int, int]) -> None:
    """Rank 0 prints the microseconds of an all-reduce of each size in bytes, of so many calls a block: least of five blocks."""
    for size, calls in calls_of.items():
        data = torch.ones(size // 4, device="cuda")
        blocks = []
        for _ in range(6):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(data)
            torch.cuda.synchronize()
            blocks.append((time.perf_counter() - begin) / calls)
        if dist.get_rank() == 0:
            print(f"cost {size} {min(blocks[1:]) * 1e6:.3f}", flush=True)


def main() -> None:
    fault = sys.argv[1]
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    data = torch.ones(1024, device="cuda")
    pair = dist.new_group([0, 1])
    if fault == "cost":
        measure({4: 300, 1 << 16: 200, 1 << 22: 10})  # sockets carry the long ones
        dist.destroy_process_group()
        return
    for _ in range(CALLS):
        dist.all_reduce(data)
        dist.broadcast(data, 0, group=pair)
    torch.cuda.synchronize()
    print("ready", flush=True)
    if rank == 1 and fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif rank == 1 and fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif rank == 1 and fault == "late":
        time.sleep(1000)
    if rank == 1 and fault == "operation":
        dist.all_gather_into_tensor(torch.empty(2048, device="cuda"), data)
    else:
        dist.all_reduce(data)
    if fault == "none":
        torch.cuda.synchronize()
        print("over", flush=True)
    time.sleep(1000 if fault != "none" else 3)  # so that it can be looked at
    dist.destroy_process_group()


main()
