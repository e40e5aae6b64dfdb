"""Random layouts: the options that describe one, and where each rank then runs.

Written from srun(1) and the documentation of the PMI process mapping, without a look at the C++: queues of nodes that
hand out ranks, not formulas.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import pathlib
import random

MOST_NODES = 12


@dataclasses.dataclass
class Component:
    """One `srun` component: what each option says ("" for not given) and the truth."""

    nodelist: str
    tasks_per_node: str
    distribution: str
    mapping: str
    hostfile: str
    host_of_rank: list[str]


@dataclasses.dataclass
class Layout:
    components: list[Component]

    @property
    def host_of_rank(self) -> list[str]:
        return [host for component in self.components for host in component.host_of_rank]

    def arguments(self) -> list[str]:
        out = []
        for option in ("nodelist", "tasks_per_node", "distribution", "mapping", "hostfile"):
            values = [getattr(component, option) for component in self.components]
            if not any(values):
                continue
            alike = len(set(values)) == 1 and (out or len(values) == 1)  # the first option shows how many there are
            out += ["--" + option.replace("_", "-"), values[0] if alike else " : ".join(values)]
        return out


def host_names(rng: random.Random, count: int) -> tuple[str, list[str]]:
    """A compressed list of `count` different hosts, and their names in order."""
    texts, names = [], []
    suffixes = [""] if rng.random() < 0.5 else ["", "-ib0", ".example.org"]
    prefixes = iter(rng.sample(["node", "n", "rack-a", "gpu", "c", "compute0", "x9-", "Big_", "a.b", "login"], 10))
    while len(names) < count:
        text, piece = entry(rng, next(prefixes), rng.randint(1, count - len(names)), rng.choice(suffixes))
        texts.append(text)
        names += piece
    return ",".join(texts), names


def entry(rng: random.Random, prefix: str, count: int, suffix: str) -> tuple[str, list[str]]:
    shape = rng.choice(["single", "range", "range", "padded", "list", "grid"])
    if shape == "single" or (shape == "grid" and count < 4):
        return prefix + "7" + suffix, [prefix + "7" + suffix]
    low = rng.choice([0, 1, 8, 98])
    if shape == "range":
        return f"{prefix}[{low}-{low + count - 1}]{suffix}", [f"{prefix}{low + i}{suffix}" for i in range(count)]
    if shape == "padded":
        return (f"{prefix}[{low:03}-{low + count - 1:03}]{suffix}",
                [f"{prefix}{low + i:03}{suffix}" for i in range(count)])
    if shape == "list":
        numbers = rng.sample(range(100), count)
        return f"{prefix}[{','.join(map(str, numbers))}]{suffix}", [f"{prefix}{i}{suffix}" for i in numbers]
    rows, columns = 2, count // 2
    return (f"{prefix}[0-{rows - 1}]b[1-{columns}]{suffix}",
            [f"{prefix}{r}b{c}{suffix}" for r, c in itertools.product(range(rows), range(1, columns + 1))])


def deal(hosts: list[str], counts: list[int], at_a_time: int) -> list[str]:
    """Every node in turn takes up to `at_a_time` of the tasks it still has to get."""
    queue = collections.deque(zip(hosts, counts))
    ranks: list[str] = []
    while queue:
        host, left = queue.popleft()
        taken = min(left, at_a_time)
        ranks += [host] * taken
        if left > taken:
            queue.append((host, left - taken))
    return ranks


def counts_text(rng: random.Random, counts: list[int]) -> str:
    """Slurm's tasks per node; equal neighbours are not always gathered, as a person may not."""
    if len(set(counts)) == 1 and rng.random() < 0.5:
        return str(counts[0])
    if rng.random() < 0.3:
        return ",".join(map(str, counts)) if len(counts) > 1 else f"{counts[0]}(x1)"
    runs = [(value, len(list(group))) for value, group in itertools.groupby(counts)]
    return ",".join(f"{value}(x{length})" if length > 1 or len(runs) == 1 else str(value) for value, length in runs)


def by_counts(rng: random.Random, nodelist: str, hosts: list[str]) -> Component:
    counts = [rng.randint(1, 5) for _ in hosts] if rng.random() < 0.6 else [rng.randint(1, 6)] * len(hosts)
    rule = rng.choice(["", "block", "cyclic", "plane", "BLOCK:cyclic", "cyclic:block,pack"])
    if rule == "plane":
        size = rng.randint(1, 4)
        rule, at_a_time = f"plane={size}", size
    elif rule:
        at_a_time = 1 if rule.lower().startswith("cyclic") else 10**6
    else:  # srun(1): block if there are more tasks than nodes, else cyclic
        at_a_time = 10**6 if sum(counts) > len(hosts) else 1
    return Component(nodelist, counts_text(rng, counts), rule, "", "", deal(hosts, counts, at_a_time))


def by_mapping(rng: random.Random, nodelist: str, hosts: list[str]) -> Component:
    """(vector,(first,nodes,tasks),...), repeated until all tasks are placed."""
    triples = [(0, len(hosts), rng.randint(1, 3))]
    for _ in range(rng.randint(0, 3)):
        first = rng.randrange(len(hosts))
        triples.append((first, rng.randint(1, len(hosts) - first), rng.randint(1, 3)))
    rng.shuffle(triples)
    once = [host for first, nodes, tasks in triples for host in hosts[first:first + nodes] for _ in range(tasks)]
    ranks = once * rng.randint(1, 3)
    text = "(vector," + ",".join(f"({first},{nodes},{tasks})" for first, nodes, tasks in triples) + ")"
    counts = [ranks.count(host) for host in hosts]
    return Component(nodelist, ",".join(map(str, counts)) if len(counts) > 1 else str(counts[0]), "", text, "", ranks)


def by_hostfile(rng: random.Random, nodelist: str, hosts: list[str], directory: pathlib.Path) -> Component:
    ranks = hosts + rng.choices(hosts, k=rng.randint(0, 10))
    rng.shuffle(ranks)
    path = directory / f"hosts-{rng.getrandbits(64):016x}"
    path.write_text("\n".join(ranks) + rng.choice(["", "\n"]))
    return Component(rng.choice(["", nodelist]), "", "", "", str(path), ranks)


def component(rng: random.Random, nodelist: str, hosts: list[str], directory: pathlib.Path) -> Component:
    way = rng.random()
    if way < 0.6:
        return by_counts(rng, nodelist, hosts)
    if way < 0.75:
        return by_mapping(rng, nodelist, hosts)
    return by_hostfile(rng, nodelist, hosts, directory)


def random_layout(rng: random.Random, directory: pathlib.Path) -> Layout:
    if rng.random() < 0.7:
        return Layout([component(rng, *host_names(rng, rng.randint(1, MOST_NODES)), directory)])
    # Heterogeneous: components of one pool, so that some share nodes.
    _, pool = host_names(rng, rng.randint(1, MOST_NODES))
    parts = []
    for _ in range(rng.randint(2, 4)):
        hosts = rng.sample(pool, rng.randint(1, len(pool)))
        parts.append(by_counts(rng, ",".join(hosts), hosts) if rng.random() < 0.75
                     else by_hostfile(rng, ",".join(hosts), hosts, directory))
    return Layout(parts)


def one_task_per_node(rng: random.Random) -> Layout:
    nodelist, hosts = host_names(rng, rng.randint(1, MOST_NODES))
    return Layout([Component(nodelist, "1", "", "", "", hosts)])
