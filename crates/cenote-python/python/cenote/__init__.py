"""Memory for tensors: shared between processes without copying."""

from . import _multiprocessing as _multiprocessing
from ._cenote import Tensor, TensorPool, __version__, copies, in_transit
from ._errors import *
from ._errors import __all__ as _errors

__all__ = ["Tensor", "TensorPool", "__version__", "copies", "in_transit", *_errors]
