"""Collectives of libdist: fast on a node and between nodes, and a missing rank is named.

    import amldist
    comm = amldist.init()
    comm.allreduce(array)

Start the program with ``srun --aml-dist=pytorch``, torchrun, mpirun, or alone. ``python -m amldist`` says what was
found. For PyTorch's own collectives: ``torch.distributed.init_process_group("amldist")``.
"""

from amldist._communicator import Communicator
from amldist._errors import AbortedError, Error, MismatchError, PeerError, TimeoutError
from amldist._library import version
from amldist._reducer import Reducer
from amldist._request import Request
from amldist._world import Identity, Store, init, stop_requested

__all__ = [
    "AbortedError",
    "Communicator",
    "Error",
    "Identity",
    "MismatchError",
    "PeerError",
    "Reducer",
    "Request",
    "Store",
    "TimeoutError",
    "init",
    "stop_requested",
    "version",
]
__version__ = version()
try:  # absent where only this folder was copied
    import amldist_errors as _errors_of_ranks
except ImportError:
    pass
else:
    _errors_of_ranks.install()
