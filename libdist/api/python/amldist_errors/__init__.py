"""Leaves the exception that ends a rank to `aml-dist: first failure: ...`, which srun prints.

`amldist_errors.pth` calls install() in every Python of this environment, so that programs need not know of it; without
`srun --aml-dist=...` it does nothing. Where no .pth file is read (PYTHONPATH), `import amldist` does the same. What is
written lies in the folder of the step's that only its user may read, and the node removes it.
"""

from __future__ import annotations

import os

_MOST = 2000  # bytes of each field; the line takes 200


def install() -> None:
    """In a task of a step with aml-dist sets the hooks of sys and threading, before those that are there; else nothing."""
    if "AMLDIST_STAMP" not in os.environ or "SLURM_PROCID" not in os.environ:
        return
    import sys
    import threading

    if getattr(sys.excepthook, "_amldist", False):
        return
    before, before_in_threads = sys.excepthook, threading.excepthook

    def hook(kind, error, trace):  # type: ignore[no-untyped-def]
        _note(kind, error, trace, of_thread=False)
        before(kind, error, trace)

    def hook_of_threads(args):  # type: ignore[no-untyped-def]
        _note(args.exc_type, args.exc_value, args.exc_traceback, of_thread=True)
        before_in_threads(args)

    hook._amldist = True  # type: ignore[attr-defined]
    sys.excepthook, threading.excepthook = hook, hook_of_threads
    faults = _Faults()
    if "faulthandler" in sys._xoptions or sys.flags.dev_mode or os.environ.get("PYTHONFAULTHANDLER"):
        faults.report()
    sys.meta_path.insert(0, faults)


class _Faults:
    """Lets libamldist note why the process is aborted, and where: once the program loads faulthandler or has ctypes, and again for PyTorch, whose
    C++ library is there by then. It finds no module; a program with none of them does not pay for it."""

    def __init__(self) -> None:
        self.arguments: "tuple[int, ...]" = ()
        self.is_tried = False

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        import sys

        if name == "torch.distributed" or not self.is_tried and (name == "faulthandler" or hasattr(sys.modules.get("ctypes"), "CDLL")):
            self.report()
        return None

    def report(self) -> None:
        """Never raises: the program's import goes on."""
        self.is_tried = True
        try:
            import ctypes

            library = ctypes.CDLL(_library())
            self.arguments = self.arguments or _traceback()
            library.amldist_report_faults(*self.arguments)
        except BaseException:  # noqa: BLE001, S110
            pass


def _traceback() -> "tuple[int, int]":
    """A signal whose handler writes this thread's traceback into a file, and the file."""
    import faulthandler
    import signal

    number = signal.SIGRTMAX - 3  # any that nobody uses
    if signal.getsignal(number) != signal.SIG_DFL:
        return (0, -1)
    file = os.memfd_create("amldist-traceback")
    faulthandler.register(number, file=file, all_threads=False)
    return (int(number), file)


def _library() -> str:
    """As amldist finds it, without loading that package."""
    beside = os.path.join(os.path.dirname(os.path.dirname(__file__)), "amldist", "libamldist.so.0")
    return os.environ.get("AMLDIST_LIBRARY") or (beside if os.path.exists(beside) else "libamldist.so.0")


def _note(kind, error, trace, of_thread) -> None:  # type: ignore[no-untyped-def]
    """Never raises: the user's own traceback is to be printed."""
    try:
        if issubclass(kind, Exception):
            _write(_text(kind, error, trace), of_thread)
    except BaseException:  # noqa: BLE001, S110
        pass


def _text(kind, error, trace) -> bytes:  # type: ignore[no-untyped-def]
    import time

    name = kind.__name__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__name__}"
    try:
        said = str(error)
    except Exception:  # a program's own __str__ may raise
        said = ""
    file, line, function = _place(trace)
    fields = ["amldist-error 1", str(int(time.monotonic())), name, said[:_MOST] + _limit(error), file, str(line), function]
    return b"".join(_one_line(field) + b"\n" for field in fields)


def _one_line(text: str) -> bytes:
    return "".join(c if " " <= c <= "~" else " " if c in "\n\t\r" else "?" for c in text[: 2 * _MOST]).encode("ascii")


def _place(trace) -> "tuple[str, int, str]":  # type: ignore[no-untyped-def]
    """The innermost place in the user's own program; in a library where all of it is one."""
    place = own = ("", 0, "")
    while trace is not None:
        code = trace.tb_frame.f_code
        place = (code.co_filename, trace.tb_lineno, code.co_name)
        if not _is_library(code.co_filename):
            own = place
        trace = trace.tb_next
    return own if own[0] else place


def _is_library(file: str) -> bool:
    return file.startswith("<") or "/site-packages/" in file or "/dist-packages/" in file or "/lib/python3" in file


def _limit(error) -> str:  # type: ignore[no-untyped-def]
    """The limit on the address space, if it may be why memory was refused that the node has."""
    import errno

    if not isinstance(error, MemoryError) and getattr(error, "errno", None) != errno.ENOMEM:
        return ""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return "" if soft == resource.RLIM_INFINITY else f" (its address space is limited to {soft / 2**30:.1f} GiB: ulimit -v)"


def _write(text: bytes, of_thread: bool) -> None:
    step, rank = os.environ["AMLDIST_STAMP"].split(" ")[0], int(os.environ["SLURM_PROCID"])
    if not step or step.startswith(".") or not all(c.isalnum() or c in "._-" for c in step):
        return
    for root in ("/dev/shm", "/tmp"):
        try:
            return _write_below(root, step, f"{rank}.error", text, of_thread)
        except OSError:  # not writable: the next place
            continue


def _write_below(root: str, step: str, name: str, text: bytes, of_thread: bool) -> None:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in (f"aml-dist-{os.geteuid()}", step):
            try:
                os.mkdir(part, 0o700, dir_fd=folder)
            except FileExistsError:
                pass
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
            status = os.fstat(folder)
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise PermissionError(root)
        _write_file(folder, name, text, of_thread)
    finally:
        os.close(folder)


def _write_file(folder: int, name: str, text: bytes, of_thread: bool) -> None:
    """The first exception counts: a launcher fails because of what its worker has written. One in a thread may not be the end."""
    path = f".{name}.{os.getpid()}"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        os.write(file, text)
    finally:
        os.close(file)
    try:
        target = name if not of_thread else name + ".thread"
        os.link(path, target, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        pass
    finally:
        os.unlink(path, dir_fd=folder)
