"""Plays a generated program from Python:  run.py mpi4py|amldist|gloo PROGRAM FAULT  (FAULT: how the culprit stands still, or none)"""

import array
import os
import random
import signal
import sys
import time

LIBRARY, PROGRAM, FAULT = sys.argv[1:4]


class Mpi4py:
    def __init__(self):
        from mpi4py import MPI
        self.mpi = MPI
        self.rank = MPI.COMM_WORLD.rank

    def group(self, ranks):
        comm = self.mpi.COMM_WORLD.Split(0 if self.rank in ranks else self.mpi.UNDEFINED, self.rank)
        return {"allreduce": lambda data, _: comm.Allreduce(data, array.array("f", data), op=self.mpi.MAX),
                "broadcast": lambda data, root: comm.Bcast(data, root), "barrier": lambda *_: comm.Barrier(),
                "allgather": lambda data, _: comm.Allgather(data, data * comm.size),
                "send": lambda data, peer: comm.Ssend(data, peer), "recv": lambda data, peer: comm.Recv(data, peer)}

    def abort(self):
        self.mpi.COMM_WORLD.Abort(3)

    def finalize(self):
        """mpi4py does it at the end."""


class Amldist:
    def __init__(self):
        import amldist
        self.amldist = amldist
        self.world = amldist.init(60)
        self.rank = self.world.rank

    def group(self, ranks):
        comm = self.world.split(0 if self.rank in ranks else None, self.rank)
        return {"allreduce": lambda data, _: comm.allreduce(data), "broadcast": lambda data, root: comm.broadcast(data, root),
                "barrier": lambda *_: comm.barrier(), "allgather": lambda data, _: comm.allgather(data, data * comm.size),
                "send": lambda data, peer: comm.send(data, peer), "recv": lambda data, peer: comm.recv(data, peer)}

    def abort(self):
        os.abort()

    def finalize(self):
        """The package does it at the end."""


class Gloo:
    def __init__(self):
        import torch
        import torch.distributed as dist
        self.torch, self.dist = torch, dist
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()

    def group(self, ranks):
        group = self.dist.new_group(ranks)

        def tensor(data):
            return self.torch.zeros(len(data))
        return {"allreduce": lambda data, _: self.dist.all_reduce(tensor(data), group=group),
                "broadcast": lambda data, root: self.dist.broadcast(tensor(data), ranks[root], group=group),
                "barrier": lambda *_: self.dist.barrier(group=group),
                "allgather": lambda data, _: self.dist.all_gather([tensor(data) for _ in ranks], tensor(data), group=group),
                "send": lambda data, peer: self.dist.send(tensor(data), ranks[peer], group=group),
                "recv": lambda data, peer: self.dist.recv(tensor(data), ranks[peer], group=group)}

    def abort(self):
        os.abort()

    def finalize(self):
        """A rank that goes earlier takes its connections along, of which calls of slower ranks fail."""
        self.dist.barrier()
        self.dist.destroy_process_group()


def stand_still(library):
    if FAULT == "exit":
        os._exit(0)
    if FAULT == "abort":
        library.abort()
    if FAULT in ("kill", "stop"):
        os.kill(os.getpid(), signal.SIGKILL if FAULT == "kill" else signal.SIGSTOP)
    if FAULT == "exception":
        raise ValueError("the culprit has had enough")
    if FAULT == "io":
        os.read(os.pipe()[0], 1)
    if FAULT == "slow":
        time.sleep(0.3)
    while FAULT == "busy":
        pass


def main():
    library = {"mpi4py": Mpi4py, "amldist": Amldist, "gloo": Gloo}[LIBRARY]()
    groups, made, culprit, at = [], 0, -1, -1
    with open(PROGRAM) as program:
        for line in program:
            word, *rest = line.split()
            if word == "fault":
                culprit, at = int(rest[1]), int(rest[2])
            if word == "group":
                groups.append(library.group([int(rank) for rank in rest]))
            if word != "call" or int(rest[0]) != library.rank:
                continue
            if library.rank == culprit and made >= at:
                stand_still(library)
            time.sleep(random.random() * 0.003)
            made += 1
            if rest[1] == "finalize":
                library.finalize()
                break
            groups[int(rest[2])][rest[1]](array.array("f", bytes(int(rest[3]))), int(rest[4]))


main()
