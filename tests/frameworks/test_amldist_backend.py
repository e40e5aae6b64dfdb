"""libdist as a back end of torch.distributed: real processes of PyTorch on this machine, results beside Gloo's.

Needs the frameworks' environment (tests/frameworks/install), no cluster. PyTorch's own tests over it: upstream.py.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import textwrap

import pytest
from conftest import ROOT, VENV, need

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = pathlib.Path(os.environ.get("AMLDIST_LIBRARY", ROOT / "build-development/lib/libamldist.so"))
PYTHON = VENV / "bin/python"


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PMI", "OMPI_", "AMLDIST_"))}
    return kept | {"PYTHONPATH": str(ROOT / "libdist/api/python"), "AMLDIST_LIBRARY": str(LIBRARY), "OMP_NUM_THREADS": "1",
                   "PYTHONDONTWRITEBYTECODE": "1"} | more


def run(program: str, size: int = 2, **more: str) -> list[str]:
    """What each rank printed; each has to print "fine" last. Skips the test where all say that this PyTorch lacks what it is about."""
    outputs = run_some(program, size, **more)
    skip_as(outputs)
    assert all(output.endswith("fine\n") for output in outputs), "\n".join(outputs)
    return outputs


def torch_version() -> str:
    return next(importlib.metadata.distributions(name="torch", path=map(str, VENV.glob("lib/python3*/site-packages")))).version


def skip_as(outputs: list[str]) -> None:
    if all(output.startswith("skipped: ") for output in outputs):
        pytest.skip(outputs[0].removeprefix("skipped: ").strip())


def run_some(program: str, size: int, **more: str) -> list[str]:
    need("torch")
    text = textwrap.dedent(program)
    done = subprocess.run([PYTHON, HERE / "torch_ranks.py", str(size), text], env=environment(**more),
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


EVERY_CALL = """
start()
gloo = dist.new_group(backend="gloo")
def both(call, *inputs):
    '''The same call over both back ends, on copies of the same tensors.'''
    for async_op in (False, True):
        results = []
        for group in (None, gloo):
            copies = [[t.clone() for t in i] if isinstance(i, list) else i.clone() for i in inputs]
            try: work = call(*copies, group=group, async_op=async_op)
            except RuntimeError as error:
                if group is None or "does not support" not in str(error): raise
                break     # an older PyTorch's Gloo lacks some
            if async_op: work.wait()
            results.append(copies)
        for ours, theirs in zip(*results) if len(results) == 2 else []:
            for a, b in zip(ours, theirs) if isinstance(ours, list) else [(ours, theirs)]:
                assert a.dtype == b.dtype and torch.equal(a, b), (call, a, b)
torch.manual_seed(rank)
for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.int8, torch.uint8):
    x = torch.randint(1, 5, (3, 4)).to(dtype)
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
        both(lambda t, **k: dist.all_reduce(t, op, **k), x)
        both(lambda t, **k: dist.reduce(t, 1, op, **k), x) if rank == 1 else [
            dist.reduce(x.clone(), 1, op, group=g, async_op=a) and None for a in (False, True) for g in (None, gloo)]
    if not dtype.is_floating_point:
        for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
            both(lambda t, **k: dist.all_reduce(t, op, **k), x)
    both(lambda t, **k: dist.broadcast(t, size - 1, **k), x)
    both(lambda out, t, **k: dist.all_gather(out, t, **k), [torch.zeros_like(x) for _ in range(size)], x)
    both(lambda out, t, **k: dist.all_gather_into_tensor(out, t, **k), torch.zeros(size * 3, 4).to(dtype), x)
    both(lambda out, t, **k: dist.gather(t, out if rank == 0 else None, 0, **k), [torch.zeros_like(x) for _ in range(size)], x)
    both(lambda out, t, **k: dist.scatter(out, t if rank == 1 else None, 1, **k), x, [x + i for i in range(size)])
    both(lambda out, t, **k: dist.reduce_scatter(out, t, **k), torch.zeros_like(x), [x + i for i in range(size)])
    both(lambda out, t, **k: dist.reduce_scatter_tensor(out, t, **k), torch.zeros_like(x), torch.cat([x] * size))
    both(lambda out, t, **k: dist.all_to_all_single(out, t, **k), torch.zeros(2 * size, 2).to(dtype), torch.arange(4 * size).view(2 * size, 2).to(dtype) + rank)
    ins = [rank + 1] * size
    outs = list(range(1, size + 1))
    both(lambda out, t, **k: dist.all_to_all_single(out, t, outs, ins, **k), torch.zeros(sum(outs), 2).to(dtype), torch.arange(2 * sum(ins)).view(-1, 2).to(dtype))
# What Gloo has not.
x = torch.full((4,), float(rank + 1))
dist.all_reduce(x, dist.ReduceOp.AVG); assert x[0] == (size + 1) / 2
for dtype in (torch.bfloat16, torch.float16):
    x = torch.full((4,), rank + 1, dtype=dtype); dist.all_reduce(x); assert x[0] == size * (size + 1) / 2
flags = torch.tensor([rank == 0, True, False])
dist.all_reduce(flags, dist.ReduceOp.BOR); assert flags.tolist() == [True, True, False]
dist.all_reduce(flags, dist.ReduceOp.MIN); assert flags.tolist() == [True, True, False]
out = [torch.zeros(i + 1) for i in range(size)]
dist.all_gather(out, torch.full((rank + 1,), float(rank))); assert all((t == i).all() for i, t in enumerate(out))
out = torch.zeros(rank + 1)
dist.reduce_scatter(out, [torch.full((i + 1,), float(i)) for i in range(size)]); assert (out == size * rank).all()
outs = [torch.zeros(i + 1) for i in range(size)]
dist.all_to_all(outs, [torch.full((rank + 1,), float(rank)) for _ in range(size)]); assert all((t == i).all() for i, t in enumerate(outs))
x = torch.complex(torch.ones(2), torch.full((2,), float(rank))); dist.all_reduce(x); assert x[0].imag == size * (size - 1) / 2
x = torch.ones(3, dtype=torch.complex64); y = [torch.zeros_like(x) for _ in range(size)]; dist.all_gather(y, x)
s = torch.sparse_coo_tensor([[rank, 5]], [1.0, 2.0], (8,)); dist.all_reduce(s)
assert s.to_dense()[5] == 2 * size and s.to_dense()[rank] == 1
# Objects, messages, batches, barriers.
objects = [None] * size; dist.all_gather_object(objects, {"rank": rank}); assert objects == [{"rank": i} for i in range(size)]
one = ["from 0" if rank == 0 else None]; dist.broadcast_object_list(one, 0); assert one == ["from 0"]
right, left = (rank + 1) % size, (rank - 1) % size
got = torch.zeros(5)
works = [dist.isend(torch.full((5,), float(rank)), right), dist.irecv(got, left)]
for work in works: work.wait(); assert work.is_completed()
assert (got == left).all()
for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, right), dist.P2POp(dist.isend, torch.full((5,), -1.0), left)]): work.wait()
assert (got == -1).all()
if rank == 0: dist.send(torch.arange(3), 1)
if rank == 1: m = torch.zeros(3, dtype=torch.int64); assert dist.recv(m, 0) == 0 and m[2] == 2
monitored_barrier()
dist.barrier(); dist.barrier(async_op=True).wait(); dist.barrier(device_ids=[0])
future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
assert future.then(lambda f: f.value()[0] + 1).wait()[0] == size + 1
with dist._coalescing_manager(async_ops=True) as cm:
    many = [torch.ones(2), torch.ones(3)]
    for t in many: dist.all_reduce(t)
cm.wait()
assert all((t == size).all() for t in many)
wholes, parts = [torch.zeros(size), torch.zeros(2 * size)], [torch.full((1,), float(rank)), torch.ones(2)]
with dist._coalescing_manager(async_ops=True) as cm:
    for whole, part in zip(wholes, parts): dist.all_gather_into_tensor(whole, part)
cm.wait()
assert wholes[0].tolist() == list(range(size)) and wholes[1].tolist() == [1] * 2 * size
with dist._coalescing_manager(async_ops=True) as cm:
    for whole, part in zip(wholes, parts): dist.reduce_scatter_tensor(part, whole)
cm.wait()
assert parts[0].item() == size * rank and parts[1].tolist() == [size] * 2
dist.destroy_process_group()
print("fine")
"""
# Everything that makes calls go through PyTorch's dispatcher, where there is a way (docs/pytorch.md, Switches).
WATCHED = {
    "hook": "need('hooks')\ndist.group.WORLD.register_pre_hook(1, lambda call: None)",
    "profiler": "torch.profiler.profile().__enter__()",
}


@pytest.mark.parametrize("size", [2, 4])
def test_every_call_gives_what_gloo_gives(size):
    run(EVERY_CALL, size)


@pytest.mark.parametrize("watcher", WATCHED)
def test_every_call_gives_the_same_while_it_is_watched(watcher):
    """all_to_all_single called itself for ever."""
    run(EVERY_CALL.replace("start()\n", f"start()\n{WATCHED[watcher]}\n", 1))


def test_the_bench_measures_it_beside_gloo():
    need("torch")
    done = subprocess.run([ROOT / "build-development/bin/aml-dist", "bench", "--ranks", "2", "--peer", f"torch={PYTHON}", "--peer",
                           f"gloo={PYTHON}", "--max", "64K", "--factor", "1024", "--json"],
                          env=environment(PYTHONPATH=str(ROOT / "libdist/api/python")), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["peer"] for row in rows} == {"amldist", "torch", "gloo"} and all(row["wrong"] == 0 for row in rows), rows


def test_the_recorder_knows_the_names_of_groups(tmp_path):
    outputs = run("""
        import subprocess
        start()
        groups = [dist.group.WORLD, dist.new_group(group_desc="dp"), dist.new_group()]
        for group in groups: dist.all_reduce(torch.ones(4), group=group)
        dist.barrier()
        if rank == 0:
            for folder in sorted(os.listdir(os.environ["AMLDIST_TRACE_DIR"])):
                shown = subprocess.run([os.environ["TOOL"], "trace", os.environ["AMLDIST_TRACE_DIR"] + "/" + folder, "--json"],
                                       capture_output=True, text=True)
                found = json.loads(shown.stdout)
                print([one["name"] for each in found["recorders"] for one in each["communicators"]])
        dist.barrier()
        for group in reversed(groups): dist.destroy_process_group(group)
        print("fine")
    """, AMLDIST_TRACE_DIR=str(tmp_path), TOOL=str(ROOT / "build-development/bin/aml-dist"))
    names = sorted(line for line in outputs[0].splitlines() if line.startswith("["))
    assert len(names) == 3 and "['dp', 'dp']" in names and "['world', 'world']" in names, names
    assert any(name.startswith("['torch ") for name in names), names


def test_the_recorder_knows_the_calls_by_pytorchs_names(tmp_path):
    """The forms of one operation share its name, because that is what the ranks must agree on."""
    outputs = run("""
        import subprocess
        start()
        x, two = torch.ones(4), torch.ones(8)
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        dist.reduce(x, 0)
        dist.all_gather_into_tensor(two, x)
        dist.all_gather([torch.empty(4), torch.empty(4)], x)
        dist.all_gather([torch.empty(4), torch.empty(2)], torch.ones(2 if rank else 4))
        dist.reduce_scatter_tensor(x, two)
        dist.all_to_all_single(two, torch.ones(8))
        dist.gather(x, [torch.empty(4), torch.empty(4)] if rank == 0 else None)
        dist.scatter(x, [torch.ones(4), torch.ones(4)] if rank == 0 else None)
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        if rank == 0:
            (folder,) = os.listdir(os.environ["AMLDIST_TRACE_DIR"])
            shown = subprocess.run([os.environ["TOOL"], "trace", os.environ["AMLDIST_TRACE_DIR"] + "/" + folder, "--json"],
                                   capture_output=True, text=True)
            print("calls", *[call["operation"] for call in json.loads(shown.stdout)["recorders"][0]["calls"]])
        dist.barrier()
        dist.destroy_process_group()
        print("fine")
    """, AMLDIST_TRACE_DIR=str(tmp_path), TOOL=str(ROOT / "build-development/bin/aml-dist"))
    (calls,) = [line.split()[1:] for line in outputs[0].splitlines() if line.startswith("calls ")]
    wanted = ["allreduce", "broadcast", "reduce", "allgather", "allgather", "allgatherv", "reduce_scatter", "alltoallv", "gather", "scatter",
              "send"]
    assert [call for call in calls if call not in ("init", "split")] == wanted, calls


def test_messages_with_tags_and_from_any_rank():
    run("""
        start()
        if rank == 0:
            works = [dist.isend(torch.full((3,), float(tag)), 1, tag=tag) for tag in (1, 2, 3)]
            for work in works: work.wait()
        elif rank == 1:
            for tag in (3, 1, 2):
                x = torch.zeros(3)
                assert dist.recv(x, 0, tag=tag) == 0 and x[0] == tag, (tag, x)
        if rank: dist.send(torch.full((2,), float(rank)), 0)
        else:
            seen = set()
            for _ in range(size - 1):
                x = torch.zeros(2)
                source = dist.recv(x)
                assert x[0] == source
                seen.add(source)
            assert seen == set(range(1, size)), seen
        dist.destroy_process_group()
        print("fine")
    """, 4)


def test_a_part_of_a_group_beside_another_back_end():
    run("""
        if "parts" in LACKS: raises(lambda: start("cpu:amldist,cuda:gloo"), ValueError, "accepts no back end in Python for one device of a group")
        need("parts")
        start("cpu:amldist,cuda:gloo")
        assert isinstance(dist.group.WORLD._get_backend(torch.device("cpu")), amldist.torch.AmldistBackend)
        x = torch.ones(3); dist.all_reduce(x); assert x[0] == size
        w = dist.all_reduce(x, async_op=True); w.wait(); assert x[0] == size * size
        o = [None] * size; dist.all_gather_object(o, rank); assert o == list(range(size))
        dist.destroy_process_group()
        start("cpu:amldist,cuda:amldist", init_method="tcp://127.0.0.1:" + str(int(os.environ["MASTER_PORT"]) + 1), rank=rank, world_size=size)
        assert isinstance(dist.group.WORLD, amldist.torch.AmldistGroup)
        x = torch.ones(3); dist.all_reduce(x); assert x[0] == size
        dist.destroy_process_group()
        print("fine")
    """)


def test_groups_within_groups():
    run("""
        start()
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        mine = pairs[rank // 2]
        x = torch.tensor([float(rank)]); dist.all_reduce(x, group=mine); assert x[0] == (1 if rank < 2 else 5)
        mine.set_timeout(timedelta(seconds=20))
        for pair in pairs if rank % 2 else reversed(pairs):      # each rank in its own order
            if pair is mine: dist.destroy_process_group(pair)
        dist.barrier()
        dist.destroy_process_group()
        print("fine")
    """, 4)


TRAINING = """
def train(backend, in_library=False, **options):
    start(backend, init_method=f"tcp://127.0.0.1:{int(os.environ['MASTER_PORT']) + train.count}", rank=rank, world_size=size)
    train.count += 1
    if backend == "gloo": train.kept = dist.group.WORLD     # its end, with Python's lock, may wait for ever for its thread, which wants the lock
    torch.manual_seed(5)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)], torch.nn.Tanh())
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.02, **options)
    if in_library: amldist.torch.use_library_memory(model)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-3), []
    torch.manual_seed(100 + rank)
    for step in range(12):
        optimizer.zero_grad()
        loss = (model(torch.randn(16, 64)) - 0.3).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    first = weights.clone(); dist.broadcast(first, 0); assert torch.equal(first, weights)
    dist.barrier()
    dist.destroy_process_group()
    assert all(p.grad.isfinite().all() for p in model.parameters())     # they are the program's own, and stay
    return losses, weights
train.count = 1
(ours, w1), (again, w2), (theirs, w3) = train("amldist"), train("amldist"), train("gloo")
assert ours == again and torch.equal(w1, w2), "not the same bits twice"
assert torch.allclose(torch.tensor(ours), torch.tensor(theirs), rtol=1e-4), (ours, theirs)
assert torch.allclose(w1, w3, atol=1e-4) and ours[-1] < ours[0]
print("fine")
"""


@pytest.mark.parametrize("size", [2, 4])
def test_one_model_from_one_seed_as_with_gloo_and_the_same_bits_twice(size):
    run(TRAINING, size)


def test_fsdp2_dtensor_and_functional_collectives():
    run("""
        start()
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        import torch.distributed._functional_collectives as functional
        mesh = init_device_mesh("cpu", (size,))
        whole = torch.arange(float(8 * size)).view(2 * size, 4)
        sharded = distribute_tensor(whole, mesh, [Shard(0)])
        assert torch.equal((sharded @ sharded.redistribute(mesh, [Replicate()]).T).full_tensor(), whole @ whole.T)
        assert torch.equal(sharded.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
        assert sharded.sum().full_tensor() == whole.sum()
        assert torch.equal(functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD), torch.full((3,), float(size)))
        assert functional.all_gather_tensor(torch.full((2,), rank), 0, dist.group.WORLD).tolist() == [i for i in range(size) for _ in range(2)]
        assert torch.equal(functional.reduce_scatter_tensor(torch.ones(2 * size), "sum", 0, dist.group.WORLD), torch.full((2,), float(size)))
        if torch.__version__.startswith("2.6."):    # its FSDP2 needs a GPU
            print("fine")
            sys.exit(0)
        torch.manual_seed(3)
        model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)])
        plain = [p.detach().clone() for p in model.parameters()]
        for layer in model: fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        assert all(torch.equal(p.full_tensor(), q) for p, q in zip(model.parameters(), plain))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for step in range(5):
            optimizer.zero_grad()
            loss = model(torch.ones(4, 32)).square().mean()
            loss.backward(); optimizer.step(); losses.append(loss.item())
        assert losses[-1] < losses[0]
        dist.barrier()
        dist.destroy_process_group()
        print("fine")
    """, 4)


UNDER_DDP = """
start(timeout=60)      # a busy machine takes its time to start
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)]), bucket_cap_mb=0.02)
if {in_library}: amldist.torch.use_library_memory(model)
dist.group.WORLD.set_timeout(timedelta(seconds={timeout}))
wrong, bad_step = {wrong}, {step}
try:
    for step in range(1000):
        if step == bad_step:
            began = time.monotonic()
            if rank == wrong:
                {deed}
        model(torch.randn(4, 64)).square().mean().backward()
        for p in model.parameters(): p.grad = None
except dist.DistBackendError as error:
    took = time.monotonic() - began
    assert type(error) is amldist.torch.BackendError
    assert error.rank == wrong and f"rank {{wrong}} (" in str(error) and error.host and error.operation, (error.rank, str(error))
    assert took < {timeout} + 1 + 2, took      # a second by contract, two for a busy machine
    print(error)
    print("fine")
os._exit(0)
"""
DEEDS = {
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "late": "time.sleep(60)",
    "wrong": "dist.all_gather_into_tensor(torch.zeros(size), torch.zeros(1))",
}


def trial(deed: str, wrong: int, step: int, size: int = 4, in_library: bool = False) -> None:
    """One rank does something bad in a training by DistributedDataParallel; every other one names it, and ends."""
    program = UNDER_DDP.format(deed=DEEDS[deed], wrong=wrong, step=step, in_library=in_library, timeout=5 if deed in ("stopped", "late") else 30)
    outputs = run_some(program, size, AMLDIST_TEST_STOPPED=str(wrong))
    good = [rank for rank, output in enumerate(outputs) if output.endswith("fine\n")]
    assert set(good) >= set(range(size)) - {wrong}, "\n".join(outputs)


@pytest.mark.parametrize("deed", DEEDS)
def test_a_bad_rank_under_ddp_is_named_by_every_other(deed):
    trial(deed, wrong=2, step=3)


def test_timeouts_of_a_group_of_a_call_and_of_a_wait():
    run("""
        start(timeout=60)
        group = dist.new_group(timeout=timedelta(seconds=1))
        if rank == 0:
            began = time.monotonic()
            error = raises(lambda: dist.all_reduce(torch.ones(1), group=group), dist.DistBackendError, "rank 1", "timeout")
            assert 0.5 < time.monotonic() - began < 4 and error.rank == 1
            work = dist.all_reduce(torch.ones(1), async_op=True)
            raises(lambda: work.wait(timedelta(seconds=0.3)), dist.DistBackendError, "goes on")
        else:
            time.sleep(3)
            work = dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()
        if rank == 0: raises(lambda: monitored_barrier(timeout=timedelta(seconds=1)), RuntimeError, "rank 1")
        else: time.sleep(2)
        print("fine")
        os._exit(0)
    """)


def test_abort_from_another_thread_and_ctrl_c():
    run("""
        import threading
        start()
        group, other = dist.new_group(), dist.new_group()
        if rank == 0:
            threading.Timer(0.5, group.abort).start()
            raises(lambda: dist.all_reduce(torch.ones(1), group=group), dist.DistBackendError)
            threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            began = time.monotonic()
            raises(lambda: dist.all_reduce(torch.ones(1), group=other), KeyboardInterrupt)
            assert time.monotonic() - began < 0.5 + 0.2 + 1
        else: time.sleep(2)
        dist.barrier()
        print("fine")
        os._exit(0)
    """)


def test_bad_input_gets_an_exception_and_the_group_goes_on():
    run("""
        start()
        two = torch.ones(2)
        cases = [
            (lambda: dist.all_reduce(torch.ones(1).expand(4)), "shows one element in several places"),
            (lambda: dist.all_reduce(torch.ones(2, dtype=torch.complex64), dist.ReduceOp.MAX), "complex"),
            (lambda: dist.group.WORLD.allreduce([torch.ones(2, dtype=torch.complex64)], dist.AllreduceOptions()), "view_as_real"),
            (lambda: dist.all_reduce(two.to("meta")), "meta"),
            (lambda: dist.broadcast(torch.sparse_coo_tensor([[0]], [1.0], (2,)), 0), "sparse"),
            (lambda: dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (2,)), dist.ReduceOp.MAX), "sparse"),
            (lambda: dist.all_gather_into_tensor(torch.ones(3), two), "times as many"),
            (lambda: dist.all_gather_into_tensor(torch.ones(4, dtype=torch.int32), two), "types must be equal"),
            (lambda: dist.all_gather([two], two), "one for each rank"),
            (lambda: dist.reduce_scatter_tensor(two, torch.ones(3)), "times as many"),
            (lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3)), "multiple"),
            (lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4), [1, 1], [2, 2]), "split sizes"),
            (lambda: dist.all_reduce(torch.ones(2, dtype=torch.float8_e5m2)), "float8"),
        ]
        for call, words in cases:
            raises(call, Exception, words)
        x = torch.ones(2); dist.all_reduce(x); assert x[0] == size
        raises(lambda: dist.new_group(timeout=timedelta(seconds=-1)), Exception)
        child = os.fork()
        if child == 0:
            try: dist.all_reduce(torch.ones(1))
            except Exception: os._exit(0)
            os._exit(3)
        assert os.waitpid(child, 0)[1] == 0
        loader = torch.utils.data.DataLoader(torch.arange(8), batch_size=2, num_workers=2)
        assert sum(int(b.sum()) for b in loader) == 28
        dist.all_reduce(x)
        print("fine")      # and no destroy_process_group()
    """)


def test_other_sizes_on_other_ranks_are_an_error_and_no_hang():
    run("""
        start(timeout=10)
        raises(lambda: dist.all_reduce(torch.ones(2 + rank)), dist.DistBackendError, "rank")
        print("fine")
        os._exit(0)
    """)


def test_a_store_that_dies_is_an_error():
    run("""
        class Broken(dist.Store):
            def set(self, key, value): raise RuntimeError("the store is gone")
            def get(self, key): raise RuntimeError("the store is gone")
            def wait(self, keys, timeout=None): raise RuntimeError("the store is gone")
        raises(lambda: amldist.torch._engine.Engine(Broken(), rank, size, timedelta(seconds=5), "x"), RuntimeError, "gone")
        print("fine")
    """)


def test_a_thousand_groups_leave_nothing_behind():
    run("""
        import threading
        start()
        def count():
            return (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")),
                    sum("amldist" in line for line in open("/proc/self/maps")), len([n for n in os.listdir("/dev/shm") if "amldist" in n]))
        def one():
            group = dist.new_group()
            dist.all_reduce(torch.ones(4), group=group)
            dist.destroy_process_group(group)
        for _ in range(20): one()
        def settled():
            for _ in range(100):
                if not amldist.torch._engine._finalizers: break
                time.sleep(0.05)
            time.sleep(1.5)
            return count()
        before = settled()
        for _ in range(1000): one()
        dist.barrier()
        after = settled()
        assert all(a <= b + 2 for a, b in zip(after, before)), (before, after)
        dist.destroy_process_group()
        print("fine")
    """, AMLDIST_TEST_LIMIT="240")


def test_pytorch_finds_it_by_its_entry_point(tmp_path):
    run("need('entry point'); print('fine')")
    done = subprocess.run(["cmake", "-S", ROOT / "libdist/api/python", "-B", tmp_path / "b", "-DAMLDIST_PYTHON_LINK=OFF",
                           "-DAMLDIST_PYTHON_FOLDER=packages"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    subprocess.run(["cmake", "--build", tmp_path / "b"], check=True, capture_output=True)
    subprocess.run(["cmake", "--install", tmp_path / "b", "--prefix", tmp_path], check=True, capture_output=True)
    run("""
        start()
        x = torch.ones(1); dist.all_reduce(x); assert x[0] == size
        dist.destroy_process_group()
        print("fine")
    """, PYTHONPATH=str(tmp_path / "packages"), AMLDIST_TEST_ENTRY_POINT="1")


def site_for(examples) -> dict[str, str]:
    """A copy of the package with its library that every node of the cluster sees, and the variables for it."""
    site = examples.folder / "site"
    shutil.copytree(ROOT / "libdist/api/python/amldist", site / "amldist", ignore=shutil.ignore_patterns("__pycache__", "*.so*"))
    shutil.copy(LIBRARY, site / "amldist/libamldist.so.0")
    for path in (site, *site.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}


def entry_point(examples) -> None:
    information = examples.folder / "site/amldist-0.1.0.dist-info"
    information.mkdir()
    information.chmod(0o755)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: amldist\nVersion: 0.1.0\n")
    (information / "entry_points.txt").write_text("[torch.distributed.backends]\namldist = amldist.torch:register\n")


def test_the_example_trains_under_slurm_on_four_nodes(examples):
    need("torch")
    variables = site_for(examples)
    entry_point(examples)
    state, output = examples.submit("pytorch/train_amldist.sbatch", "--nodes=4 --ntasks-per-node=1", env=variables)
    assert state == "COMPLETED", output
    assert "4 processes, amldist on cpu" in output and "wanted: 4): good" in output, output


def test_under_the_plugin_strangers_are_kept_out_although_the_store_has_no_secret(examples):
    need("torch")
    variables = site_for(examples)
    program = ("import torch, torch.distributed as d, amldist.torch; d.init_process_group('amldist'); t = torch.ones(1);"
               "d.all_reduce(t); print('sum', t.item(), d.group.WORLD.engine.comm.provenance, flush=True); d.destroy_process_group()")
    done = examples.cluster.run(f"timeout 120 srun -N2 -n2 --aml-dist=pytorch python3 -c {shlex.quote(program)}",
                                env=examples.environment() | variables)
    assert done.status == 0 and done.out.count("sum 2.0") == 2 and done.out.count("authenticated") == 2, str(done)


def test_pytorch_s_own_tests_pass():
    """All that Gloo passes (upstream.md)."""
    need("torch", "expecttest")
    done = subprocess.run([PYTHON, HERE / "upstream.py", "-v"], env=environment(BACKEND="amldist", WORLD_SIZE="3"),
                          capture_output=True, text=True, timeout=1800, check=False)
    import re

    failed = set(re.findall(r"^(?:ERROR|FAIL): (test_\w+)", done.stderr, re.MULTILINE))
    ran = re.search(r"Ran (\d+) tests", done.stderr)
    assert ran and int(ran[1]) > 200, done.stderr[-3000:]
    if torch_version().startswith("2.12."):
        failed -= {"test_barrier_timeout_arg"}  # newer releases skip it on Linux: it fails over Gloo, too
    assert not failed, failed
