"""torch.distributed's calls as libdist's, by duty: reductions and movement, messages and barriers."""

from __future__ import annotations

from amldist.torch._messages import Messages
from amldist.torch._reductions import Reductions


class Engine(Reductions, Messages):
    """One process group: its world in libdist, and PyTorch's calls on it."""
