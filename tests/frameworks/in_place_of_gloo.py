"""Whoever makes a ProcessGroupGloo gets libdist, and worker processes are forked: for tests that name Gloo.

PyTorch loads this itself (entry point torch.backends) in every process that upstream_tree.py's environment reaches.
"""

import os


def install() -> None:
    import torch.distributed.distributed_c10d as c10d

    if os.environ["BACKEND"] == "amldist":
        c10d.ProcessGroupGloo = stand_in_for(c10d.ProcessGroupGloo)
        import torch.distributed as dist

        dist.ProcessGroupGloo = c10d.ProcessGroupGloo
        # What is of this type is a ProcessGroupGloo to PyTorch's own C++, which looks at its members.
        dist.ProcessGroup.BackendType.GLOO = dist.ProcessGroup.BackendType.CUSTOM
        take_any_words()
    if os.environ.get("UPSTREAM_FORK"):
        fork_workers()
    find_what_moved()


def find_what_moved() -> None:
    """Modules that a file of an older tree imports: where they are now, or a stand-in, so that its other tests can run."""
    import importlib.abc
    import importlib.machinery
    import sys
    import types

    old, new, gone = "torch.distributed._tensor", "torch.distributed.tensor", "torch.distributed._spmd"

    def class_of_name(name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})

    class Loader(importlib.abc.Loader):
        def create_module(self, spec):
            if spec.name.startswith(old):
                return importlib.import_module(spec.name.replace(old, new, 1))
            module = types.ModuleType(spec.name)
            module.__getattr__ = class_of_name
            return module

        def exec_module(self, module):
            pass

    class Finder(importlib.abc.MetaPathFinder):  # asked last
        def find_spec(self, fullname, path, target=None):
            if fullname.startswith((old + ".", gone)):
                return importlib.machinery.ModuleSpec(fullname, Loader(), is_package=True)
            return None

    sys.meta_path.append(Finder())


def take_any_words() -> None:
    """An error must be of the class that a test expects; its words may be libdist's own."""
    import unittest

    def assertRaisesRegex(self, expected, _words, *arguments, **named):
        return self.assertRaises(expected, *arguments, **named)

    unittest.TestCase.assertRaisesRegex = assertRaisesRegex


def stand_in_for(gloo):
    """A class that is made as Gloo's is, and makes libdist's group; its options and devices stay Gloo's."""
    import torch.distributed as dist

    from amldist.torch import _backend

    _backend.AmldistBackend.create_device = staticmethod(gloo.create_device)  # tests ask an instance for it

    class Meta(type):
        def __instancecheck__(cls, instance):
            return isinstance(instance, (gloo, _backend.AmldistBackend, _backend.AmldistGroup))

        def __getattr__(cls, name):
            return getattr(gloo, name)

    class ProcessGroupGloo(metaclass=Meta):
        def __new__(cls, store, rank, size, options=None, timeout=None, **_):
            asked = dist.distributed_c10d._DistributedBackendOptions()
            asked.store, asked.group_rank, asked.group_size, asked.group_id = store, rank, size, ""
            with open(os.environ["UPSTREAM_MADE"], "a") as made:
                made.write(".")
            asked.timeout = timeout or getattr(options, "_timeout", None) or dist.default_pg_timeout
            return _backend.create(asked, None)

    return ProcessGroupGloo


def fork_workers() -> None:
    """Importing PyTorch in every worker of every test would take most of the time."""
    import importlib.abc
    import sys

    name = "torch.testing._internal.common_distributed"

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, fullname, path, target=None):
            if fullname != name:
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(fullname)
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                import torch.multiprocessing

                def spawn(self):
                    self._start_processes(torch.multiprocessing.get_context("fork").Process)

                module.MultiProcessTestCase._spawn_processes = spawn

            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder())
