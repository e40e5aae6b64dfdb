"""Every collective of the package, blocking and not, over two and four ranks."""

from __future__ import annotations

import textwrap

import pytest

TYPES = "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()

EVERY = """
import numpy as np
def same(got, expected): assert np.array_equal(np.asarray(got), np.asarray(expected)), (got, expected)
def f(*values): return np.array(values, dtype="float32")
ranks = np.arange(size, dtype="float32")
def both(name, *arguments, **named):
    '''The blocking form, and the other one with wait() and with test().'''
    if form == "blocking": return getattr(comm, name)(*arguments, **named)
    request = getattr(comm, "i" + name)(*arguments, **named)
    if form == "wait": return request.wait()
    while not request.test(): time.sleep(1e-4)
    return request.wait()
for form in ("blocking", "wait", "test"):
    same(both("allreduce", f(rank, 1)), [ranks.sum(), size])
    out, given = np.zeros(2, "float32"), f(rank + 1, 2)
    assert both("allreduce", given, "max", out=out) is out
    same(out, [size, 2]); same(given, [rank + 1, 2])
    for op, expected in (("prod", np.prod(ranks + 1)), ("min", 1), ("avg", (size + 1) / 2)):
        same(both("allreduce", f(rank + 1), op), [expected])
    for root in range(size):
        x = f(rank, 1)
        both("reduce", x, root)
        same(x, [ranks.sum(), size] if rank == root else [rank, 1])
        same(both("broadcast", f(rank, 7), root), [root, 7])
        everything = np.zeros(2 * size, "float32") if rank == root else None
        both("gather", f(rank, -rank), everything, root)
        if rank == root: same(everything, np.stack([ranks, -ranks], 1).ravel())
        part = np.zeros(2, "float32")
        both("scatter", np.arange(2 * size, dtype="float32") if rank == root else None, part, root)
        same(part, [2 * rank, 2 * rank + 1])
    same(both("allgather", f(rank, -rank), np.zeros((size, 2), "float32")), np.stack([ranks, -ranks], 1))
    counts = list(range(size))
    whole = np.full(sum(counts), -1, "int64")
    both("allgatherv", np.full(rank, rank), whole, counts)
    same(whole, np.repeat(np.arange(size), counts))
    same(both("reduce_scatter", np.arange(3 * size, dtype="float32"), np.zeros(3, "float32")), size * np.arange(3 * rank, 3 * rank + 3))
    same(both("alltoall", np.arange(size) + 10 * rank, np.zeros(size, "int64")), 10 * np.arange(size) + rank)
    sent, got = [rank + r for r in range(size)], [r + rank for r in range(size)]
    target = np.zeros(sum(got), "int32")
    both("alltoallv", np.full(sum(sent), rank, "int32"), sent, target, got)
    same(target, np.repeat(np.arange(size), got))
    right, left = (rank + 1) % size, (rank - 1) % size
    x = np.zeros(3)
    requests = [comm.isend(np.full(3, float(rank)), right), comm.irecv(x, left)]
    for request in requests: request.wait()
    same(x, [left] * 3)
    with comm.group():
        comm.recv(x, right)
        comm.send(np.full(3, -1.0 - rank), left)
    same(x, [-1.0 - right] * 3)
    both("barrier")
comm.finalize()
"""


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_collective_in_every_form(run, size):
    run(EVERY, size)


def test_every_type_and_none_is_copied(run):
    run(f"""
        import numpy as np
        for name in {TYPES}:
            x = np.arange(5).astype(name)
            where = x.ctypes.data
            assert comm.allreduce(x) is x and x.ctypes.data == where
            assert (x == 2 * np.arange(5).astype(name)).all(), (name, x)
    """)


def test_the_buffer_protocol_without_numpy(run):
    run("""
        sys.modules["numpy"] = None
        x = array.array("d", [rank, 1.5])
        assert comm.allreduce(x).tolist() == [1.0, 3.0]
        everything = bytearray(4)
        comm.allgather(bytes([rank, 7]), everything)
        assert everything == bytes([0, 7, 1, 7])
        shared = comm.allocate(3, "int32")
        assert isinstance(shared, memoryview) and shared.tolist() == [0, 0, 0]
        shared[0] = rank + 1
        assert comm.allreduce(shared).tolist() == [3, 0, 0]
        comm.allreduce(bytearray())
        comm.finalize()
    """)


def test_dlpack(run):
    run("""
        class Lender:
            '''Nothing but DLPack, as a tensor of PyTorch or JAX on the host has it.'''
            def __init__(self, array): self.array = array
            def __dlpack__(self, **named): return self.array.__dlpack__()
            def __dlpack_device__(self): return self.array.__dlpack_device__()
        import numpy as np
        x = np.arange(6, dtype="float32").reshape(2, 3)
        comm.allreduce(Lender(x))
        assert (x.ravel() == 2 * np.arange(6)).all(), x
        comm.allreduce(Lender(np.zeros((0, 3))))
        try: comm.allreduce(Lender(x.T))
        except ValueError as error: assert "not contiguous" in str(error), error
        else: raise AssertionError("a transposed tensor was taken")
        try: comm.allreduce(Lender(np.zeros(2, "complex64")))
        except TypeError as error: assert "convert them" in str(error), error
        else: raise AssertionError("complex numbers were taken")
    """)


def test_memory_of_the_library(run):
    run("""
        import numpy as np
        x = comm.allocate((2, 3), "float64")
        assert x.shape == (2, 3) and not x.any()
        x += rank
        assert (comm.allreduce(x) == 1).all()
        assert comm.allocate(4, "bfloat16").dtype == np.uint16
        comm.free(x)
        for wrong in (np.zeros(3), ):
            try: comm.free(wrong)
            except ValueError: pass
            else: raise AssertionError("strange memory was freed")
        comm.finalize()
    """)


def test_split_and_facts(run):
    run("""
        import numpy as np
        assert comm.host(0) and "vector" in comm.task_map and comm.provenance
        half = comm.split(rank % 2, -rank)
        assert (half.size, half.rank) == (2, 1 - rank // 2)
        assert half.allreduce(np.array([rank]))[0] == (2 if rank % 2 == 0 else 4)
        assert comm.split(None) is None if rank == 0 else comm.split(0).size == 3
        half.finalize()
        comm.finalize()
        comm.finalize()
        assert not comm.healthy
    """, size=4)


def test_reducer(run):
    run("""
        import numpy as np
        reducer = comm.reducer([3, 100000, 0, 5], op="sum")
        views = [np.frombuffer(reducer.view(i), "float32") for i in range(4)]
        for step in range(3):
            for i in reversed(range(4)):
                views[i][:] = rank + i + step
                reducer.ready(i)
            reducer.wait()
            for i in range(4): assert (views[i] == 1 + 2 * (i + step)).all(), (step, i)
        assert reducer.calls >= 1
        reducer.free()
        own = [np.full(n, rank, "float64") for n in (4, 70000)]
        reducer = comm.reducer([4, 70000], "float64")
        for i in range(2): reducer.bind(i, own[i])
        for i in (1, 0): reducer.ready(i)
        reducer.wait()
        assert all((x == 0.5).all() for x in own)
        reducer.free()
        comm.finalize()
    """)


def test_a_reducer_whose_calls_were_refused_goes_on(run):
    run("""
        import numpy as np
        reducer = comm.reducer([3, 100000], op="sum")
        views = [np.frombuffer(reducer.view(i), "float32") for i in range(2)]
        for view in views: view[:] = rank + 1
        refused = 0
        with comm.group():
            for i in range(2):
                try: reducer.ready(i)
                except ValueError as error:
                    assert "inside a group" in str(error)
                    refused += 1
        assert refused
        reducer.wait()
        assert all((view == 3).all() for view in views)
        reducer.free()
        comm.finalize()
    """)


def test_counts_are_kept_until_the_group_ends(run):
    run("""
        import ctypes, numpy as np
        mine, all = np.full(rank + 1, rank + 1, "float32"), np.zeros(3, "float32")
        with comm.group():
            comm.allgatherv(mine, all, [1, 2])
            others = [(ctypes.c_size_t * 2)(99999, 99999) for _ in range(10000)]
        assert all.tolist() == [1, 2, 2], all
        comm.finalize()
    """)


def test_a_reducer_holds_the_arrays_until_no_call_writes_to_them(run):
    run("""
        import weakref, numpy as np
        import amldist._reducer
        reducer = comm.reducer([4])
        own = np.zeros(4, "float32")
        bound = weakref.ref(own)
        reducer.bind(0, own)
        del own
        class Library:
            def __getattr__(self, name):
                assert name != "amldist_reducer_free" or bound() is not None
                return getattr(amldist._library.lib, name)
        amldist._reducer.lib = Library()
        reducer.free()
        assert bound() is None
        comm.finalize()
    """, 1)


STORE = """
import tempfile
class Store:
    '''A folder: each key a file.'''
    def __init__(self, name):
        self.folder = os.path.join(tempfile.gettempdir(), f"amldist-{os.environ['MASTER_PORT']}-{name}")
        os.makedirs(self.folder, exist_ok=True)
    def path(self, key): return os.path.join(self.folder, key.encode().hex())
    def set(self, key, value):
        with open(self.path(key) + ".new", "wb") as file: file.write(value)
        os.rename(self.path(key) + ".new", self.path(key))
    def get(self, key, timeout):
        end = time.monotonic() + timeout
        while not os.path.exists(self.path(key)):
            if time.monotonic() > end: raise KeyError(key)
            time.sleep(0.01)
        with open(self.path(key), "rb") as file: return file.read()
"""


def test_a_world_from_a_store(run):
    """Ranks that find one another by the caller's own key-value store, several worlds in a process at once."""
    run(STORE + textwrap.dedent("""
        worlds = [amldist.init(20, rank=rank, size=size, name=f"world-{i}",
                               store=Store(i))
                  for i in range(2)]
        for i, world in enumerate(worlds):
            x = array.array("i", [rank + i])
            assert world.allreduce(x)[0] == 1 + 2 * i
            world.finalize()
        class Broken(Store):
            def get(self, key, timeout): raise ConnectionError("the store is gone")
            def set(self, key, value): raise ConnectionError("the store is gone")
        try: amldist.init(5, rank=rank, size=size, name="broken", store=Broken("broken"))
        except ConnectionError as error: assert "the store is gone" in str(error)
        else: raise AssertionError("a world came out of a broken store")
        comm.finalize()
    """))


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("secret", [None, "a secret of the test, which is long enough"])
def test_a_store_may_hold_the_address_of_a_rank_0_that_is_gone(run, size, secret):
    """A rank 0 that was killed before its world came about leaves it there, and a store need not be able to forget."""
    run(STORE + f"secret = {secret!r}" + textwrap.dedent("""
        store = Store("again")
        for attempt in range(3):
            if rank == 0 and attempt: time.sleep(0.5)
            world = amldist.init(20, rank=rank, size=size, name="again", store=store, secret=secret)
            x = array.array("i", [attempt])
            assert world.allreduce(x)[0] == attempt * size
            comm.barrier()
            world.finalize()
        class Forgets(Store):
            asked = False
            def get(self, key, timeout):
                if self.asked: raise KeyError(key)
                self.asked = True
                return super().get(key, timeout)
        for store in (Store("again"), Forgets("again")) if rank else ():
            try: amldist.init(0.6, rank=rank, size=size, name="again", store=store, secret=secret)
            except amldist.TimeoutError as error: assert "rank 0 is missing in amldist_init" in str(error), error
            else: raise AssertionError("a world without rank 0")
        comm.barrier()
        comm.finalize()
    """), size=size)
