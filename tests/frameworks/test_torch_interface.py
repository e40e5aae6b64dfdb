"""What c10d's interface has, its switches, and what errors say: as with Gloo, or one sentence that says why not."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT
from test_amldist_backend import run, run_some, skip_as

# What a class of ours takes as PyTorch has it: names, ranks and groups of the C++ half, and hooks that its dispatcher calls.
INTERFACE = """
from torch._C._distributed_c10d import Backend, ProcessGroup
start()
TAKEN = {"Options", "BackendType", "CUSTOM", "GLOO", "MPI", "NCCL", "UCC", "UNDEFINED", "XCCL", "rank", "size", "name", "bound_device_id", "boxed",
         "unbox", "_id", "_backend_id", "_get_backend_name", "_get_backend", "get_backend", "_register_backend", "_set_default_backend", "_device_types",
         "_has_hooks", "_set_group_name", "_set_group_desc", "_set_group_uid", "group_name", "group_desc", "get_group_store", "_start_coalescing",
         "_end_coalescing", "_add_ephemeral_timeout", "use_pg_for_symm_mem_rendezvous", "setUsePgForSymmMemRendezvous", "_pybind11_conduit_v1_"}
world = dist.group.WORLD
part = world._get_backend(torch.device("cpu"))
for base, ours in ((Backend, part), (ProcessGroup, world)):
    for name in dir(base):
        if name.startswith("__") or name in TAKEN: continue
        assert name in vars(type(ours)), f"{base.__name__}.{name} is new: what does it do over libdist?"
        if name.lstrip("_").startswith("supports_"):
            answer = getattr(ours, name)
            if callable(answer): answer = answer(0)
            assert answer is (name in ("supports_splitting", "supports_shrinking")), name
for names, sentence in amldist.torch._backend._REFUSED.items():
    for name in names:
        for ours in (part, world):
            if hasattr(type(ours), name) and name in vars(type(ours)):
                raises(lambda: getattr(ours, name)(), NotImplementedError, f"amldist: {name}: ", sentence)
functions = dist.distributed_c10d
for name in ("_supports_window", "_supports_reconfigure"):
    if hasattr(functions, name): assert getattr(functions, name)() is False
if hasattr(functions, "_time_estimator"): raises(lambda: functions._time_estimator().__enter__(), NotImplementedError)
print("fine")
"""


def test_each_part_of_the_interface_is_there_or_is_refused_in_a_sentence():
    run(INTERFACE)


SPLIT = """
need("split")
start()
alone = dist.split_group(None, [[0]])
if rank == 0:
    assert type(alone) is amldist.torch.AmldistGroup and dist.get_process_group_ranks(alone) == [0]
    work = dist.all_reduce(torch.ones(1), group=alone, async_op=True)
    work.wait()
    assert work.is_completed() and type(work) is amldist.torch._work.PendingWork
else: assert alone is dist.GroupMember.NON_GROUP_MEMBER
turned = dist.split_group(None, [[1, 0], [2]], group_desc="tp", timeout=timedelta(seconds=5))
assert turned.rank() == (0 if rank == 2 else 1 - rank) and turned.group_desc == "tp" and turned.engine.limit_s == 5
x = torch.full((2,), float(rank))
dist.all_reduce(x, group=turned)
assert x.tolist() == [2.0 if rank == 2 else 1.0] * 2
if rank != 2 and hasattr(dist, "shrink_group"):
    smaller = world = dist.group.WORLD._get_backend(torch.device("cpu")).shrink([2])
    smaller.allreduce([x]).wait()
    assert smaller.size() == 2 and x.tolist() == [2.0] * 2
dist.barrier()
dist.destroy_process_group()
print("fine")
"""


def test_a_split_group_is_one_of_libdist_and_other_ranks_are_in_none():
    run(SPLIT, 3)


def test_what_only_the_newest_releases_have():
    run("""
        start()
        functions = dist.distributed_c10d
        if hasattr(functions, "gather_single"):
            output = torch.zeros(2 * size, 3) if rank == 0 else None
            functions.gather_single(torch.full((3, 2), float(rank)).t(), output, 0)
            if rank == 0: assert output[:, 0].tolist() == [float(r) for r in range(size) for _ in range(2)], output
            output = torch.zeros(3, 2 * size).t() if rank == 0 else None     # lies in another order
            functions.gather_single(torch.full((2, 3), float(rank)), output, 0)
            if rank == 0: assert output[:, 2].tolist() == [float(r) for r in range(size) for _ in range(2)], output
            if rank == 0: raises(lambda: functions.gather_single(torch.ones(2, 3), torch.ones(5), 0), RuntimeError, "gather_single", "times as many")
        if hasattr(functions, "shrink_group") and amldist.torch._backend.PARTS:
            dist.barrier()
            if rank != 2:
                smaller, x = functions.shrink_group([2]), torch.ones(1)
                dist.all_reduce(x, group=smaller)
                assert smaller.size() == 2 and x.item() == 2
        print("fine")
        sys.stdout.flush()
        time.sleep(2)
        os._exit(0)
    """, 3)


def test_a_part_of_a_mixed_group_is_not_split():
    """PyTorch's C++ would use the back end of a rank that is in no part."""
    run("""
        need("parts")
        start("cpu:amldist,cuda:gloo")
        def split(): return dist.split_group(None, [[0]])
        if rank == 1: raises(split, RuntimeError, "split")     # PyTorch's own sentence, or libdist's where CUDA's back end is asked first
        else:
            try: split()
            except RuntimeError as error: assert "split" in str(error), error
        print("fine")
    """)


def test_however_a_call_is_said_it_has_the_same_work():
    run("""
        import torch._C._distributed_c10d as c10d
        import torch.distributed._functional_collectives as functional
        start()
        world, pending, x = dist.group.WORLD, amldist.torch._work.PendingWork, torch.ones(2)
        y, two = torch.ones(2 * size), torch.ones(2)
        begun = [getattr(world, name)(*arguments) for name, arguments in (
                     ("_allgather_base", (y, two, c10d.AllgatherOptions())), ("alltoall_base", (y, y.clone(), [], [], c10d.AllToAllOptions())),
                     ("_reduce_scatter_base", (two, y, c10d.ReduceScatterOptions())), ("allgather_into_tensor_coalesced", ([y], [two], c10d.AllgatherOptions())),
                     ("reduce_scatter_tensor_coalesced", ([two], [y], c10d.ReduceScatterOptions())))]
        assert all(isinstance(work, pending) and work.wait() for work in begun), begun
        begun = [dist.barrier(async_op=True), dist.all_reduce(x, async_op=True), world.allreduce([x]), world.allreduce(x), world.allreduce([x], dist.ReduceOp.SUM),
                 world.allreduce(tensors=[x], opts=c10d.AllreduceOptions()), world.barrier(), world.barrier(opts=c10d.BarrierOptions())]
        for work in begun:
            assert type(work) is pending, work
            work.wait()
            assert work.is_completed() and work.is_success()
        with dist._coalescing_manager(async_ops=True) as joined: dist.all_reduce(x); dist.all_reduce(x)
        assert all(isinstance(work, pending) for work in joined.works)
        joined.wait()
        assert functional.all_reduce(torch.ones(2), "sum", world).tolist() == [size] * 2
        seen = []
        if "hooks" not in LACKS:
            world.register_pre_hook(1, seen.append)     # now calls go through PyTorch's dispatcher
            work = dist.all_reduce(x, async_op=True)
            assert type(work) is pending and work.wait() and work.is_completed() and len(seen) == 1
            for name in ("all_to_all_single", "alltoall_base"):
                assert getattr(world, name)(y, y.clone(), [], [], c10d.AllToAllOptions()).wait()
            assert len(seen) == 3, seen
        print("fine")
    """)


def test_errors_of_a_subgroup_name_the_programs_ranks_the_host_and_the_group():
    outputs = run_some("""
        start(timeout=20)
        group = dist.new_group([1, 3, 2], group_desc="tp_2", timeout=timedelta(seconds=2))
        def call():
            if rank in (1, 2): dist.all_reduce(torch.ones(2), group=group)
        if rank in (1, 2):
            error = raises(call, dist.DistBackendError, "allreduce #1 (2 float32, 8 bytes): " + f"rank 3 (rank 2 of group 'tp_2') on {os.uname().nodename} has not called it")
            assert (error.rank, error.group_rank, error.operation) == (3, 2, "allreduce"), vars(error)
        else: time.sleep(4)
        dist.barrier()
        first = dist.new_group([0, 1], timeout=timedelta(seconds=2))
        def alone(): dist.barrier(group=first)
        if rank == 0: raises(alone, dist.DistBackendError, f"barrier #1: rank 1 (rank 1 of group 'torch {first.group_name}') on {os.uname().nodename} has not called it")
        if rank == 1: time.sleep(4)
        print("fine")
        sys.stdout.flush()
        os._exit(0)
    """, 4)
    assert all("fine" in output for output in outputs), outputs


def test_a_message_in_a_thread_comes_through_while_the_group_is_in_a_barrier():
    run("""
        import threading
        start(timeout=15)
        x, went = torch.full((4,), 1.0 + rank), time.monotonic()
        if rank == 0:
            thread = threading.Thread(target=lambda: (time.sleep(0.3), dist.send(x, 1)))
            thread.start()
            dist.barrier()
            thread.join()
        else:
            dist.recv(x, 0)
            dist.barrier()
        assert x.tolist() == [1.0] * 4 and time.monotonic() - went < 10
        groups = [dist.new_group(), dist.new_group()]
        sums = [torch.ones(1), torch.ones(1)]
        threads = [threading.Thread(target=dist.all_reduce, args=(one,), kwargs={"group": group}) for one, group in zip(sums, groups)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert [one.item() for one in sums] == [size] * 2
        print("fine")
    """)


def test_ctrl_c_ends_a_call_with_and_without_other_threads():
    run("""
        import threading
        start(timeout=30)
        def interrupt(*_): raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        for beside in (False, True):
            group, over = dist.new_group(), threading.Event()
            if beside: threading.Thread(target=over.wait).start()
            went = time.monotonic()
            if rank == 0:
                signal.setitimer(signal.ITIMER_REAL, 0.3)
                raises(lambda: dist.all_reduce(torch.ones(1), group=group), KeyboardInterrupt)
            else: time.sleep(1); raises(lambda: dist.all_reduce(torch.ones(1), group=group), dist.DistBackendError, "the program interrupted rank 0")
            assert time.monotonic() - went < 15
            over.set()
            dist.barrier()
        print("fine")
    """)


def test_a_store_that_is_gone_is_an_error_at_once():
    run("""
        store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size + 1, False, timedelta(seconds=30)) if rank < 2 else None
        if rank == 2:
            server = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size, True, timedelta(seconds=30), wait_for_workers=False)
            time.sleep(4)
            print("fine")
            sys.stdout.flush()
            os._exit(0)
        start(timeout=60, store=dist.PrefixStore("a", store), rank=rank, world_size=2)
        dist.barrier()
        time.sleep(5)
        went = time.monotonic()
        raises(dist.new_group, dist.DistBackendError, "the store through which the group's ranks find each other does not answer", "does the process that holds it still run?")
        assert time.monotonic() - went < 20, time.monotonic() - went
        print("fine")
        sys.stdout.flush()
        os._exit(0)
    """.replace("size + 1", "3"), 3)


def test_a_process_without_descriptors_says_so_at_once():
    run("""
        import resource
        start(timeout=60)
        dist.barrier()
        if rank == 1:
            now = len(os.listdir("/proc/self/fd"))
            resource.setrlimit(resource.RLIMIT_NOFILE, (now + 3, now + 3))
            went = time.monotonic()
            raises(dist.new_group, dist.DistBackendError, f"this process may open {now + 3} files (ulimit -Hn)", "raise the limit")
            assert time.monotonic() - went < 10
        print("fine")
        sys.stdout.flush()
        os._exit(0)
    """)


def test_two_releases_of_the_library_in_one_group_are_an_error_at_once():
    run("""
        import amldist._library
        if rank == 1: amldist._library.version = lambda: "0.9.9"
        went = time.monotonic()
        def begin(): start(timeout=60)
        if rank == 1:
            raises(begin, dist.DistBackendError, "rank 0 uses libamldist 0.2", "this rank 0.9.9", "install one release for all ranks")
            assert time.monotonic() - went < 20
        else:
            import threading
            threading.Thread(target=begin, daemon=True).start()
            time.sleep(10)
        print("fine")
        sys.stdout.flush()
        os._exit(0)
    """)


def test_each_of_several_sizes_is_told():
    run("""
        start(timeout=20)
        error = raises(lambda: dist.all_reduce(torch.ones(10 + rank)), dist.DistBackendError)
        if rank == 0: print(error)
        wanted = [f"rank {r} on {os.uname().nodename} called allreduce #1 ({10 + r} float32, {40 + 4 * r} bytes)" for r in range(size)]
        assert all(each in str(error) for each in wanted), str(error)
        print("fine")
        sys.stdout.flush()
        os._exit(0)
    """, 3)


def test_the_built_in_hook_for_half_precision_averages_gradients():
    run("""
        start()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
        for step in range(3):
            model.zero_grad()
            model(torch.full((1, 4), float(rank + 1))).sum().backward()
            assert model.module.weight.grad.tolist() == [[(1 + size) / 2] * 4] * 4, model.module.weight.grad
        print("fine")
    """)


def test_views_with_gaps_are_reduced_in_place():
    run("""
        start()
        grid = torch.arange(16.).view(4, 4)
        dist.all_reduce(grid[:, ::2])
        assert grid.equal(torch.arange(16.).view(4, 4) * torch.tensor([size, 1, size, 1])), grid
        grid = torch.full((4, 4), float(rank))
        dist.broadcast(grid[::2, ::2], 1)
        assert grid[::2, ::2].tolist() == [[1.0] * 2] * 2 and grid[1].tolist() == [rank] * 4
        dist.reduce(grid[1::2, 0], 0)
        assert grid[1, 0] == (1 if rank == 0 else rank)
        work = dist.all_reduce(grid.t()[0], async_op=True)
        work.wait()
        parts = torch.zeros(2 * size, 3)
        dist.all_gather(list(parts.chunk(size)), torch.full((2, 3), float(rank)))      # one after the other in memory
        assert parts[:, 0].tolist() == [float(r) for r in range(size) for _ in range(2)]
        dist.scatter(part := torch.zeros(3), list(torch.arange(3. * size).chunk(size)) if rank == 0 else None, 0)
        assert part.tolist() == [3. * rank, 3 * rank + 1, 3 * rank + 2]
        print("fine")
    """)


def test_a_process_does_not_wait_long_at_its_end_for_a_peer_that_stays():
    run("""
        start()
        dist.new_group()
        dist.barrier()
        if rank == 0:
            time.sleep(9)
            print("fine")
            sys.stdout.flush()
            os._exit(0)
        dist.destroy_process_group()
        went = time.monotonic()
        amldist.torch._engine._wait_for_finalizers()
        assert time.monotonic() - went < 5, time.monotonic() - went
        print("fine")
    """)


MONITORED = """
start(timeout=20)
monitored_barrier()
if rank in (1, 3): time.sleep(5)
elif rank == 0:
    error = raises(lambda: monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=WAITS), RuntimeError, WORDS)
    assert error.rank == 1 and error.host == os.uname().nodename, vars(error)
else: raises(lambda: monitored_barrier(timeout=timedelta(seconds=1)), RuntimeError, "[Rank 2]: Rank 2 successfully reached monitoredBarrier")
print("fine")
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize("waits, words", [(True, "Ranks 1, 3 failed to pass monitoredBarrier in 1000 ms"), (False, "Rank 1 failed to pass monitoredBarrier")])
def test_a_monitored_barrier_names_the_first_rank_that_has_not_come_or_all(waits, words):
    run(MONITORED.replace("WAITS", str(waits)).replace("WORDS", repr(words)), 4)


# The rows of the table in docs/pytorch.md: what is set, and a program that sees what it does over each back end.
SWITCHES = {
    "`TORCH_DIST_NAN_CHECK=1`": ({"TORCH_DIST_NAN_CHECK": "1"}, """
        need("NaN check")
        for waits in (False, True):
            raises(lambda: dist.all_reduce(torch.tensor([float("nan")]), async_op=waits), RuntimeError, "NaN found in input tensor")
        dist.all_reduce(torch.ones(1))
    """),
    "`TORCH_FR_BUFFER_SIZE=N`": ({"TORCH_FR_BUFFER_SIZE": "100"}, """
        need("recorder")
        import json
        dist.all_reduce(torch.ones(2))
        dist.broadcast(torch.ones(2), 0)
        told = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(backend=BACKEND))
        assert [call["profiling_name"] for call in told["entries"]] == [f"{BACKEND}:all_reduce", f"{BACKEND}:broadcast"], told
        assert told["entries"][0]["input_sizes"] == [[2]]
    """),
    "`register_pre_hook`, `register_post_hook`": ({}, """
        need("hooks")
        seen, world = [], dist.group.WORLD
        world.register_pre_hook(1, lambda call: seen.append(call.name.name))
        world.register_post_hook(1, lambda call: seen.append("after " + call.name.name))
        dist.all_reduce(torch.ones(2))
        dist.broadcast(torch.ones(2), 0)
        dist.all_gather_into_tensor(torch.ones(2 * size), torch.ones(2))
        dist.send(torch.ones(1), 1) if rank == 0 else dist.recv(torch.ones(1), 0)
        dist.barrier()
        wanted = ["ALLREDUCE", "BROADCAST", "ALLGATHER" if "names of hooks" in LACKS else "ALLGATHER_BASE", "SEND" if rank == 0 else "RECV", "BARRIER"]
        assert seen == [word for name in wanted for word in (name, "after " + name)], seen
        world.unregister_pre_hook(1)
        world.unregister_post_hook(1)
        dist.barrier()
        assert len(seen) == 10
    """),
    "profiler": ({}, """
        with torch.profiler.profile(record_shapes=True) as profile:
            work = dist.all_reduce(torch.ones(3), async_op=True)
            work.wait()
            dist.barrier()
        rows = {event.key: event.input_shapes for event in profile.key_averages(group_by_input_shape=True)}
        assert {"c10d::allreduce_", "c10d::barrier", f"{BACKEND}:all_reduce"} <= set(rows) and rows[f"{BACKEND}:all_reduce"] == [[3]], rows
    """),
    "`TORCH_DISTRIBUTED_DEBUG=DETAIL`": ({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, """
        dist.all_reduce(torch.ones(2))
        # Where PyTorch cannot compare calls over a back end in Python, the library itself tells them.
        words = "called allreduce #2 (2 float32, 8 bytes), rank 1" if BACKEND == "amldist" and "parts" in LACKS else "Detected mismatch between collectives on ranks"
        raises(lambda: dist.all_reduce(torch.ones(2 + rank)), RuntimeError, words)
    """),
    "sequence numbers": ({}, """
        world = dist.group.WORLD
        before = world._get_sequence_number_for_group()
        for call in range(3): dist.all_reduce(torch.ones(2))
        assert world._get_sequence_number_for_group() == before + 3
    """),
    "`monitored_barrier(wait_all_ranks=True)`": ({}, """
        if rank == 0: raises(lambda: monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True), RuntimeError, "Ranks 1 failed to pass monitoredBarrier")
        else: time.sleep(3)
    """),
    "`_enable_collectives_timing`": ({}, """
        dist.group.WORLD._enable_collectives_timing()
        dist.all_reduce(torch.ones(1))
    """),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["amldist", "gloo"])
@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_does_what_it_does_with_gloo(switch, backend):
    variables, program = SWITCHES[switch]
    lines = "\n".join(line.removeprefix("        ") for line in program.splitlines())
    outputs = run_some(f"BACKEND = {backend!r}\nstart(BACKEND, timeout=20)\n" + lines + "\nprint('fine')\nsys.stdout.flush()\nos._exit(0)\n", 2, **variables)
    skip_as(outputs)
    assert all(output.endswith("fine\n") for output in outputs), "\n".join(outputs)


def test_the_newest_release_lacks_nothing():
    """So that nothing is skipped on it."""
    run("""
        newest = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
        assert not LACKS or not newest, LACKS
        assert ("parts" in LACKS) != amldist.torch._backend.PARTS
        print("fine")
    """, 1)


def test_the_table_of_switches_has_a_row_for_each_of_these():
    page = (ROOT / "docs/pytorch.md").read_text()
    table = page[page.index("| switch | Gloo | amldist |"):].partition("\n\n")[0]
    rows = [re.match(r"\| (.*?) \|", line)[1] for line in table.splitlines()[2:]]
    assert sorted(rows) == sorted(SWITCHES), rows


def test_a_group_that_is_shut_down_twice_waits_for_its_calls():
    """PyTorch shuts down the back end of each device, which may be one for all."""
    run("""
        start()
        done = []
        class Call:
            def finish(self):
                time.sleep(0.5)
                done.append("call")
        library = amldist.torch._engine.lib
        finalize = library.amldist_finalize
        library.amldist_finalize = lambda handle: (done.append("end"), finalize(handle))
        engine = dist.group.WORLD.engine
        engine.pending.add(Call())
        engine.shutdown()
        engine.shutdown()
        for thread in list(amldist.torch._engine._finalizers): thread.join()
        assert done == ["call", "end"], done
        print("fine")
    """)
