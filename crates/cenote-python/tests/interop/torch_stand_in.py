"""Consumes DLPack capsules as torch does: it accepts all memory of the CPU, ignores the flags, and writes the memory.

It reads the structures with ctypes, and calls the deleter when the tensor is gone.
"""

import ctypes
import weakref

import numpy as np


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    ]  # fmt: skip


class Versioned(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64), ("tensor", DLTensor),
    ]  # fmt: skip


_api = ctypes.pythonapi
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_USED = b"used_dltensor_versioned"  # global, because a capsule does not copy its name


class Tensor:
    """A tensor that is always writable."""

    def __init__(self, pointer):
        managed = Versioned.from_address(pointer)
        tensor = managed.tensor
        assert list(tensor.device) == [1, 0] and managed.version[0] == 1
        dtype = np.dtype(f"{_KINDS[tensor.dtype.code]}{tensor.dtype.bits // 8}")
        shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
        strides = tuple(tensor.strides[axis] * dtype.itemsize for axis in range(tensor.ndim))
        self.address = tensor.data + tensor.offset
        self.flags = managed.flags
        span = dtype.itemsize + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
        memory = (ctypes.c_char * span).from_address(self.address)
        self.array = np.ndarray(shape, dtype, memory, strides=strides)
        weakref.finalize(self, managed.deleter, pointer)

    def fill_(self, value):
        self.array[...] = value


def from_dlpack(x):
    capsule = x.__dlpack__(max_version=(1, 0))
    pointer = _api.PyCapsule_GetPointer(capsule, b"dltensor_versioned")
    _api.PyCapsule_SetName(capsule, _USED)
    return Tensor(pointer)
