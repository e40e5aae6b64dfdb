"""One rank of test_torch_compiled.py: the compiled calls against the ones in Python, and both against what must come out."""

from __future__ import annotations

import datetime
import os
import signal
import sys
import threading
import time

import amldist.torch
import torch
import torch.distributed as dist
from amldist.torch import _group

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TYPES = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bfloat16, torch.float16, torch.bool]


def is_compiled() -> bool:
    return type(vars(_group.AmldistGroup)["allreduce"]).__name__ == "Method"


def operations() -> None:
    for kind in TYPES:
        mine = torch.full((3, 5), rank + 1).to(kind)
        for name, wanted in (("SUM", sum(range(1, size + 1))), ("MAX", size), ("MIN", 1)):
            data = mine.clone()
            assert dist.all_reduce(data, getattr(dist.ReduceOp, name)) is None
            assert torch.equal(data, torch.full((3, 5), wanted).to(kind)), (kind, name, data)
        data = mine.clone()
        dist.broadcast(data, size - 1)
        assert torch.equal(data, torch.full((3, 5), size).to(kind)), data
        whole = torch.empty((size, 3, 5), dtype=kind)
        dist.all_gather_into_tensor(whole, mine)
        assert torch.equal(whole, torch.stack([torch.full((3, 5), r + 1).to(kind) for r in range(size)]))
        part = torch.empty(4, dtype=kind)
        dist.reduce_scatter_tensor(part, torch.arange(4 * size).to(kind))
        assert torch.equal(part, torch.stack([torch.arange(4 * size).to(kind)[4 * rank : 4 * rank + 4]] * size).sum(0).to(kind))
    data = torch.tensor([6 + rank])
    dist.all_reduce(data, dist.ReduceOp.BXOR)
    wanted = 0
    for r in range(size):
        wanted ^= 6 + r
    assert data.item() == wanted
    dist.barrier()


def unusual_ones() -> None:
    """What the compiled calls leave to the others."""
    columns = torch.ones(4, 6).t()
    dist.all_reduce(columns)
    assert torch.equal(columns, torch.full((6, 4), float(size)))
    data = torch.ones(8)
    work = dist.all_reduce(data, async_op=True)
    work.wait()
    assert data.sum() == 8 * size
    with dist._coalescing_manager(async_ops=False):
        first, second = torch.ones(2), torch.ones(3)
        dist.all_reduce(first)
        dist.all_reduce(second)
    assert first.sum() == 2 * size and second.sum() == 3 * size
    scaled = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    dist.all_reduce(scaled)
    assert scaled.sum() == 3 * size
    for wrong in (torch.ones(4, 4)[:, 1], torch.ones(4)[::2]):
        try:
            dist.all_reduce(wrong)
            raise AssertionError("a tensor with gaps was taken")
        except ValueError as error:
            assert "contiguous" in str(error)
    group = dist.group.WORLD
    group.set_timeout(datetime.timedelta(seconds=40))
    dist.all_reduce(data)
    before = group._get_sequence_number_for_group()
    dist.all_reduce(data)
    assert group._get_sequence_number_for_group() == before + 1
    threads = [threading.Thread(target=dist.all_reduce, args=(torch.ones(1),), kwargs={"group": g})
               for g in (dist.new_group(), dist.new_group())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def model() -> None:
    torch.manual_seed(3)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(5, 2))
    net(torch.full((1, 5), float(rank))).sum().backward()
    mean = sum(range(size)) / size
    assert torch.allclose(net.module.weight.grad, torch.full((2, 5), mean))


def errors() -> None:
    """Another call than the others', and Ctrl-C: both end the group, so each has its own."""
    group = dist.new_group(backend="amldist", timeout=datetime.timedelta(seconds=20))
    try:
        dist.all_reduce(torch.ones(1 + rank), group=group)
        raise AssertionError("sizes that differ were taken")
    except dist.DistBackendError as error:
        assert "called allreduce" in str(error) and error.rank is not None, error
    group = dist.new_group(backend="amldist", timeout=datetime.timedelta(seconds=20))
    try:
        if rank == 0:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        dist.all_reduce(torch.ones(1), group=group) if rank == 0 else time.sleep(1)
        if rank == 0:
            raise AssertionError("Ctrl-C was not noticed")
    except KeyboardInterrupt:
        pass


def main() -> None:
    is_possible = hasattr(dist.AllreduceOptions(), "asyncOp")  # not in PyTorch 2.6
    assert is_compiled() == (sys.argv[1] == "compiled" and is_possible), sys.argv
    dist.init_process_group("amldist", timeout=datetime.timedelta(seconds=60))
    operations()
    unusual_ones()
    model()
    errors()
    dist.destroy_process_group()
    print("done")


main()
