"""DistributedDataParallel's gradients in library memory: amldist.torch.use_library_memory()."""

import pytest
from test_amldist_backend import TRAINING, run, trial

IN_LIBRARY_MEMORY = TRAINING[:TRAINING.index("(ours, w1)")] + """
(plain, w1), (shared, w2), (views, w3) = train("amldist"), train("amldist", True), train("amldist", True, gradient_as_bucket_view=True)
assert torch.allclose(torch.tensor(plain), torch.tensor(shared), rtol=1e-4) and torch.allclose(w1, w2, atol=1e-4)
assert views == shared and torch.equal(w2, w3)
from amldist.torch import _buckets
if _buckets.CAN_MOVE:
    _buckets.CAN_MOVE = False
    copied, w4 = train("amldist", True)
    assert copied == shared and torch.equal(w2, w4)
start("gloo", init_method=f"tcp://127.0.0.1:{int(os.environ['MASTER_PORT']) + train.count}", rank=rank, world_size=size)
try: amldist.torch.use_library_memory(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2)))
except ValueError as error: assert "make it with the back end amldist" in str(error), error
else: raise AssertionError("taken")
dist.destroy_process_group()
print("fine")
"""


@pytest.mark.parametrize("size", [2, 4])
def test_gradients_in_library_memory_train_the_same_model(size):
    run(IN_LIBRARY_MEMORY, size)


def test_buckets_lie_in_library_memory_until_their_model_or_their_group_goes():
    run("""
        start()
        import gc
        from amldist.torch import _buckets
        def shared_kib(): return int(open("/proc/self/status").read().split("RssShmem:")[1].split()[0])
        def step(model):
            model(torch.full((1, 512), float(rank + 1))).sum().backward()
            return [p.grad.clone() for p in model.parameters()]
        def wrapped():
            torch.manual_seed(3)
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512), gradient_as_bucket_view=True)
            amldist.torch.use_library_memory(model)
            return model
        def is_library_memory(tensor):
            at = tensor.untyped_storage().data_ptr()
            for line in open("/proc/self/maps"):
                first, last = (int(end, 16) for end in line.split()[0].split("-"))
                if first <= at < last: return "amldist" in line
        average = torch.full((512, 512), sum(range(1, size + 1)) / size)
        dist.all_reduce(torch.ones(1 << 16))   # maps the staging memory
        before = shared_kib()
        for round in range(20):     # 1 MiB each: what one model has given back serves the next
            model = wrapped()
            for again in range(3):  # buckets are cut anew after the first
                model.zero_grad(set_to_none=False)
                assert torch.allclose(step(model)[0], average)
            kept = [p.grad for p in model.parameters()]
            assert all(is_library_memory(grad) == _buckets.CAN_MOVE for grad in kept)
            del model
            gc.collect()
            assert not any(is_library_memory(grad) for grad in kept) and torch.allclose(kept[0], average)
        assert shared_kib() - before < 8 * 1024, (before, shared_kib())
        model = wrapped()
        step(model); step(model)
        dist.destroy_process_group()
        grads = [p.grad for p in model.parameters()]
        assert not any(is_library_memory(grad) for grad in grads) and torch.allclose(grads[0], 2 * average)
        grads[0].fill_(1)
        print("fine")
    """, 2)


@pytest.mark.parametrize("deed", ["killed", "late"])
def test_a_bad_rank_is_named_with_gradients_in_library_memory_too(deed):
    trial(deed, wrong=1, step=4, in_library=True)


FUTURES = """
start()
from amldist.torch import _waiter
added, left = [], []
add, leave = _waiter.Waiter.add, _waiter.Waiter.leave
_waiter.Waiter.add = lambda self, work: (added.append(work), add(self, work))
_waiter.Waiter.leave = lambda self, work: (left.append(work), leave(self, work))
def wrapped(**options):
    torch.manual_seed(3)
    return torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64), **options)
def step(model):
    added.clear(); left.clear()
    model.zero_grad()
    model(torch.full((1, 64), float(rank + 1))).sum().backward()
    average = torch.full((64, 64), sum(range(1, size + 1)) / size)
    assert all(torch.allclose(p.grad, average if p.dim() == 2 else torch.ones(64)) for p in model.parameters())
"""


def test_no_thread_waits_for_buckets_beside_the_backward_pass():
    run(FUTURES + """
for options in ({}, {"static_graph": True}, {"find_unused_parameters": True}):
    for in_library in (False, True):
        model = wrapped(**options)
        if in_library: amldist.torch.use_library_memory(model)
        for again in range(3):
            step(model)
            assert left and all(work.is_done for work in left) and not any(work in added for work in left), (added, left)
print("fine")
""", 2)


def test_a_hook_may_wait_for_its_future_within_the_backward_pass():
    run(FUTURES + """
def average(state, bucket):
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    assert future.wait()[0] is not None and added and not left
    return future.then(lambda done: done.value()[0].div_(size))
average.__annotations__.clear()
model = wrapped()
model.register_comm_hook(None, average)
step(model); step(model)
print("fine")
""", 2)


def test_whoever_waits_too_early_for_a_future_that_was_left_to_the_pass_gets_it_all_the_same():
    run(FUTURES + """
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(context, given): return given.clone()
    @staticmethod
    def backward(context, gradient):
        work = dist.all_reduce(gradient.clone(), async_op=True)
        total = work.future_at_end_of_backward(work.result)
        again = work.get_future()
        assert left == [work] and total.wait() == work.result
        return again.wait()[0]
given = torch.ones(4, requires_grad=True)
Sum.apply(given).sum().backward()
assert torch.equal(given.grad, torch.full((4,), float(size))), given.grad
print("fine")
""", 2)
