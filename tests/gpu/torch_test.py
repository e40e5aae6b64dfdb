#!/usr/bin/env python3
"""tests/gpu/torch_test.py [--ranks N] [--case CASE...] [--speed]: the package amldist on the GPUs of this machine.

Needs a Python with PyTorch and CUDA; AMLDIST_LIBRARY names libamldist, PYTHONPATH the package, where it is not installed
(tests/gpu/run sets both). Ranks are processes; with fewer GPUs than ranks they share them, over sockets. Results are
compared with plain arithmetic on the host. --speed prints what a call takes beside NCCL, Gloo and the way through host
memory. exit status: 0 all passed, 1 not, 77 skipped: PyTorch is not there, or sees no GPU
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from datetime import timedelta

CASES = ("operations", "host", "barrier", "training", "hooks", "sharded", "groups", "stopped", "late", "gone", "other", "unheard")
FAILING = ("stopped", "late", "gone", "other", "unheard")
LIMIT_S = 150


# ---- one rank ----


def share_gpus(torch) -> None:
    """NCCL takes two ranks on one GPU if they seem to be on two hosts."""
    rank, gpus = int(os.environ["RANK"]), torch.cuda.device_count()
    if gpus < int(os.environ["WORLD_SIZE"]):
        os.environ.update(NCCL_HOSTID=f"rank{rank}", NCCL_MULTI_RANK_GPU_ENABLE="1")
    torch.cuda.set_device(rank % gpus)


def check_operations(torch, dist) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    gpu = torch.device("cuda", torch.cuda.current_device())

    def given(of: int, count: int, dtype):
        return ((torch.arange(count) + of * 5) % 7 + 1).to(dtype)

    def same(got, wanted, what) -> None:
        assert got.is_cuda and torch.equal(got.cpu(), wanted.to(got.dtype)), (what, got, wanted)

    types = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int8, torch.uint8, torch.int16]
    for async_op in (False, True):
        def done(work) -> None:
            if async_op:
                assert work.wait()

        for dtype in types:
            for count in (1, 1001):
                every = torch.stack([given(r, count, torch.int64) for r in range(size)])
                mine = given(rank, count, dtype).to(gpu)
                for op, wanted in ((dist.ReduceOp.SUM, every.sum(0)), (dist.ReduceOp.PRODUCT, every.prod(0)),
                                   (dist.ReduceOp.MAX, every.amax(0)), (dist.ReduceOp.MIN, every.amin(0))):
                    x = mine.clone()
                    done(dist.all_reduce(x, op, async_op=async_op))
                    same(x, wanted, ("all_reduce", dtype, op))
                    x = mine.clone()
                    done(dist.reduce(x, size - 1, op, async_op=async_op))
                    if rank == size - 1:
                        same(x, wanted, ("reduce", dtype, op))
                x = mine.clone()
                done(dist.broadcast(x, size - 1, async_op=async_op))
                same(x, every[size - 1], "broadcast")
                out = torch.zeros(size * count, dtype=dtype, device=gpu)
                done(dist.all_gather_into_tensor(out, mine, async_op=async_op))
                same(out, every.flatten(), "all_gather_into_tensor")
                outs = [torch.zeros_like(mine) for _ in range(size)]
                done(dist.all_gather(outs, mine, async_op=async_op))
                for r in range(size):
                    same(outs[r], every[r], "all_gather")
                outs = [torch.zeros_like(mine) for _ in range(size)]
                done(dist.gather(mine, outs if rank == 0 else None, 0, async_op=async_op))
                if rank == 0:
                    for r in range(size):
                        same(outs[r], every[r], "gather")
                out = torch.zeros_like(mine)
                done(dist.scatter(out, [given(r, count, dtype).to(gpu) for r in range(size)] if rank == 0 else None, 0, async_op=async_op))
                same(out, every[rank], "scatter")
                out = torch.zeros_like(mine)
                done(dist.reduce_scatter(out, [given(rank + r, count, dtype).to(gpu) for r in range(size)], async_op=async_op))
                same(out, sum(given(r + rank, count, torch.int64) for r in range(size)), "reduce_scatter")
                out = torch.zeros_like(mine)
                done(dist.reduce_scatter_tensor(out, torch.cat([mine] * size), async_op=async_op))
                same(out, every.sum(0), "reduce_scatter_tensor")
                out = torch.zeros(size * count, dtype=dtype, device=gpu)
                done(dist.all_to_all_single(out, torch.cat([given(rank + r, count, dtype) for r in range(size)]).to(gpu), async_op=async_op))
                same(out, torch.cat([given(r + rank, count, torch.int64) for r in range(size)]), "all_to_all_single")
        # uneven parts
        outs = [torch.zeros(r + 1, device=gpu) for r in range(size)]
        done(dist.all_gather(outs, torch.full((rank + 1,), float(rank), device=gpu), async_op=async_op))
        assert all(torch.equal(outs[r].cpu(), torch.full((r + 1,), float(r))) for r in range(size)), outs
        out = torch.zeros(rank + 1, device=gpu)
        done(dist.reduce_scatter(out, [torch.full((r + 1,), float(r), device=gpu) for r in range(size)], async_op=async_op))
        assert torch.equal(out.cpu(), torch.full((rank + 1,), float(size * rank))), out
        outs = [torch.zeros(r + 1, device=gpu) for r in range(size)]
        done(dist.all_to_all(outs, [torch.full((rank + 1,), float(rank), device=gpu) for _ in range(size)], async_op=async_op))
        assert all(torch.equal(outs[r].cpu(), torch.full((r + 1,), float(r))) for r in range(size)), outs
        x = torch.full((4,), float(rank + 1), device=gpu)
        done(dist.all_reduce(x, dist.ReduceOp.AVG, async_op=async_op))
        assert x[0].item() == (size + 1) / 2
        flags = torch.tensor([rank == 0, True, False], device=gpu)
        done(dist.all_reduce(flags, dist.ReduceOp.BOR, async_op=async_op))
        assert flags.tolist() == [True, True, False]
        bits = torch.tensor([1 << rank], device=gpu)
        done(dist.all_reduce(bits, dist.ReduceOp.BOR, async_op=async_op))
        assert bits.item() == (1 << size) - 1
        z = torch.complex(torch.ones(2), torch.full((2,), float(rank))).to(gpu)
        done(dist.all_reduce(z, async_op=async_op))
        assert z[0].imag.item() == size * (size - 1) / 2
    # the stream waits, not the program: what is computed before and after a call is in order
    x = torch.full((1 << 20,), float(rank), device=gpu)
    for _ in range(20):
        x = x * 1.0
        work = dist.all_reduce(x, async_op=True)
        y = torch.ones_like(x).mul_(2)
        work.wait()
        x = x / size + y - 2
    torch.cuda.synchronize()
    assert work.is_completed() and torch.allclose(x.cpu(), torch.full((1,), (size - 1) / 2))
    future = dist.all_reduce(torch.ones(2, device=gpu), async_op=True).get_future()
    assert future.then(lambda f: f.value()[0] + 1).wait()[0].item() == size + 1
    with dist._coalescing_manager(async_ops=True) as several:
        many = [torch.ones(2, device=gpu), torch.ones(3, device=gpu)]
        for tensor in many:
            dist.all_reduce(tensor)
    several.wait()
    assert all(bool((tensor == size).all()) for tensor in many)
    engine = dist.group.WORLD.engine
    assert (engine._gpu is None) == (os.environ.get("AMLDIST_TORCH_CUDA") == "host"), "the calls went another way than was asked for"
    # objects, messages, host tensors between, another stream
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "tensor": torch.ones(2)})
    assert [each["rank"] for each in objects] == list(range(size))
    got, sent = torch.zeros(1000, device=gpu), torch.full((1000,), float(rank), device=gpu)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, (rank - 1) % size), dist.P2POp(dist.isend, sent, (rank + 1) % size)]):
        work.wait()
    assert bool((got == (rank - 1) % size).all())
    mixed = torch.ones(3)
    dist.all_reduce(mixed)
    assert mixed.tolist() == [size] * 3
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.ones(1 << 18, device=gpu)
        dist.all_reduce(x)
        assert bool((x == size).all())
    with_gaps = torch.ones(4, 4, device=gpu)
    dist.all_reduce(with_gaps[:, ::2])
    assert with_gaps.tolist() == [[size, 1, size, 1]] * 4
    def shown():  # contiguous, and 2 * (rank + 1), although its memory holds another number
        return (torch.ones(1, device=gpu) - 2j * (rank + 1)).conj().imag

    assert shown().is_neg() and shown().item() == 2 * (rank + 1)
    out = torch.zeros(size, device=gpu)
    dist.all_gather_into_tensor(out, shown())
    assert out.tolist() == [2. * (r + 1) for r in range(size)]
    sparse = torch.sparse_coo_tensor([[rank, size]], [1.0, 2.0], (size + 1,)).to(gpu)
    dist.all_reduce(sparse)
    assert sparse.to_dense().tolist() == [1.0] * size + [2.0 * size]
    dist.barrier()
    try:
        dist.monitored_barrier()
    except ValueError as told:  # PyTorch's older releases offer it to Gloo alone
        assert "only implemented for GLOO" in str(told), told
    from torch.distributed import _functional_collectives as functional
    x = functional.all_reduce(torch.ones(5, device=gpu), "sum", dist.group.WORLD)
    assert (x + 0).tolist() == [size] * 5
    x = functional.all_gather_tensor(torch.full((2,), float(rank), device=gpu), 0, dist.group.WORLD)
    assert (x + 0).tolist() == [float(r) for r in range(size) for _ in range(2)]


def model_of(torch):
    torch.manual_seed(1)
    return torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh()) for _ in range(6)]).cuda()


def trained(torch, model, steps: int, rank: int) -> list[float]:
    generator = torch.Generator(device="cuda").manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        x = torch.randn(32, 256, device="cuda", generator=generator)
        loss = (model(x) - x.roll(1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_training(torch, dist) -> None:
    """DistributedDataParallel over amldist and over NCCL from one seed."""
    from torch.nn.parallel import DistributedDataParallel
    rank = dist.get_rank()
    curves = {}
    for name in ("amldist", "nccl"):
        group = dist.new_group(backend=name)
        wrapped = DistributedDataParallel(model_of(torch), device_ids=[torch.cuda.current_device()], process_group=group, bucket_cap_mb=0.5)
        curves[name] = trained(torch, wrapped, 10, rank)
        every = [parameter.detach().clone() for parameter in wrapped.parameters()]
        for parameter in every:
            least, most = parameter.clone(), parameter.clone()
            dist.all_reduce(least, dist.ReduceOp.MIN)
            dist.all_reduce(most, dist.ReduceOp.MAX)
            assert torch.equal(least, most), "the ranks' parameters differ"
    pairs = list(zip(curves["amldist"], curves["nccl"]))
    assert all(abs(a - b) <= 1e-5 * abs(b) for a, b in pairs) and all(a != b for a, b in zip(curves["amldist"], curves["amldist"][1:])), pairs
    if rank == 0:
        print(f"loss {pairs[0][0]:.6f} -> {pairs[-1][0]:.6f}; with NCCL {pairs[0][1]:.6f} -> {pairs[-1][1]:.6f}")


def check_barrier(torch, dist) -> None:
    """A barrier returns when the work that was given to the GPU before is done, in each way that it can be called."""
    options = torch._C._distributed_c10d.BarrierOptions()
    if hasattr(options, "asyncOp"):
        options.asyncOp = False
    spin = 1_000_000_000  # cycles: half a second
    dist.all_reduce(torch.ones(1, device="cuda"))
    for call in (dist.barrier, lambda: dist.group.WORLD.barrier(options).wait(), lambda: dist.barrier(async_op=True).wait()):
        torch.cuda.synchronize()
        torch.cuda._sleep(spin)
        done = torch.cuda.Event()
        done.record()
        assert not done.query(), "the GPU has to be busy still"
        call()
        assert done.query(), "the barrier did not wait for the GPU"


def check_hooks(torch, dist) -> None:
    """Communication hooks with several buckets: the ranks' parameters stay equal, and the numbers are NCCL's."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel
    for hook in ("fp16", "power"):
        curves = {}
        for name in ("amldist", "nccl"):
            group = dist.new_group(backend=name)
            wrapped = DistributedDataParallel(model_of(torch), device_ids=[torch.cuda.current_device()], process_group=group, bucket_cap_mb=0.3)
            if hook == "fp16":
                wrapped.register_comm_hook(group, default_hooks.fp16_compress_hook)
            else:
                state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=3)
                wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            curves[name] = trained(torch, wrapped, 10, dist.get_rank())
            for parameter in wrapped.parameters():
                least, most = parameter.detach().clone(), parameter.detach().clone()
                dist.all_reduce(least, dist.ReduceOp.MIN)
                dist.all_reduce(most, dist.ReduceOp.MAX)
                assert torch.equal(least, most), f"{hook}: the ranks' parameters differ over {name}"
        pairs = list(zip(curves["amldist"], curves["nccl"]))
        assert all(abs(a - b) <= 1e-3 * abs(b) for a, b in pairs), (hook, pairs)
        if dist.get_rank() == 0:
            print(f"{hook}: loss {pairs[0][0]:.6f} -> {pairs[-1][0]:.6f}; with NCCL {pairs[-1][1]:.6f}")


def check_sharded(torch, dist) -> None:
    """FSDP2 against the same model whole; DTensor."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cuda", (size,))
    sharded, whole = model_of(torch), model_of(torch)
    for layer in sharded:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    ours = trained(torch, sharded, 10, 0)  # all ranks see the same data: the mean of gradients is that of one
    alone = trained(torch, whole, 10, 0)
    assert all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(ours, alone)), (ours, alone)
    if rank == 0:
        print(f"loss {ours[0]:.6f} -> {ours[-1]:.6f}; unsharded {alone[0]:.6f} -> {alone[-1]:.6f}")
    full = torch.arange(size * 6, dtype=torch.float32).view(size * 2, 3).cuda()
    spread = distribute_tensor(full, mesh, [Shard(0)])
    assert torch.equal(spread.full_tensor(), full)
    assert torch.equal(spread.redistribute(mesh, [Replicate()]).to_local(), full)
    assert isinstance(spread, DTensor) and spread.sum().full_tensor().item() == full.sum().item()


def check_groups(torch, dist) -> None:
    """Groups with GPUs, made and destroyed."""
    for number in range(8):
        group = dist.new_group(backend="cpu:amldist,cuda:amldist", group_desc=f"part {number}")
        x = torch.ones(1000, device="cuda")
        dist.all_reduce(x, group=group)
        assert x[0].item() == dist.get_world_size()
        dist.destroy_process_group(group)
    print(torch.cuda.memory_allocated(), "bytes of the GPU still allocated by PyTorch")


def fail(torch, dist, how: str) -> None:
    """The last rank fails; the others raise a sentence that names it."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    x = torch.ones(1000, device="cuda")
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if rank == last:
        if how == "gone":
            os._exit(0)
        if how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if how == "other":
            dist.broadcast(x, 0)
            torch.cuda.synchronize()
        time.sleep(12)
        os._exit(0)
    began = time.monotonic()
    try:
        while how != "unheard":
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            torch.cuda.synchronize()  # ends when the watchdog ends the call
        dist.all_reduce(x)
        torch.cuda.synchronize()
        dist.destroy_process_group()  # no call comes any more that could say it
    except dist.DistBackendError as told:
        print(f"after {time.monotonic() - began:.1f} s: {type(told).__name__}: {told}")
        # Of two ranks that call different operations neither is in the majority.
        assert told.rank == (None if how == "other" and last == 1 else last) and f"rank {last}" in str(told), told
        assert how != "other" or "broadcast" in str(told), told
        assert time.monotonic() - began < 7
        return
    raise AssertionError("nothing was raised")


def time_calls(torch, dist) -> None:
    """Microseconds of an all-reduce: the program's part of a call that it does not wait for, and all of one that it does."""
    rank = dist.get_rank()
    groups = {"nccl": dist.new_group(backend="nccl"), "amldist": dist.new_group(backend="amldist"), "gloo": dist.new_group(backend="gloo")}
    groups["amldist, host"] = dist.new_group(backend="amldist")
    for name, group in groups.items():
        os.environ["AMLDIST_TORCH_CUDA"] = "host" if name == "amldist, host" else "nccl"  # the first call decides
        dist.all_reduce(torch.ones(1, device="cuda"), group=group)
    for size in (4, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26):
        x = torch.zeros(max(1, size // 4), device="cuda")
        taken = {name: ([], []) for name in groups}
        for turn in range(8):
            for name, group in groups.items():
                calls = 20 if size <= 1 << 20 else 3
                torch.cuda.synchronize()
                dist.barrier()
                began = time.perf_counter()
                works = [dist.all_reduce(x, group=group, async_op=True) for _ in range(calls)]
                begun = (time.perf_counter() - began) / calls * 1e6
                for work in works:
                    work.wait()
                torch.cuda.synchronize()
                dist.barrier()
                began = time.perf_counter()
                for _ in range(calls):
                    dist.all_reduce(x, group=group)
                    torch.cuda.synchronize()
                each = (time.perf_counter() - began) / calls * 1e6
                if turn:
                    taken[name][0].append(begun)
                    taken[name][1].append(each)
        if rank == 0:
            print(f"{size:>9} B  " + "  ".join(
                f"{name}: begun {statistics.median(a):.1f} ({min(a):.1f}), done {statistics.median(b):.1f} ({min(b):.1f})" for name, (a, b) in taken.items()))


def run_rank(case: str) -> int:
    import torch
    import torch.distributed as dist
    faulthandler.enable()
    if case == "host":
        os.environ["AMLDIST_TORCH_CUDA"] = "host"
    import amldist.torch  # noqa: F401 - older releases of PyTorch do not find it by themselves
    share_gpus(torch)
    limit = 3 if case in FAILING else 60
    device = torch.device("cuda", torch.cuda.current_device()) if case == "groups" else None
    dist.init_process_group("cpu:amldist,cuda:amldist", timeout=timedelta(seconds=limit), device_id=device)
    if case in FAILING:
        fail(torch, dist, case)
        os._exit(0)
    checks = {"operations": check_operations, "host": check_operations, "barrier": check_barrier,
              "training": check_training, "hooks": check_hooks, "sharded": check_sharded, "groups": check_groups, "speed": time_calls}
    checks[case](torch, dist)
    torch.cuda.synchronize()
    dist.destroy_process_group()
    return 0


# ---- all ranks ----


def run_case(case: str, ranks: int) -> bool:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    began = time.monotonic()
    processes = [subprocess.Popen(
        [sys.executable, __file__, "--rank-of", case], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}) for rank in range(ranks)]
    survivors = processes[:-1] if case in FAILING else processes
    outputs, good = [], True
    for process in survivors:
        try:
            outputs.append(process.communicate(timeout=max(1, LIMIT_S - (time.monotonic() - began)))[0])
        except subprocess.TimeoutExpired:
            outputs.append("HANGS")
        good &= process.returncode == 0
    for process in processes:
        process.kill()
        rest = process.communicate()[0]
        if process not in survivors and not good:
            outputs.append(rest or "")
    for rank, output in enumerate(outputs):
        for line in output.splitlines()[-25:] if not good else output.splitlines():
            print(f"gpu: torch {case}: rank {rank}: {line}")
    print(f"gpu: torch {case}: {'passed' if good else 'FAILED'} ({time.monotonic() - began:.0f} s)", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--case", nargs="*", default=list(CASES), choices=(*CASES, "speed"))
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        return run_rank(options.rank_of)
    seen = subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available(); print(torch.__version__, torch.cuda.get_device_name())"],
                          capture_output=True, text=True, check=False)
    if seen.returncode:
        print("gpu: torch: skipped: there is no PyTorch that sees a GPU")
        return 77
    print("gpu: PyTorch", seen.stdout.strip(), flush=True)
    failed = [case for case in [*options.case, *(["speed"] if options.speed else [])] if not run_case(case, options.ranks)]
    print("gpu: torch:", "failed: " + ", ".join(failed) if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
