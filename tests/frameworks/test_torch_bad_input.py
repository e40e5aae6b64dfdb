"""What a program may hand to the back end by mistake: a sentence before anything is sent, and the group goes on."""

from __future__ import annotations

import pytest
from test_amldist_backend import run

# Each call of torch.distributed on one tensor, as `call(tensor, group)`; several list the tensor as one of many.
CALLS = """
many = lambda t: [t] * size
CALLS = {
    "all_reduce": lambda t, g=None: dist.all_reduce(t, group=g),
    "broadcast": lambda t, g=None: dist.broadcast(t, 0, group=g),
    "reduce": lambda t, g=None: dist.reduce(t, 0, group=g),
    "all_gather": lambda t, g=None: dist.all_gather(many(torch.zeros_like(good)), t, group=g),
    "all_gather, outputs": lambda t, g=None: dist.all_gather(many(t), good, group=g),
    "all_gather_into_tensor": lambda t, g=None: dist.all_gather_into_tensor(torch.cat(many(good)), t, group=g),
    "gather": lambda t, g=None: dist.gather(t, many(torch.zeros_like(good)) if rank == 0 else None, 0, group=g),
    "gather, outputs": lambda t, g=None: dist.gather(good, many(t) if rank == 0 else None, 0, group=g),
    "scatter": lambda t, g=None: dist.scatter(t, many(good) if rank == 0 else None, 0, group=g),
    "scatter, inputs": lambda t, g=None: dist.scatter(good, many(t) if rank == 0 else None, 0, group=g),
    "reduce_scatter": lambda t, g=None: dist.reduce_scatter(t, many(good), group=g),
    "reduce_scatter, inputs": lambda t, g=None: dist.reduce_scatter(torch.zeros_like(good), many(t), group=g),
    "reduce_scatter_tensor": lambda t, g=None: dist.reduce_scatter_tensor(torch.zeros_like(good), torch.cat(many(t)), group=g),
    "all_to_all": lambda t, g=None: dist.all_to_all(many(torch.zeros_like(good)), many(t), group=g),
    "all_to_all, outputs": lambda t, g=None: dist.all_to_all(many(t), many(good), group=g),
    "all_to_all_single": lambda t, g=None: dist.all_to_all_single(torch.cat(many(good)), torch.cat(many(t)), group=g),
    "send": lambda t, g=None: dist.send(t, 1 - rank, group=g),
    "recv": lambda t, g=None: dist.recv(t, 1 - rank, group=g),
}
"""
ONLY_ON_THE_ROOT = '("gather, outputs", "scatter, inputs")'

TENSORS = {
    "of another device": ("torch.ones(2, device='meta')", "lies on meta: use cpu or cuda"),
    "sparse": ("torch.sparse_coo_tensor([[0]], [1.0], (2,), check_invariants=True)", "sparse tensors are not accepted here"),
    "sparse in rows": ("torch.ones(1, 2).to_sparse_csr()", "sparse tensors are"),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_a_tensor_that_no_call_can_take_is_refused_before_anything_is_sent(kind):
    """Also in a list, where the call went out and its result was lost."""
    made, words = TENSORS[kind]
    run(f"""
        start(timeout=20)
        bad, good = {made}, torch.ones(2)
        if bad.dim() == 2: good = torch.ones(1, 2)
        {CALLS.replace(chr(10), chr(10) + ' ' * 8)}
        for name, call in CALLS.items():
            if bad.layout is torch.sparse_coo and name == "all_reduce": continue     # which adds them
            if bad.layout is torch.sparse_csr and name in ("reduce_scatter_tensor", "all_to_all_single"): continue     # torch.cat() refuses them
            if name in {ONLY_ON_THE_ROOT} and rank != 0: continue
            error = raises(lambda: call(bad), RuntimeError)
            assert {words!r} in str(error) and str(error).startswith("amldist: ") and type(error) is not amldist.torch.BackendError, (name, error)
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x.item() == size
        print("fine")
    """)


def test_tensors_without_elements_pass_through_every_call():
    run(f"""
        start(timeout=20)
        good = torch.ones(0)
        {CALLS.replace(chr(10), chr(10) + ' ' * 8)}
        for good in (torch.ones(0), torch.ones(0, 3), torch.ones(3, 0), torch.ones(0, dtype=torch.complex64), torch.ones(0, dtype=torch.bool)):
            for name, call in CALLS.items():
                if name in ("send", "recv"): continue
                if good.dtype is torch.bool and name.startswith("reduce"): continue
                call(good.clone())
            dist.send(good, 1) if rank == 0 else dist.recv(good, 0)
        dist.barrier()
        dist.all_to_all([torch.zeros(rank * s) for s in range(size)], [torch.ones(rank * s) for s in range(size)])     # none for some
        print("fine")
    """)


def test_complex_numbers_that_are_conjugated_when_they_are_read_are_added_as_shown():
    """The sum was written to a copy that nobody saw."""
    run("""
        start()
        def shown(numbers): return torch.tensor(numbers).conj()          # the memory holds the other sign
        given = shown([1 + 2j * (rank + 1)] * 2)
        dist.reduce(given, 0)
        if rank == 0: assert given.is_conj() and given.tolist() == [size - 1j * size * (size + 1)] * 2, given
        output = shown([0j, 0j])
        dist.reduce_scatter_tensor(output, shown([1j] * 2 * size))
        assert output.tolist() == [-1j * size] * 2, output
        output = shown([0j, 0j])
        dist.reduce_scatter(output, [shown([1j * r] * 2) for r in range(size)])
        assert output.tolist() == [-1j * size * rank] * 2, output
        negated = torch._neg_view(torch.full((2,), 1 + 1j))
        dist.reduce(negated, 1)
        if rank == 1: assert negated.tolist() == [-size - 1j * size] * 2, negated
        print("fine")
    """)


def test_what_is_written_in_several_places_is_refused_in_every_call_that_takes_a_list():
    run("""
        start(timeout=20)
        import torch._C._distributed_c10d as c10d
        part, wide = dist.group.WORLD._get_backend(torch.device("cpu")), torch.ones(1).expand(2)
        for call in (lambda: part.allreduce_coalesced([wide, wide], c10d.AllreduceCoalescedOptions()), lambda: part.allreduce([wide, wide]),
                     lambda: part.broadcast([wide, wide]), lambda: dist.all_gather([wide] * size, torch.ones(2)),
                     lambda: part.allgather([[wide] * 2 * size] * 2, [torch.ones(2)] * 2)):
            raises(call, RuntimeError, "shows one element in several places and cannot be written")
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x.item() == size
        print("fine")
    """)


def test_a_scalar_has_no_rows_to_be_divided():
    """It was left as it is, without a word."""
    run("""
        start(timeout=20)
        raises(lambda: dist.all_to_all_single(torch.zeros(()), torch.ones(())), RuntimeError, "all_to_all_single", "no rows")
        print("fine")
    """)


def test_mixed_types_within_a_rank_and_between_ranks():
    run("""
        start(timeout=20)
        ints, floats = torch.ones(2, dtype=torch.int32), torch.ones(2)
        part = dist.group.WORLD._get_backend(torch.device("cpu"))
        import torch._C._distributed_c10d as c10d
        calls = [lambda: dist.all_gather([ints, floats], floats), lambda: dist.gather(floats, [floats, ints] if rank == 0 else None) if rank == 0 else raises_nothing(),
                 lambda: dist.reduce_scatter(floats, [floats, ints]), lambda: dist.all_to_all([floats, ints], [floats, floats]),
                 lambda: dist.all_gather_into_tensor(torch.ones(4, dtype=torch.int32), floats), lambda: dist.reduce_scatter_tensor(ints, torch.ones(4)),
                 lambda: dist.all_to_all_single(ints, floats), lambda: part.allreduce_coalesced([ints, floats], c10d.AllreduceCoalescedOptions()),
                 lambda: part.allgather([[ints, floats]], [floats])]
        def raises_nothing(): raise ValueError("dtypes")
        for number, call in enumerate(calls):
            error = raises(call, Exception)
            assert "type" in str(error) and not isinstance(error, dist.DistBackendError), (number, error)
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x.item() == size
        group = dist.new_group()
        raises(lambda: dist.all_reduce(ints if rank else floats, group=group), dist.DistBackendError, "(2 float32, 8 bytes)", "(2 int32, 8 bytes)")
        print("fine")
    """)


def test_numbers_of_messages_that_are_out_of_range_are_refused():
    """2**32 + 5 was cut to 5, and matched a message with that tag."""
    run("""
        start(timeout=20)
        x, other = torch.ones(1), 1 - rank
        for tag in (2**31, 2**32 + 5, -(2**32) + 5, 2**64):
            for call in (lambda: dist.isend(x, other, tag=tag), lambda: dist.irecv(x, other, tag=tag), lambda: dist.recv(x, tag=tag)):
                raises(call, RuntimeError, f"the tag {tag} is out of range")
        raises(lambda: dist.isend(x, other, tag=-1), RuntimeError, "the tag -1 is negative")
        raises(lambda: dist.isend(x, other, tag=1.5), TypeError)
        for peer in (2**32 + other, 2, 7, -3):
            raises(lambda: dist.group.WORLD.send([x], peer, 0), RuntimeError, f"peer {peer} is")
        for root in (2, 7, -1): raises(lambda: dist.broadcast(x, root), Exception, str(root))
        works = [dist.isend(x + rank, other, tag=2**31 - 1), dist.irecv(x, other, tag=2**31 - 1)]
        for work in works: work.wait()
        assert x.item() == 1 + other
        print("fine")
    """)


def test_a_time_limit_of_years_is_taken():
    """The library counts milliseconds in 31 bits."""
    run("""
        years = timedelta(days=10000)
        dist.init_process_group("amldist", timeout=years)
        group = dist.new_group(timeout=years)
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        group.set_timeout(years * 2)
        work = dist.all_reduce(x, group=group, async_op=True)
        work.wait(years)
        options = dist.AllreduceOptions()
        options.timeout = years
        dist.group.WORLD.allreduce([x], options).wait()
        monitored_barrier(timeout=years)
        assert x.item() == size**3
        print("fine")
    """)


def test_a_factor_is_applied_to_tensors_of_the_inference_mode():
    run("""
        start()
        with torch.inference_mode(): x, parts = torch.ones(2), torch.ones(2 * size)
        dist.all_reduce(x, dist._make_nccl_premul_sum(2.0))
        assert x.tolist() == [2 * size] * 2
        dist.reduce(x, 0, dist._make_nccl_premul_sum(0.5))
        assert rank or x.tolist() == [size * size] * 2
        print("fine")
    """)


def test_a_group_may_be_destroyed_while_calls_run():
    run("""
        import threading
        start(timeout=20)
        gone = "the process group was destroyed"
        for trial in range(20):
            group, told = dist.new_group(timeout=timedelta(seconds=10)), []
            def work_on():
                try:
                    while True: group.allreduce([torch.ones(8)]).wait()
                except RuntimeError as error: told.append(error)
            thread = threading.Thread(target=work_on)
            thread.start()
            time.sleep(0.002 * trial)
            dist.destroy_process_group(group)
            thread.join(15)
            assert not thread.is_alive() and told, trial
            # What was refused here, or what the other rank had not called any more.
            assert gone in str(told[0]) or isinstance(told[0], dist.DistBackendError), told
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x.item() == size
        print("fine")
    """)


def test_a_group_that_was_destroyed_says_so():
    run("""
        start(timeout=20)
        group = dist.new_group()
        part, x = group._get_backend(torch.device("cpu")), torch.ones(2)
        pending = dist.all_reduce(x, group=group, async_op=True)
        dist.destroy_process_group(group)
        pending.wait()
        assert x.tolist() == [size] * 2
        for call in (lambda: group.allreduce([x]), lambda: group.barrier(), lambda: part.send([x], 1 - rank, 0), lambda: part.recv([x], 1 - rank, 0),
                     lambda: part.monitored_barrier()):
            raises(call, dist.DistBackendError, "the process group was destroyed")
        part.abort(); part.shutdown(); group.set_timeout(timedelta(seconds=1))
        dist.barrier()
        print("fine")
    """)


def test_a_child_by_fork_is_told_whose_the_group_is_and_may_make_its_own():
    run("""
        start(timeout=20)
        group = dist.new_group()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                x, other = torch.ones(1), 1 - rank
                group.set_timeout(timedelta(seconds=5))
                for call in (lambda: dist.all_reduce(x, group=group), lambda: dist.barrier(group=group), lambda: dist.send(x, other, group=group),
                             lambda: dist.irecv(x, other, group=group), lambda: dist.broadcast(x, 0)):
                    raises(call, dist.DistBackendError, "only that process can use it")
                group.abort()
                dist.destroy_process_group(group)
                dist.destroy_process_group()
                os.environ["MASTER_PORT"], os.environ["WORLD_SIZE"], os.environ["RANK"] = str(free_port()), "1", "0"
                start()
                dist.all_reduce(x)
                dist.destroy_process_group()
                status = 0
            finally:
                sys.stdout.flush()
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        dist.all_reduce(x)
        assert x.item() == size * size
        print("fine")
    """)


def test_groups_of_two_back_ends_live_side_by_side():
    run("""
        start("gloo")
        ours, theirs = dist.new_group(backend="amldist"), dist.new_group(backend="gloo")
        assert (dist.get_backend(), dist.get_backend(ours), dist.get_backend(theirs)) == ("gloo", "amldist", "gloo")
        works, tensors = [], []
        for call in range(30):
            for group in (None, ours, theirs):
                tensors.append(torch.full((64,), float(call)))
                works.append(dist.all_reduce(tensors[-1], group=group, async_op=True))
        for work in works: work.wait()
        assert all(tensor.tolist() == [size * (number // 3)] * 64 for number, tensor in enumerate(tensors))
        dist.destroy_process_group(theirs)
        dist.barrier(group=ours)
        dist.destroy_process_group(ours)
        dist.barrier()
        dist.destroy_process_group()
        start(init_method=f"tcp://127.0.0.1:{int(os.environ['MASTER_PORT']) + 1}", rank=rank, world_size=size)
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x.item() == size
        print("fine")
    """)


LIES = {
    "another release": ("b'9.9.9 ' + value[6:]", "uses libamldist 9.9.9"),
    "nothing": ("b''", "libamldist"),
    "garbage": ("bytes(range(256)) * 3", "libamldist"),
    "too much": ("value + b'x' * 100000", ""),
    "half": ("value[: len(value) // 2]", ""),
    "text": ("value.split(b' ')[0] + b' no address at all'", ""),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_store_that_lies_is_an_error_and_no_hang(lie):
    told, words = LIES[lie]
    run(f"""
        begin = time.monotonic()
        store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size, rank == 0, timedelta(seconds=20))
        class Liar(dist.Store):
            def set(self, key, value): store.set(key, value)
            def wait(self, keys, timeout): store.wait(keys, timeout)
            def delete_key(self, key): return False
            def get(self, key):
                value = bytes(store.get(key))
                return value if rank == 0 else {told}
        def join(): amldist.torch._engine.Engine(Liar(), rank, size, timedelta(seconds=5), "x")
        error = raises(join, Exception)
        if rank == 1:
            assert {words!r} in str(error) and len(str(error)) > 20, error
        assert time.monotonic() - begin < 20
        print(type(error), error)
        store.set(f"done {{rank}}", "")
        store.wait([f"done {{r}}" for r in range(size)])
        print("fine")
    """)


def test_more_than_2_to_the_31_elements():
    """8 GiB for a moment: skipped where these are not free."""
    free = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemAvailable"))
    if free < 14 << 20:
        pytest.skip(f"{free >> 20} GiB of memory are free: 14 are needed")
    run("""
        start(timeout=120)
        many = 2**31 + 3
        x = torch.full((many,), rank + 1, dtype=torch.uint8)
        dist.all_reduce(x)
        def ends(wanted): assert [x[at].item() for at in (0, 1, 2**31 - 1, 2**31, many - 1)] == [wanted] * 5 and x.numel() == many
        ends(3)
        x.fill_(rank + 7)
        dist.broadcast(x, 1)
        ends(8)
        x.fill_(rank)
        if rank == 0: dist.send(x, 1)
        else: dist.recv(x, 0)
        ends(0)
        half = 2**30 + 1
        part = x[rank * half : (rank + 1) * half].fill_(rank + 4)
        dist.all_gather_into_tensor(x[: 2 * half], part)
        assert [x[at].item() for at in (0, half - 1, half, 2 * half - 1)] == [4, 4, 5, 5]
        print("fine")
    """, AMLDIST_TEST_LIMIT="200")
