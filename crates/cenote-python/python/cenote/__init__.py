"""Memory for tensors: shared between processes without copying."""

from ._cenote import Tensor, TensorPool, __version__, copies
from ._errors import *
from ._errors import __all__ as _errors

__all__ = ["Tensor", "TensorPool", "__version__", "copies", *_errors]
