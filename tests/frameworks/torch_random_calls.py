"""A program of torch_ranks.py: random calls over libdist and, with the same numbers, over Gloo, compared bit by bit.

SEED and CALLS are set before it. All ranks draw the same calls: which one, in which group, of which type, size, operator and root, waited
for or not, and how the tensors lie in memory. Gloo gets contiguous ones, because with gaps it leaves the tensors of some ranks as they are.
"""

import collections

DTYPES = [torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.int16, torch.bool, torch.complex64]
WHOLE_NUMBERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
COUNTS = [0, 1, 2, 3, 7, 8, 31, 64, 100, 1000, 4097, 65536, 300001]
draw = random.Random(SEED)
start(timeout=120)


def groups():
    """The world, all in another order, and some ranks; of each the pair over both back ends, and the program's ranks in it."""
    lists = [list(range(size)), list(range(size))[::-1], sorted(draw.sample(range(size), draw.randint(1, size))), draw.sample(range(size), draw.randint(1, size))]
    return [(dist.new_group(ranks, group_desc=f"g{number}"), dist.new_group(ranks, backend="gloo"), sorted(ranks)) for number, ranks in enumerate(lists)]


def numbers(count, dtype, who, call):
    """What rank `who` gives in a call: small whole numbers, whose sums and products are exact in any order."""
    made = torch.Generator().manual_seed(SEED * 1000003 + call * 101 + who)
    values = torch.randint(0, 3, (count,), generator=made)
    if dtype.is_complex:
        return torch.complex(values.float(), torch.randint(-2, 3, (count,), generator=made).float()).to(dtype)
    return values.to(dtype)


def laid(values, way):
    """The same numbers in a tensor that lies in memory in some other way."""
    if way == "gaps":
        wide = torch.zeros(2 * values.numel(), dtype=values.dtype)
        wide[::2] = values
        return wide[::2]
    if way == "inner":
        return torch.cat([values[:0], torch.ones(3, dtype=values.dtype), values, torch.ones(5, dtype=values.dtype)])[3 : 3 + values.numel()]
    if way == "transposed" and values.numel() % 2 == 0:
        return values.clone().view(-1, 2).t().contiguous().t()
    if way == "negated" and values.dtype.is_floating_point:
        return torch._neg_view(-values)
    if way == "scalar" and values.numel() == 1:
        return values.clone().view(())
    return values.clone()


def same(ours, theirs, what):
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype and torch.equal(mine.reshape(-1).resolve_neg(), other.reshape(-1)), (what, mine, other)


class Call:
    """One random call. Its method of the kind's name makes it over both back ends, on tensors that lie in some way."""

    def __init__(self, number):
        self.number = number
        self.pair = draw.choice(GROUPS)
        self.ours, self.theirs, self.ranks = self.pair
        self.n = len(self.ranks)
        self.kind = draw.choice(KINDS)
        self.dtype, self.count = draw.choice(DTYPES), draw.choice(COUNTS)
        self.op = draw.choice(["SUM", "SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"])
        self.root, self.other = draw.choice(self.ranks), draw.choice(self.ranks)
        self.splits = [[draw.randint(0, 4) for _ in range(self.n)] for _ in range(self.n)]
        if draw.random() < 0.3:
            self.splits = [[2] * self.n] * self.n
        self.way, self.out_way = draw.choice(WAYS), draw.choice(WAYS)
        self.waits, self.by_future = draw.random() < 0.5, draw.random() < 0.3
        self.tag = draw.randint(0, 9)
        self.is_member = rank in self.ranks
        if self.kind in REDUCING:
            self.choose_operator()

    def choose_operator(self):
        """One that the type has: PRODUCT of bools and halves is not exact or not defined."""
        if self.dtype.is_complex or self.dtype in (torch.float16, torch.bfloat16):
            self.op = "SUM"
        elif self.dtype is torch.bool:
            self.op = draw.choice(["BAND", "BOR"]) if self.op not in ("MIN", "MAX") else self.op
        elif self.op == "AVG" or (self.op.startswith("B") and self.dtype not in WHOLE_NUMBERS):
            self.op = "SUM"

    def __str__(self):
        return " ".join(f"{name}={getattr(self, name)}" for name in ("number", "kind", "dtype", "count", "op", "root", "other", "ranks", "way", "out_way", "waits", "by_future"))

    def give(self, count, who=None, salt=0):
        return numbers(count, self.dtype, rank if who is None else who, self.number * 16 + salt)

    def both(self, run, *outputs, by_gloo=True):
        """Makes a call over both, or libdist alone, and compares; what libdist's wrote. What Gloo refuses is counted."""
        found = []
        for group, lay in ((self.ours, laid), (self.theirs, lambda values, _way: values.clone()))[: 1 + by_gloo]:
            made = [[lay(one, self.out_way) for one in each] if isinstance(each, list) else lay(each, self.out_way) for each in outputs]
            try:
                work = run(group, lambda values: lay(values, self.way), *made)
                if work is not None:  # not all of Gloo's have a future
                    work.get_future().wait() if self.by_future and group is self.ours else work.wait()
            except RuntimeError as error:
                if group is self.ours:
                    raise
                refused[str(error).partition("\n")[0][:70]] += 1
                found.append(None)
                continue
            found.append([one for each in made for one in (each if isinstance(each, list) else [each])])
        if found[-1] is not None and by_gloo:
            same(*found, str(self))
            compared[self.kind] += 1
        return found[0]

    def make(self):
        getattr(self, self.kind)()

    @property
    def named(self):
        return {"async_op": not self.waits}

    def all_reduce(self):
        # In place: both the numbers that are given and where they lie are the output's.
        self.both(lambda group, _lay, t: dist.all_reduce(t, getattr(dist.ReduceOp, self.op), group=group, **self.named), self.give(self.count))

    def reduce(self):
        mine = self.give(self.count)

        def run(group, _lay, t):
            work = dist.reduce(t, self.root, getattr(dist.ReduceOp, self.op), group=group, **self.named)
            if work is not None:
                work.wait()
            if rank != self.root:
                t.copy_(mine.view(t.shape))  # anything, on others than the root

        self.both(run, mine)

    def broadcast(self):
        self.both(lambda group, _lay, t: dist.broadcast(t, self.root, group=group, **self.named), self.give(self.count))

    def all_gather(self):
        self.both(lambda group, lay, t: dist.all_gather(t, lay(self.give(self.count)).reshape(-1), group=group, **self.named), [self.give(self.count, salt=1)] * self.n)

    def all_gather_into_tensor(self):
        self.both(lambda group, lay, t: dist.all_gather_into_tensor(t, lay(self.give(self.count)), group=group, **self.named), self.give(self.n * self.count, salt=1))

    def gather(self):
        outputs = [self.give(self.count, salt=1)] * self.n if rank == self.root else []
        self.both(lambda group, lay, t: dist.gather(lay(self.give(self.count)).reshape(-1), t or None, self.root, group=group, **self.named), outputs)

    def scatter(self):
        def run(group, lay, t):
            parts = [lay(self.give(self.count, salt=each)).reshape(-1) for each in range(self.n)] if rank == self.root else None
            return dist.scatter(t, parts, self.root, group=group, **self.named)

        self.both(run, self.give(self.count, salt=9))

    def reduce_scatter(self):
        def run(group, lay, t):
            parts = [lay(self.give(self.count, salt=each)).reshape(-1) for each in range(self.n)]
            return dist.reduce_scatter(t, parts, getattr(dist.ReduceOp, self.op), group=group, **self.named)

        self.both(run, self.give(self.count, salt=9))

    def reduce_scatter_tensor(self):
        def run(group, lay, t):
            return dist.reduce_scatter_tensor(t, lay(self.give(self.n * self.count)), getattr(dist.ReduceOp, self.op), group=group, **self.named)

        self.both(run, self.give(self.count, salt=9))

    def all_to_all_single(self):
        me = self.ranks.index(rank)
        given, got = self.splits[me], [row[me] for row in self.splits]
        width = min(self.count, 1000)

        def run(group, lay, t):
            rows = lay(self.give(sum(given) * width)).reshape(sum(given), width)
            return dist.all_to_all_single(t.view(sum(got), width) if t.is_contiguous() else t.reshape(sum(got), width), rows, got, given, group=group, **self.named)

        self.out_way = "inner"
        self.both(run, self.give(sum(got) * width, salt=9))

    def all_to_all(self):
        me = self.ranks.index(rank)
        width = min(self.count, 1000)
        outputs = [self.give(row[me] * width, salt=9) for row in self.splits]

        def run(group, lay, t):
            return dist.all_to_all(t, [lay(self.give(many * width, salt=to)).reshape(-1) for to, many in enumerate(self.splits[me])], group=group, **self.named)

        # Gloo takes parts of one size alone; only ranks that have others refuse.
        found = self.both(run, outputs, by_gloo=len({many for row in self.splits for many in row}) == 1)
        for number, (row, got) in enumerate(zip(self.splits, found)):
            wanted = numbers(row[me] * width, self.dtype, self.ranks[number], self.number * 16 + me)
            same([got], [wanted], str(self))

    def send_and_receive(self):
        if self.root == self.other or rank not in (self.root, self.other):
            return

        def run(group, lay, t):
            if rank == self.root:
                return dist.isend(lay(self.give(self.count)), self.other, group=group, tag=self.tag)
            return dist.irecv(t, self.root, group=group, tag=self.tag)

        (got,) = self.both(run, self.give(self.count, salt=1))
        if rank == self.other:
            same([got], [self.give(self.count, who=self.root)], str(self))

    def barrier(self):
        self.both(lambda group, _lay: dist.barrier(group=group, **self.named))

    def coalesced(self):
        def run(group, _lay, *tensors):
            with dist._coalescing_manager(group=group, async_ops=True) as joined:
                for tensor in tensors:
                    dist.all_reduce(tensor, group=group)
            joined.wait()

        self.dtype = self.dtype if self.dtype not in (torch.bool,) else torch.int32
        self.op = "SUM"
        self.both(run, self.give(self.count), self.give(3, salt=1), self.give(0, salt=2), self.give(64, salt=3))


REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor")
KINDS = [*REDUCING, "broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter", "all_to_all_single", "all_to_all", "send_and_receive", "barrier", "coalesced"]
WAYS = ["plain", "plain", "gaps", "inner", "transposed", "negated", "scalar"]
compared, refused = collections.Counter(), collections.Counter()
GROUPS = groups()
for number in range(CALLS):
    if number % 500 == 499:  # others
        dist.barrier()
        for ours, theirs, ranks in GROUPS:
            if rank in ranks:
                dist.destroy_process_group(ours)
                dist.destroy_process_group(theirs)
        GROUPS = groups()
    call = Call(number)
    if call.is_member:
        try:
            call.make()
        except BaseException:
            print(f"seed {SEED}: {call}")
            raise
dist.barrier()
if rank == 0:
    print(dict(compared), dict(refused))
print("fine")
sys.stdout.flush()
os._exit(0)
