"""What a call of torch.distributed leaves behind until it is done, and where tensors lie: works, futures, layouts, compilers."""

from __future__ import annotations

import subprocess

from conftest import need
from test_amldist_backend import PYTHON, environment, run


def test_data_that_is_cut_by_rows_may_lie_in_another_order():
    run("""
        start()
        def transposed(tensor): return tensor.t().contiguous().t()
        rows = transposed(torch.arange(6.).view(2, 3) + 10 * rank)
        wanted = torch.cat([torch.arange(6.).view(2, 3) + 10 * r for r in range(size)])
        for output in (torch.zeros(2 * size, 3), transposed(torch.zeros(2 * size, 3))):
            dist.all_gather_into_tensor(output, rows)
            assert output.equal(wanted), output
        for output in (torch.zeros(2, 3), transposed(torch.zeros(2, 3))):
            dist.reduce_scatter_tensor(output, transposed(wanted))
            assert output.equal(size * wanted[2 * rank : 2 * rank + 2]), output
            dist.all_to_all_single(transposed(output), transposed(torch.ones(2, 3)))
        output = transposed(torch.zeros(size, 3))
        dist.all_to_all_single(output, transposed(torch.arange(3.).repeat(size, 1) + 10 * rank))
        assert output.equal(torch.arange(3.) + 10 * torch.arange(float(size)).view(size, 1)), output
        print("fine")
        """)


def test_what_one_rank_writes_and_others_read_may_lie_in_another_order():
    """The one took the elements as they lie, the others as PyTorch counts them."""
    run("""
        start()
        def transposed(tensor): return tensor.t().contiguous().t()
        def plain(tensor): return tensor.clone()
        for of_root in (transposed, plain):
            for of_others in (transposed, plain):
                lay = of_root if rank == 0 else of_others
                given = lay(torch.arange(6.).view(2, 3) + 10 * rank)
                dist.reduce(given, 0)
                if rank == 0: assert given.equal(size * torch.arange(6.).view(2, 3) + 10), given
                if rank == 0: dist.send(lay(torch.arange(6.).view(2, 3)), 1)
                else:
                    got = lay(torch.zeros(2, 3))
                    dist.recv(got, 0)
                    assert got.equal(torch.arange(6.).view(2, 3)), got
        print("fine")
        """)


def test_inputs_that_are_copied_anyway_need_not_be_dense():
    """Such as the gradient of a sum, one number that is shown many times. Gloo takes most of them."""
    run("""
        start()
        wanted = [float(size)] * 2
        for given in (torch.ones(1).expand(2 * size), torch.ones(4 * size)[::2]):
            assert not given.is_contiguous()
            output, every, part = torch.zeros(2 * size), torch.zeros(2 * size * size), torch.zeros(2)
            dist.all_gather_into_tensor(every, given)
            dist.all_to_all_single(output, given)
            assert every.tolist() == [1] * 2 * size * size and output.tolist() == [1] * 2 * size, (every, output)
            dist.reduce_scatter_tensor(part, given)
            assert part.tolist() == wanted, part
            dist.reduce_scatter_tensor(part, given, async_op=True).wait()
            assert part.tolist() == wanted, part
            gaps = torch.zeros(4 * size * size)[::2]
            dist.all_gather_into_tensor(gaps, given)
            assert gaps.tolist() == [1] * 2 * size * size, gaps
        print("fine")
        """)


def test_a_callback_may_begin_a_call_and_wait_for_its_future():
    run("""
        start()
        one, other = torch.ones(2), torch.ones(2)
        def again(future): return dist.all_reduce(other, async_op=True).get_future().wait()[0]
        def twice(future): return dist.all_reduce(one, async_op=True).get_future().then(again).wait()
        assert dist.all_reduce(one, async_op=True).get_future().then(twice).wait().tolist() == [size] * 2
        from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(40, 40) for _ in range(4)]))
        model.register_comm_hook(PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook)
        for step in range(5): model(torch.rand(4, 40)).sum().backward()
        print("fine")
        """)


def test_calls_of_callbacks_and_of_a_backward_pass_come_in_one_order():
    """Ranks that took turns in another order added up what did not belong together."""
    run("""
        start()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(20, 20) for _ in range(8)]), bucket_cap_mb=0.002)
        told = []
        def average(_state, bucket):
            def tell(number, wait):
                time.sleep(0.01 * wait)
                told.append((number, torch.full((8,), float(number))))
                dist.all_reduce(told[-1][1])
            index = bucket.index()
            tell(100 + index, 1 - rank)
            def again(future):
                tell(200 + index, rank)
                mine = torch.full((8,), 300. + index)
                told.append((300 + index, dist.all_reduce(mine, async_op=True).get_future().wait()[0]))
                return future.value()[0] / size
            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(again)
        average.__annotations__.clear()
        model.register_comm_hook(None, average)
        for step in range(3):
            model.zero_grad()
            model(torch.full((1, 20), float(rank))).sum().backward()
        assert all(got.tolist() == [size * number] * 8 for number, got in told), told
        assert len({number for number, _got in told}) >= 9, "too few buckets"
        assert not amldist.torch._waiter.works_with_futures
        print("fine")
        """)


def test_a_hook_that_calls_from_callbacks_trains_one_model():
    run("""
        start()
        from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
        torch.manual_seed(3)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(40, 40) for _ in range(8)]), bucket_cap_mb=0.01)
        model.register_comm_hook(PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(12):
            optimizer.zero_grad()
            (model(torch.rand(4, 40) + rank) - 1).square().mean().backward()
            optimizer.step()
        for weight in model.parameters():
            every = [torch.empty_like(weight) for _ in range(size)]
            dist.all_gather(every, weight.detach())
            assert all(one.equal(weight) for one in every)
        print("fine")
        """)


def test_a_world_may_follow_another_of_its_name_in_one_store():
    """As when torchrun starts the processes again: its store lives on, and a rank may come before rank 0 has said where it is."""
    run("""
        port = int(os.environ["MASTER_PORT"])
        store = dist.TCPStore("127.0.0.1", port, size, rank == 0, timedelta(seconds=30))
        for attempt in range(3):
            if attempt == 1 and rank == 0: time.sleep(1)
            start(store=store, rank=rank, world_size=size, timeout=8)
            tensor = torch.ones(1)
            dist.all_reduce(tensor)
            assert tensor.item() == size
            dist.destroy_process_group()
        store.set(f"end {rank}", "")
        store.wait([f"end {r}" for r in range(size)])
        print("fine")
        """)


RESTARTED = """
import os, signal, time
from datetime import timedelta
import torch, torch.distributed as dist
import amldist.torch
from amldist.torch import _engine

rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if attempt == 0:
    if rank: time.sleep(60)
    tell = _engine._TorchStore.set
    def tell_and_die(self, key, value):
        tell(self, key, value)
        os.kill(os.getpid(), signal.SIGKILL)
    _engine._TorchStore.set = tell_and_die
elif rank == 0: time.sleep(1)
dist.init_process_group("amldist", timeout=timedelta(seconds=20))
one = torch.ones(1)
dist.all_reduce(one)
assert one.item() == 3
dist.destroy_process_group()
open(f"fine {rank} {attempt}", "w").close()
"""


def test_torchrun_starts_the_ranks_again_after_rank_0_was_killed_while_they_met(tmp_path):
    """It leaves its address in the store, where those that come next find it."""
    need("torch")
    (tmp_path / "program.py").write_text(RESTARTED)
    done = subprocess.run([PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "--max-restarts", "1", "program.py"],
                          env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert sorted(file.name for file in tmp_path.glob("fine *")) == [f"fine {rank} 1" for rank in range(3)]


def test_a_call_that_is_done_keeps_no_tensor():
    run("""
        import gc, weakref
        start()
        gone = []
        for call in range(4):
            tensor = torch.ones(1000)
            weakref.finalize(tensor, gone.append, call)
            dist.all_reduce(tensor, async_op=True).wait()
            del tensor
        gc.collect()
        assert gone == [0, 1, 2, 3], gone
        print("fine")
        """)


def test_messages_that_are_waited_for_at_once_are_made_in_the_callers_thread():
    run("""
        from amldist.torch import _engine
        start()
        starting = dict(_engine._STARTING)
        _engine._STARTING.clear()
        given, got = torch.arange(6.).view(2, 3) + rank, torch.zeros(3, 2).t()
        for _ in range(3):
            dist.send(given, 1 - rank) if rank == 0 else dist.recv(got, 1 - rank)
            dist.recv(got, 1 - rank) if rank == 0 else dist.send(given, 1 - rank)
        assert got.equal(torch.arange(6.).view(2, 3) + 1 - rank), got
        _engine._STARTING.update(starting)
        work = dist.isend(given, 1 - rank)
        assert dist.recv(got) == 1 - rank
        work.wait()
        print("fine")
        """)


def test_several_calls_as_one_are_asked_without_waiting():
    run("""
        import time
        start()
        given, outputs = torch.ones(2), [torch.zeros(2 * size) for _ in range(2)]
        if rank == 1: time.sleep(1)
        with dist._coalescing_manager(async_ops=True) as joined:
            for output in outputs: dist.all_gather_into_tensor(output, given)
        if rank == 0:
            assert not joined.works[0].is_completed()
            raises(lambda: joined.works[0].wait(timedelta(seconds=0.1)), dist.DistBackendError, "not complete after 0.1 s")
        joined.works[0].wait()
        assert joined.works[0].is_completed() and outputs[1].tolist() == [1] * 2 * size
        print("fine")
        """)


def test_tensors_of_the_inference_mode_may_be_filled_by_another_thread():
    run("""
        start()
        with torch.inference_mode():
            parts = [torch.zeros(2) for _ in range(size)]
            future = dist.all_gather(parts, torch.ones(2) + rank, async_op=True).get_future()
        assert [part.tolist() for part in future.wait()] == [[r + 1] * 2 for r in range(size)]
        print("fine")
        """)


def test_views_that_are_negated_when_they_are_read_are_sent_as_they_are_shown():
    """Their memory holds other numbers, which the other ranks got."""
    run("""
        start()
        def shown(): return (torch.ones(1) - 2j * (rank + 1)).conj().imag     # contiguous, and 2 * (rank + 1)
        wanted = [2. * (r + 1) for r in range(size)]
        assert shown().is_neg() and shown().is_contiguous() and shown().tolist() == wanted[rank : rank + 1]
        output, parts = torch.zeros(size), [torch.zeros(1) for _ in range(size)]
        dist.all_gather_into_tensor(output, shown())
        dist.all_gather(parts, shown())
        assert output.tolist() == wanted == torch.cat(parts).tolist(), (output, parts)
        dist.gather(shown(), parts if rank == 0 else None)
        assert torch.cat(parts).tolist() == wanted
        dist.all_to_all_single(output, torch._neg_view(torch.full((size,), -2. * (rank + 1))))
        assert output.tolist() == wanted, output
        total = torch.zeros(1)
        dist.reduce_scatter_tensor(total, torch._neg_view(torch.full((size,), -1.)))
        assert total.item() == size
        negated = torch._neg_view(torch.zeros(size))
        dist.all_gather_into_tensor(negated, shown())
        assert negated.tolist() == wanted, negated
        if rank == 0: dist.send(shown(), 1)
        else: dist.recv(total, 0); assert total.item() == 2
        both = shown()
        dist.all_reduce(both)
        assert both.tolist() == [sum(wanted)]
        other = shown()
        dist.broadcast(other, 1)
        assert other.tolist() == wanted[1:2]
        if rank == 0: dist.send(other, 1)
        else: dist.recv(other, 0); assert other.tolist() == wanted[1:2]
        print("fine")
        """)


def test_complex_numbers_are_added_by_every_reduction():
    run("""
        start()
        total, both = sum(range(size)), torch.complex64
        given = torch.full((3,), 1 + 1j * rank, dtype=both)
        dist.reduce(given, 0)
        assert rank or given.tolist() == [size + 1j * total] * 3, given
        output = torch.zeros(2, dtype=both)
        dist.reduce_scatter_tensor(output, torch.full((2 * size,), 1 + 1j * rank, dtype=both))
        assert output.tolist() == [size + 1j * total] * 2, output
        dist.reduce_scatter(output, [torch.full((2,), 1j * r, dtype=both) for r in range(size)], op=dist.ReduceOp.AVG)
        assert output.tolist() == [1j * rank] * 2, output
        raises(lambda: dist.reduce(given, 0, op=dist.ReduceOp.MAX), RuntimeError, "complex64", "cannot be reduced")
        print("fine")
        """)


def test_a_barrier_waits_for_the_gpu():
    run("""
        start()
        class Gpu:
            drained = 0
            def drain(self): self.drained += 1
        engine, gpu = dist.group.WORLD.engine, Gpu()
        engine._gpu = gpu
        dist.barrier()
        options = torch._C._distributed_c10d.BarrierOptions()
        if hasattr(options, "asyncOp"): options.asyncOp = False
        dist.group.WORLD.barrier(options).wait()
        engine._gpu = None
        assert gpu.drained == 2, gpu.drained
        dist.group.WORLD.barrier(options).wait()
        print("fine")
        """)


def test_the_compiler_leaves_calls_that_it_does_not_know_to_python():
    run("""
        start()
        def step(tensor):
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            if rank == 0: dist.send(tensor, 1)
            else: dist.recv(tensor, 0)
            dist.broadcast(tensor, 0)
            return tensor + 1
        assert torch.compile(step, backend="aot_eager")(torch.ones(4)).tolist() == [size + 1] * 4
        print("fine")
        """)


def test_a_functional_call_on_several_tensors_may_be_waited_for_by_each():
    """PyTorch before 2.9 keeps only C++'s half of the work, and waits by it once for each tensor."""
    run("""
        import gc
        import torch.distributed._functional_collectives as functional
        start()
        world = dist.group.WORLD
        def one(count, value): return torch.full((count,), float(value))
        def values(tensors): gc.collect(); return [tensor.tolist() for tensor in tensors]
        assert values(functional.all_reduce_coalesced([one(2, 1), one(3, rank)], "sum", world)) == [[size] * 2, [1] * 3]
        assert values(functional.all_gather_into_tensor_coalesced([one(1, rank), one(1, 5)], world)) == [[0, 1], [5, 5]]
        both = functional.reduce_scatter_tensor_coalesced([one(size, 1), one(2 * size, 2)], "sum", [0, 0], world)
        assert values(both) == [[size], [2 * size] * 2]
        with dist._coalescing_manager(async_ops=True) as joined:
            for tensor in (one(2, 1), one(3, 1)): dist.all_reduce(tensor)
        joined.wait()
        works = amldist.torch._work
        assert not [work for work in works.GroupWork._unwaited.values() if isinstance(work, works.PendingWork)]
        print("fine")
        """, AMLDIST_TEST_LIMIT="30")
