"""Gloo, or libdist, as torch.distributed calls it, as something to be measured: the same requests as serve.c, one process per rank.

    peer_gloo.py NAME SOCKET        (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set; `aml-dist bench --peer gloo` does)

NAME "torch" is libdist through PyTorch (the package amldist), "gloo" Gloo; "torch-cuda" and "nccl" are libdist and PyTorch's
NCCL on GPU tensors: the time ends when the device has done all calls. With fewer GPUs than ranks, ranks share them.

torch.distributed reduces in place only: out of place is a copy before it, as a program has to make. Its own cost of some
microseconds a call is in the time, because users pay it.
"""

import os
import socket
import sys
import time

import torch
import torch.distributed as dist

ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, REDUCE_SCATTER, ALLTOALL, GATHER, SCATTER, SENDRECV, BARRIER = range(10)
FINE, UNSUPPORTED, FAILED = 0, 1, 2
SUM, PROD, MAX, MIN = range(4)
# By amldist_type; what is not here, Gloo does not reduce.
TYPES = {0: torch.int8, 1: torch.uint8, 2: torch.int32, 4: torch.int64, 6: torch.float16, 7: torch.float32, 8: torch.float64}
REDOPS = {SUM: dist.ReduceOp.SUM, PROD: dist.ReduceOp.PRODUCT, MAX: dist.ReduceOp.MAX, MIN: dist.ReduceOp.MIN}
REDUCTIONS = (ALLREDUCE, REDUCE)
DIVIDED = (ALLGATHER, GATHER, SCATTER)
ON_GPU = ("torch-cuda", "nccl")
device = torch.device("cpu")


def use_gpu() -> None:
    """This rank's GPU. NCCL takes two ranks on one if they seem to be on two hosts."""
    global device
    rank, gpus = int(os.environ["RANK"]), torch.cuda.device_count()
    if gpus == 0:
        sys.exit("aml-dist: bench: PyTorch sees no GPU here")
    if gpus < int(os.environ["WORLD_SIZE"]):
        os.environ.update(NCCL_HOSTID=f"rank{rank}", NCCL_MULTI_RANK_GPU_ENABLE="1")
    device = torch.device("cuda", rank % gpus)
    torch.cuda.set_device(device)


def pattern(redop: int, rank: int, size: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """The values of core.c: small whole numbers, exact in every type."""
    place = torch.arange(count) % 1021
    values = torch.where(place % size == rank, 2, 1) if redop == PROD else (place + rank * 3) % 5
    return values.to(dtype)


def combined(redop: int, size: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    every = torch.stack([pattern(redop, rank, size, count, torch.int64) for rank in range(size)])
    by_operator = {SUM: lambda: every.sum(0), PROD: lambda: every.prod(0), MAX: lambda: every.amax(0), MIN: lambda: every.amin(0)}
    return by_operator[redop]().to(dtype)


class Task:
    """One request on this rank: its buffers, its call, its right result."""

    def __init__(self, op: int, kind: int, redop: int, in_place: bool, length: int):
        self.op, self.redop, self.in_place = op, redop, in_place
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        dtype = TYPES[kind]
        elements = length // torch.empty(0, dtype=dtype).element_size()
        self.count = elements // self.size if op in DIVIDED else 0 if op == BARRIER else elements
        whole = self.count * self.size
        self.send = torch.zeros(whole if op == SCATTER else self.count, dtype=dtype, device=device)
        shares = in_place and op in (*REDUCTIONS, BROADCAST)
        self.recv = self.send if shares else torch.zeros(whole if op in (ALLGATHER, GATHER) else self.count, dtype=dtype, device=device)

    def fill(self) -> None:
        self.send.copy_(pattern(self.redop, self.rank, self.size, len(self.send), self.send.dtype))

    def run(self) -> None:
        if self.op in REDUCTIONS and self.recv is not self.send:
            self.recv.copy_(self.send)
        if self.op == ALLREDUCE:
            dist.all_reduce(self.recv, op=REDOPS[self.redop])
        elif self.op == REDUCE:
            dist.reduce(self.recv, 0, op=REDOPS[self.redop])
        elif self.op == BROADCAST:
            dist.broadcast(self.send, 0)
        elif self.op == ALLGATHER:
            dist.all_gather(list(self.recv.chunk(self.size)), self.send)
        elif self.op == GATHER:
            dist.gather(self.send, list(self.recv.chunk(self.size)) if self.rank == 0 else None, 0)
        elif self.op == SCATTER:
            dist.scatter(self.recv, list(self.send.chunk(self.size)) if self.rank == 0 else None, 0)
        elif self.op == SENDRECV:
            sending = dist.isend(self.send, (self.rank + 1) % self.size)
            dist.recv(self.recv, (self.rank - 1) % self.size)
            sending.wait()
        else:
            dist.barrier()

    def right(self) -> torch.Tensor:
        dtype, count = self.send.dtype, self.count
        if self.op in REDUCTIONS:
            return combined(self.redop, self.size, count, dtype)
        if self.op == BROADCAST:
            return pattern(self.redop, 0, self.size, count, dtype)
        if self.op == SCATTER:
            return pattern(self.redop, 0, self.size, count * self.size, dtype)[self.rank * count:][:count]
        if self.op == SENDRECV:
            return pattern(self.redop, (self.rank - 1) % self.size, self.size, count, dtype)
        return torch.cat([pattern(self.redop, rank, self.size, count, dtype) for rank in range(self.size)])

    def check(self) -> int:
        self.fill()
        self.run()
        if self.op == BARRIER or (self.op in (REDUCE, GATHER) and self.rank != 0):
            return 0
        result = self.send if self.op == BROADCAST else self.recv
        return int((result.cpu() != self.right()).sum())


def possible(op: int, kind: int, redop: int, in_place: bool, off_cache: bool) -> bool:
    size = dist.get_world_size()
    if off_cache or kind not in TYPES or op in (REDUCE_SCATTER, ALLTOALL) or (op == SENDRECV and (size == 1 or device.type == "cuda")):
        return False
    if in_place and op not in (*REDUCTIONS, BROADCAST, BARRIER):
        return False
    return op not in REDUCTIONS or redop in REDOPS


def loop(task: Task, iterations: int, rewrite: bool, calls: bool) -> float:
    start = time.perf_counter()
    for _ in range(iterations):
        if rewrite:
            task.send.zero_()
        if calls:
            task.run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6


def answer(line: str) -> tuple[int, float, int]:
    op, kind, redop, in_place, length, iterations, off_cache, _own_memory, rewrite = map(int, line.split())
    if not possible(op, kind, redop, bool(in_place), bool(off_cache)):
        return UNSUPPORTED, 0.0, 0
    task = Task(op, kind, redop, bool(in_place), length)
    if iterations == 0:
        return FINE, 0.0, task.check()
    writing = loop(task, iterations, True, calls=False) if rewrite else 0.0
    dist.barrier()
    total = loop(task, iterations, bool(rewrite), calls=True)
    return FINE, max(0.0, total - writing) / iterations, 0


def main() -> int:
    name, path = sys.argv[1:]
    os.dup2(2, 1)  # the bench's results are on standard output, where Gloo of some releases says how many ranks it has
    torch.set_num_threads(1)
    if name in ON_GPU:
        use_gpu()
    if name.startswith("torch"):
        import amldist.torch  # noqa: F401 - older releases of PyTorch do not find it by themselves
    dist.init_process_group("amldist" if name.startswith("torch") else name)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    with connection.makefile("rw") as stream:
        print("hello", name, dist.get_rank(), dist.get_world_size(), file=stream, flush=True)
        for line in stream:
            try:
                status, microseconds, wrong = answer(line)
            except RuntimeError as problem:
                print(f"aml-dist: bench: {name}: {problem}", file=sys.stderr, flush=True)
                status, microseconds, wrong = FAILED, 0.0, 0
            print(status, f"{microseconds:.6f}", wrong, file=stream, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
