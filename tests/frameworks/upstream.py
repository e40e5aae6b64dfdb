#!/usr/bin/env python3
"""PyTorch's own distributed tests, as its wheel ships them, over a back end by name.

    BACKEND=amldist WORLD_SIZE=3 python upstream.py [-k NAME]     (gloo: the same beside it)

The tests are torch.testing._internal.distributed.distributed_test, of the PyTorch that is installed. Where a test asks
"is this Gloo?" before it runs, libdist counts as Gloo: what Gloo can do is what it is measured by. So it does where
PyTorch asks that (monitored_barrier(), up to 2.13). Ranks are forked, not spawned, which takes a tenth of the time.
"""

import importlib.util
import inspect
import os
import re
import sys
import tempfile

os.environ.setdefault("BACKEND", "amldist")
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="amldist-upstream-"))
os.environ.setdefault("INIT_METHOD", "file://" + os.path.join(os.environ["TEMP_DIR"], "init"))
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
for folder in ("barrier", "test_dir", "init_dir"):
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], folder), exist_ok=True)

import torch.distributed.distributed_c10d as c10d  # noqa: E402
import torch.multiprocessing  # noqa: E402
from torch.testing._internal.common_distributed import MultiProcessTestCase  # noqa: E402
from torch.testing._internal.common_utils import run_tests  # noqa: E402

if os.environ["BACKEND"] == "amldist":
    import amldist.torch  # noqa: E402, F401

NAME = "torch.testing._internal.distributed.distributed_test"


def module_for(backend: str):
    """The module; for a back end that is not Gloo, with its questions for Gloo widened."""
    spec = importlib.util.find_spec(NAME)
    with open(spec.origin) as file:
        source = file.read()
    if backend != "gloo":
        source = re.sub(r'BACKEND (!=|==) "gloo"', lambda found: f'BACKEND {"not in" if found[1] == "!=" else "in"} ("gloo", "{backend}")', source)
        source = source.replace('require_backend_is_available({"gloo"})', f'require_backend_is_available({{"gloo", "{backend}"}})')
        source = source.replace("BACKEND == dist.Backend.GLOO", f'BACKEND in ("gloo", "{backend}")')
        offer_monitored_barrier()
        source = source.replace("DistTestCases.backend_feature[", "_features[").replace('if backend in _features["plugin"]', f'if backend == "{backend}"').replace("class TestDistBackend(", FEATURES.format(backend) + "class TestDistBackend(", 1)
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    return module


def offer_monitored_barrier() -> None:
    """PyTorch up to 2.13 has it for Gloo alone."""
    source = inspect.getsource(c10d.monitored_barrier).replace("get_backend(group) != Backend.GLOO", "False")
    exec(source, c10d.__dict__)
    torch.distributed.monitored_barrier = c10d.monitored_barrier


FEATURES = """
_features = {{name: set(backends) | ({{"{0}"}} if "gloo" in backends else set())
             for name, backends in DistTestCases.backend_feature.items()}}


"""

tests = module_for(os.environ["BACKEND"])


class TestUpstream(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


assert issubclass(TestUpstream, MultiProcessTestCase)
if __name__ == "__main__":
    run_tests()
