"""An array as the library sees it: an address, a number of elements and their type. Nothing is copied."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Optional

#: Numbers of amldist_type by the names that NumPy and PyTorch use.
TYPES = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
    "int16": 10,
    "uint16": 11,
    "bool": 12,
}
SIZES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 2, 2, 1)
#: Numbers of amldist_op.
OPERATORS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4, "band": 5, "bor": 6, "bxor": 7}

_FORMATS = {"b": 0, "B": 1, "c": 1, "e": 6, "f": 7, "d": 8, "?": 12}
_INTEGERS = {1: (0, 1), 2: (10, 11), 4: (2, 3), 8: (4, 5)}
_FORMATS.update((code, _INTEGERS[ctypes.sizeof(kind)][0]) for code, kind in (
    ("h", ctypes.c_short), ("i", ctypes.c_int), ("l", ctypes.c_long), ("q", ctypes.c_longlong)))
_FORMATS.update((code, _INTEGERS[ctypes.sizeof(kind)][1]) for code, kind in (
    ("H", ctypes.c_ushort), ("I", ctypes.c_uint), ("L", ctypes.c_ulong), ("Q", ctypes.c_ulonglong)))


class Array:
    """A buffer as the library sees it. ``owner`` keeps the memory where it is."""

    __slots__ = ("address", "count", "on_device", "owner", "type")

    def __init__(self, address: Optional[int], count: int, kind: int, owner: object, on_device: bool = False) -> None:
        self.address = address
        self.count = count
        self.type = kind
        self.owner = owner
        self.on_device = on_device


class _PyBuffer(ctypes.Structure):
    """Py_buffer. It is not in CPython's limited interface before 3.11, but its layout is that of 3.0."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer.restype = ctypes.c_void_p


def _read_only_address(view: memoryview) -> Optional[int]:
    buffer = _PyBuffer()
    _get_buffer(view, ctypes.byref(buffer), 0x20 | 0x18)  # PyBUF_C_CONTIGUOUS
    address: Optional[int] = buffer.buf
    _release_buffer(ctypes.byref(buffer))  # the memoryview still holds the memory
    return address


def _of_view(view: memoryview, what: str, writable: bool) -> Array:
    if not view.c_contiguous:
        raise ValueError(f"{what} is not contiguous: pass a contiguous copy of it (numpy.ascontiguousarray)")
    if writable and view.readonly:
        raise ValueError(f"{what} is read-only, and the result is to be written into it")
    code = view.format[1:] if view.format[:1] in "@=<" else view.format
    kind = _FORMATS.get(code)
    if kind is None or (view.format[:1] in "=<" and view.itemsize != SIZES[kind]):
        raise TypeError(f"{what} has elements of format {view.format!r}, which no collective takes: {_KNOWN}")
    if view.nbytes == 0:
        return Array(None, 0, kind, view)
    if view.readonly:
        return Array(_read_only_address(view), view.nbytes // view.itemsize, kind, view)
    return Array(ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes // view.itemsize, kind, view)


_KNOWN = "convert them to one of " + ", ".join(sorted(TYPES))


class _DLTensor(ctypes.Structure):
    """DLTensor of DLPack, which is the first member of DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
_CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
_DL_TYPES = {
    (0, 8): 0, (1, 8): 1, (0, 32): 2, (1, 32): 3, (0, 64): 4, (1, 64): 5,
    (2, 16): 6, (2, 32): 7, (2, 64): 8, (4, 16): 9, (0, 16): 10, (1, 16): 11, (6, 8): 12,
}  # fmt: skip


def _is_contiguous(tensor: _DLTensor) -> bool:
    if not tensor.strides:
        return True
    expected = 1
    for axis in reversed(range(tensor.ndim)):
        if tensor.shape[axis] != 1 and tensor.strides[axis] != expected:
            return False
        expected *= int(tensor.shape[axis])
    return True


def _of_capsule(capsule: Any, what: str) -> Array:
    tensor = ctypes.cast(_capsule_pointer(capsule, b"dltensor"), ctypes.POINTER(_DLTensor))[0]
    kind = _DL_TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if kind is None:
        raise TypeError(f"{what} has elements of DLPack's type {tensor.code} with {tensor.bits} bits: {_KNOWN}")
    count = 1
    for axis in range(tensor.ndim):
        count *= int(tensor.shape[axis])
    if count and not _is_contiguous(tensor):
        raise ValueError(f"{what} is not contiguous: pass a contiguous copy of it")
    if tensor.device_type not in (*_HOST_DEVICES, *_CUDA_DEVICES):
        raise ValueError(f"{what} lies on a device of DLPack's type {tensor.device_type}: use CPU or CUDA")
    address = (tensor.data or 0) + int(tensor.byte_offset)
    return Array(address if count else None, count, kind, capsule, tensor.device_type in _CUDA_DEVICES)


def array_of(array: Any, what: str, writable: bool) -> Array:
    """The buffer of an object with the buffer protocol, or with DLPack.

    Errors: TypeError for an object that has neither, and for element types that no collective takes; ValueError for
    memory that is not contiguous, is read-only but would be written, or lies on a device that cannot be used.
    """
    if array is None:
        return Array(None, 0, 0, None)
    try:
        view = memoryview(array)
    except (TypeError, ValueError, BufferError):
        pass
    else:
        return _of_view(view, what, writable)
    if hasattr(array, "__dlpack__"):
        if hasattr(array, "is_neg") and array.is_neg():  # PyTorch exports the numbers in memory, which have the other sign
            raise ValueError(f"{what} is negated only when it is read: pass tensor.resolve_neg()")
        try:
            capsule = array.__dlpack__()
        except (BufferError, RuntimeError, TypeError) as error:
            raise ValueError(f"{what} cannot be exported by DLPack: {error}") from error
        return _of_capsule(capsule, what)
    raise TypeError(
        f"{what} is a {type(array).__name__}: pass an object with the buffer protocol (NumPy, array.array, bytearray) "
        "or with DLPack (PyTorch, JAX, CuPy)"
    )


def operator_of(op: str) -> int:
    """Number of a reduction operator. Errors: ValueError."""
    try:
        return OPERATORS[op]
    except (KeyError, TypeError):
        raise ValueError(f"op is {op!r}: it must be one of {', '.join(OPERATORS)}") from None


def type_of(dtype: Any) -> int:
    """Number of an element type, by a name such as "float32" or an object with such a name. Errors: TypeError."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", str(dtype))
    kind = TYPES.get(str(name).rpartition(".")[2])
    if kind is None:
        raise TypeError(f"dtype is {dtype!r}: it must be one of {', '.join(sorted(TYPES))}")
    return kind


def whole_numbers(numbers: Any, what: str) -> list[int]:
    """Counts, offsets or sizes, which ctypes would cut to other ones where they are no size_t. Errors: ValueError."""
    entries = list(numbers)
    listed = [int(entry) for entry in entries]
    for number, given in zip(listed, entries):
        if number < 0:
            raise ValueError(f"{what} has a negative entry: {listed}")
        if number != given or number > sys.maxsize:
            raise ValueError(f"{what} has the entry {given}: each must be a whole number of at most {sys.maxsize}")
    return listed


def sizes_of(numbers: Any, entries: int, what: str) -> Any:
    """A list of counts or offsets as size_t[]. Errors: ValueError."""
    listed = whole_numbers(numbers, what)
    if len(listed) != entries:
        raise ValueError(f"{what} has {len(listed)} entries: one for each of the {entries} ranks is needed")
    return (ctypes.c_size_t * entries)(*listed)


def offsets_of(counts: Any) -> list[int]:
    """Where each rank's part begins if the parts are adjacent."""
    offsets, total = [], 0
    for count in counts:
        offsets.append(total)
        total += int(count)
    return offsets
