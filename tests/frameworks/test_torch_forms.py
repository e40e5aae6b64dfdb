"""Calls of the back end in all the forms that PyTorch has, and the end of a process that has some in progress."""

from __future__ import annotations

import socket
import subprocess

import pytest
from conftest import need
from test_amldist_backend import PYTHON, environment, run

FORMS = """
start()
gloo = dist.new_group(backend="gloo")
import torch._C._distributed_c10d as c10d
t = lambda value=0: torch.tensor([float(rank + 1 + value)])
many = lambda: [t() for _ in range(size)]
lists = lambda: [many()] if rank == 0 else []
def options(kind, **fields):
    made = kind()
    for name, value in fields.items(): setattr(made, name, value)
    return made
FORMS = [lambda b: b.allreduce([t()]), lambda b: b.allreduce(t()), lambda b: b.allreduce(t(), dist.ReduceOp.MAX),
         lambda b: b.allreduce([t()], op=dist.ReduceOp.MIN), lambda b: b.allreduce(tensors=[t()], opts=c10d.AllreduceOptions()),
         lambda b: b.allreduce([t(), t(1)]), lambda b: b.allreduce([t(), t(1), t(2)], dist.ReduceOp.PRODUCT),
         lambda b: b.broadcast(t(), 1), lambda b: b.broadcast(t(), root=0),
         lambda b: b.broadcast([t(), t(1)], options(c10d.BroadcastOptions, rootRank=1, rootTensor=1)),
         lambda b: b.reduce(t(), 1), lambda b: b.reduce(t(), root=0, op=dist.ReduceOp.MAX),
         lambda b: b.allgather([many()], [t()]), lambda b: b.allgather(many(), t()),
         lambda b: b.allgather([many() + many()] * 2, [t(), t(1)]),
         lambda b: b.allgather(output_tensors=[many()], input_tensors=[t()], opts=c10d.AllgatherOptions()),
         lambda b: b.gather(lists(), [t()], options(c10d.GatherOptions, rootRank=0)),
         lambda b: b.scatter([t()], lists(), opts=options(c10d.ScatterOptions, rootRank=0)), lambda b: b.barrier()]
REDUCED_TO = {10: 1, 11: 0}   # other ranks than the root hold anything after a reduce
def outcome(form, group):
    future = form(group._get_backend(torch.device("cpu"))).get_future()
    future.wait()
    work = form(group._get_backend(torch.device("cpu")))
    work.wait()
    try: return [future.value(), work.result()]
    except RuntimeError: return [future.value()]   # Gloo's has no result where there are lists of lists
shown = lambda thing: thing.tolist() if isinstance(thing, torch.Tensor) else [shown(each) for each in thing]
for number, form in enumerate(FORMS):
    for ours, theirs in zip(outcome(form, dist.group.WORLD), outcome(form, gloo)):
        assert REDUCED_TO.get(number, rank) != rank or shown(ours) == shown(theirs), (number, ours, theirs)
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
ops = dist.ReduceOp
gathered, scattered = many(), t()   # Gloo of some releases cannot be called so
backend.gather(gathered if rank == 1 else [], t(), 1).wait()
backend.scatter(scattered, [t(10 * i) for i in range(size)] if rank == 0 else [], root=0).wait()
assert rank == 0 or shown(gathered) == [[float(i + 1)] for i in range(size)], gathered
assert shown(scattered) == [1.0 + 10 * rank], scattered
REFUSED = [lambda: backend.allreduce([]), lambda: backend.allreduce([t(), torch.ones(2)]), lambda: backend.allreduce([t(), t()], ops.AVG),
           lambda: backend.broadcast([]), lambda: backend.broadcast([t()], options(c10d.BroadcastOptions, rootTensor=1)),
           lambda: backend.broadcast(t(), -1), lambda: backend.reduce([t()], options(c10d.ReduceOptions, rootTensor=1)),
           lambda: backend.gather([], [], c10d.GatherOptions()), lambda: backend.scatter([], [], c10d.ScatterOptions()),
           lambda: backend.gather([many()], [t()], options(c10d.GatherOptions, rootRank=1 - rank)),
           lambda: backend.scatter([t()], [many()], options(c10d.ScatterOptions, rootRank=1 - rank))]
for number, call in enumerate(REFUSED):
    for kind in (ValueError, RuntimeError):   # PyTorch's functions raise the one, its back ends the other
        try: call()
        except kind as error: assert len(str(error)) > 20, (number, error)
        else: raise AssertionError(number)
for call in (lambda: backend.allreduce(), lambda: backend.broadcast(t(), 0, None, 2), lambda: backend.allreduce([t()], sum=1)):
    try: call()
    except TypeError as error: assert str(error).startswith("amldist: "), error
    else: raise AssertionError("no TypeError")
dist.barrier()
print("fine")
"""


def test_every_form_of_a_call_gives_what_gloo_s_gives():
    """Options left out, given by their fields or by name; several tensors of a rank; and what cannot be right."""
    run(FORMS)


ENDS = """
import atexit, time
import torch, torch.distributed as dist
@atexit.register
def last():   # after all that amldist has registered
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    future.wait()
    assert future.value()[0].item() == 2
    print("last", flush=True)
import amldist.torch
dist.init_process_group("amldist")
waiter = dist.group.WORLD._get_backend(torch.device("cpu")).engine.waiter
class Slow:   # a work that frees many tensors while the process ends
    def __init__(self): self.tensors = [torch.ones(1) for _ in range(200000)]
    def finish(self): self.tensors.clear()
class Stuck:  # one that waits for what does not come
    def finish(self): waiter.wait_for(self)
    def wait(self): time.sleep(1000)
waiter.add(HOW())
dist.barrier()
"""


@pytest.mark.parametrize("how", ["Slow", "Stuck"])
def test_a_process_may_end_while_its_works_are_finished(how):
    """The thread that finishes them freed tensors while the interpreter went away, which aborted the process."""
    need("torch")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ranks = [subprocess.Popen([PYTHON, "-c", ENDS.replace("HOW", how)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port))
             for rank in range(2)]
    said = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert [output for output, _ in said] == ["last\n", "last\n"], said
