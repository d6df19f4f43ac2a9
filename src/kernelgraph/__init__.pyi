# Written by `python -m tests.types.stubs` with NumPy 2.4; not by hand.
# fmt: off
# ruff: noqa

import builtins
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload
import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from numpy import bool_ as bool_, int8 as int8, int16 as int16, int32 as int32, int64 as int64, uint8 as uint8, uint16 as uint16, uint32 as uint32, uint64 as uint64, float16 as float16, float32 as float32, float64 as float64, complex64 as complex64, complex128 as complex128
from .dsl.api.random import Key as _Key
from .dsl.array.array import Array as Array, array as array, asarray as asarray
from .dsl.array.devices import DeviceName as DeviceName, DeviceUnavailableError as DeviceUnavailableError, device as device
from .dsl.core.errors import ArgumentsError as ArgumentsError, AxisError as AxisError, ConversionError as ConversionError, DTypeError as DTypeError, EscapedValueError as EscapedValueError, FallbackWarning as FallbackWarning, IndexingError as IndexingError, NotFiniteError as NotFiniteError, NumberError as NumberError, OptionError as OptionError, ReadOnlyError as ReadOnlyError, ShapeError as ShapeError, TraceError as TraceError, UnsupportedError as UnsupportedError, UserError as UserError
from .dsl.array.transfer import pinned_empty as pinned_empty, prefetch as prefetch, to_device as to_device, wait as wait
from .dsl.array.in_flight import waitall as waitall
from .dsl.gradients.batching import hessian as hessian, hvp as hvp, jacobian as jacobian, vmap as vmap
from .dsl.gradients.custom_rules import checkpoint as checkpoint, custom_jvp as custom_jvp, custom_vjp as custom_vjp, stop_gradient as stop_gradient
from .dsl.gradients.gradients import grad as grad, jvp as jvp, linearize as linearize, value_and_grad as value_and_grad, vjp as vjp
from .dsl.devices.collectives import all_gather as all_gather, all_reduce as all_reduce, all_to_all as all_to_all, broadcast as broadcast, permute as permute, reduce_scatter as reduce_scatter
from .dsl.devices import distributed as distributed
from .dsl.stores import optimizer as optimizer
from .dsl.devices.checkpoints import load_sharded as load_sharded, save_sharded as save_sharded
from .dsl.devices.data_parallel import DataParallel as DataParallel
from .dsl.stores.kvstore import KVStore as KVStore
from .dsl.devices.mesh import Mesh as Mesh, Sharded as Sharded, replicate as replicate, shard as shard
from .dsl.devices.places import place as place
from .dsl.stores.row_sparse import RowSparse as RowSparse
from .dsl.jit.kernel_graph import KernelGraph as KernelGraph, kernel_graph as kernel_graph
from .dsl.report.comparison import Comparison as Comparison, compare as compare
from .dsl.report.report import Report as Report
from .dsl.array.memory import empty_cache as empty_cache, memory as memory, memory_limit as memory_limit, memory_stats as memory_stats, use_allocator as use_allocator
from .dsl.api.custom_calls import host as host, kernel as kernel
from .dsl.api.elementwise import Elementwise as Elementwise, elementwise as elementwise
from .dsl.api.profile import Profile as Profile, profile as profile
from .dsl.core.precision import precision as precision
from .dsl.core.spec import Spec as Spec, spec as spec
from .dsl.array.streams import Event as Event, Stream as Stream, current_stream as current_stream, default_stream as default_stream, stream as stream, synchronize as synchronize
from .runtime.core.errors import CompileError as CompileError, DeviceLost as DeviceLost, KernelGraphError as KernelGraphError, LaunchError as LaunchError, OutOfMemory as OutOfMemory, PlanError as PlanError, RankError as RankError
from .runtime.core.settings import override as override, settings as settings
from ml_dtypes import bfloat16 as bfloat16
from .dsl.api.control_flow import fori_loop as fori_loop, while_loop as while_loop, cond as cond, scan as scan
from .dsl.api.array_api_info import finfo as finfo, iinfo as iinfo, isdtype as isdtype, from_dlpack as from_dlpack
from .dsl.api.array_api_info import info as __array_namespace_info__

__all__ = ['ArgumentsError', 'Array', 'AxisError', 'Comparison', 'CompileError', 'ConversionError', 'DTypeError', 'DataParallel', 'DeviceLost', 'DeviceName', 'DeviceUnavailableError', 'Elementwise', 'EscapedValueError', 'Event', 'FallbackWarning', 'IndexingError', 'KVStore', 'KernelGraph', 'KernelGraphError', 'LaunchError', 'Mesh', 'NotFiniteError', 'NumberError', 'OptionError', 'OutOfMemory', 'PlanError', 'Profile', 'RankError', 'ReadOnlyError', 'Report', 'RowSparse', 'ShapeError', 'Sharded', 'Spec', 'Stream', 'TraceError', 'UnsupportedError', 'UserError', 'all_gather', 'all_reduce', 'all_to_all', 'array', 'asarray', 'bfloat16', 'broadcast', 'checkpoint', 'compare', 'current_stream', 'custom_jvp', 'custom_vjp', 'default_stream', 'device', 'distributed', 'elementwise', 'empty_cache', 'grad', 'hessian', 'host', 'hvp', 'jacobian', 'jvp', 'kernel', 'kernel_graph', 'linearize', 'load_sharded', 'memory', 'memory_limit', 'memory_stats', 'optimizer', 'override', 'permute', 'pinned_empty', 'place', 'precision', 'prefetch', 'profile', 'reduce_scatter', 'replicate', 'save_sharded', 'settings', 'shard', 'spec', 'stop_gradient', 'stream', 'synchronize', 'to_device', 'use_allocator', 'value_and_grad', 'vjp', 'vmap', 'wait', 'waitall']
__version__: str
__array_api_version__: str
e: float
pi: float
inf: float
nan: float
newaxis: None
bool = np.bool_

_Arrays: TypeAlias = Array | np.ndarray
S = TypeVar("S", bound=np.generic)

class EigResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array

class EighResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array

class QRResult(NamedTuple):
    Q: Array
    R: Array

class SVDResult(NamedTuple):
    U: Array
    S: Array
    Vh: Array

class SlogdetResult(NamedTuple):
    sign: Array
    logabsdet: Array

class UniqueAllResult(NamedTuple):
    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array

class UniqueCountsResult(NamedTuple):
    values: Array
    counts: Array

class UniqueInverseResult(NamedTuple):
    values: Array
    inverse_indices: Array

def abs(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Calculate the absolute value element-wise."""
def absolute(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Calculate the absolute value element-wise."""
def acos(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Trigonometric inverse cosine, element-wise."""
def acosh(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Inverse hyperbolic cosine, element-wise."""
def add(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Add arguments element-wise."""
def all(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, keepdims: builtins.bool = ..., *, where: ArrayLike = ...) -> Array:
    """Test whether all array elements along a given axis evaluate to True."""
def allclose(a: ArrayLike, b: ArrayLike, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: builtins.bool = False) -> builtins.bool:
    """Returns True if two arrays are element-wise equal within a tolerance."""
def amax(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, keepdims: builtins.bool = ..., initial: Any = ..., where: ArrayLike = ...) -> Array:
    """Return the maximum of an array or maximum along an axis."""
def amin(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, keepdims: builtins.bool = ..., initial: Any = ..., where: ArrayLike = ...) -> Array:
    """Return the minimum of an array or minimum along an axis."""
def angle(z: Any, deg: Any = False) -> Array:
    """Return the angle of the complex argument."""
def any(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, keepdims: builtins.bool = ..., *, where: ArrayLike = ...) -> Array:
    """Test whether any array element along a given axis evaluates to True."""
def append(arr: ArrayLike, values: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """Append values to the end of an array."""
def apply_along_axis(func1d: Any, axis: int | Sequence[int] | None, arr: ArrayLike, *args: Any, **kwargs: Any) -> Array:
    """Apply a function to 1-D slices along the given axis."""
def apply_over_axes(func: Any, a: ArrayLike, axes: int | Sequence[int] | None) -> Array:
    """Apply a function repeatedly over multiple axes."""
@overload
def arange(start_or_stop: Any, /, stop: Any = None, step: Any = 1, *, dtype: type[S] | np.dtype[S], device: str | None = None, like: Any = None) -> Array[S]:
    """arange([start,] stop[, step,], dtype=None, *, device=None, like=None)."""
@overload
def arange(start_or_stop: Any, /, stop: Any = None, step: Any = 1, *, dtype: DTypeLike | None = None, device: str | None = None, like: Any = None) -> Array:
    """arange([start,] stop[, step,], dtype=None, *, device=None, like=None)."""
def arccos(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Trigonometric inverse cosine, element-wise."""
def arccosh(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Inverse hyperbolic cosine, element-wise."""
def arcsin(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Inverse sine, element-wise."""
def arcsinh(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Inverse hyperbolic sine element-wise."""
def arctan(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Trigonometric inverse tangent, element-wise."""
def arctan2(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Element-wise arc tangent of ``x1/x2`` choosing the quadrant correctly."""
def arctanh(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Inverse hyperbolic tangent element-wise."""
def argmax(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, *, keepdims: builtins.bool = ...) -> Array:
    """Returns the indices of the maximum values along an axis."""
def argmin(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, *, keepdims: builtins.bool = ...) -> Array:
    """Returns the indices of the minimum values along an axis."""
def argpartition(a: ArrayLike, kth: Any, axis: int | Sequence[int] | None = -1, kind: Any = 'introselect', order: str | None = None) -> Array:
    """Perform an indirect partition along the given axis using the algorithm specified by the `kind` keyword."""
def argsort(a: ArrayLike, axis: int | None = -1, kind: Any = None, order: str | None = None, *, stable: builtins.bool | None = None, descending: builtins.bool = False) -> Array:
    """`kg.argsort`, traced or not: np.argsort, and the Array API's `descending`; stable unless `kind` is given."""
def argwhere(a: ArrayLike) -> Array:
    """Find the indices of array elements that are non-zero, grouped by element."""
def around(a: ArrayLike, decimals: Any = 0, out: Any = None) -> Array:
    """Round an array to the given number of decimals."""
def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: builtins.bool = False) -> builtins.bool:
    """True if two arrays have the same shape and elements, False otherwise."""
def array_equiv(a1: ArrayLike, a2: ArrayLike) -> builtins.bool:
    """Returns True if input arrays are shape consistent and all elements equal."""
def array_split(ary: ArrayLike, indices_or_sections: Any, axis: int | Sequence[int] | None = 0) -> list[Array]:
    """Split an array into multiple sub-arrays."""
def asin(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Inverse sine, element-wise."""
def asinh(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Inverse hyperbolic sine element-wise."""
@overload
def astype(x: ArrayLike, dtype: type[S] | np.dtype[S], /, *, copy: Any = True, device: str | None = None) -> Array[S]:
    """Copies an array to a specified data type."""
@overload
def astype(x: ArrayLike, dtype: DTypeLike | None, /, *, copy: Any = True, device: str | None = None) -> Array:
    """Copies an array to a specified data type."""
def atan(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Trigonometric inverse tangent, element-wise."""
def atan2(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Element-wise arc tangent of ``x1/x2`` choosing the quadrant correctly."""
def atanh(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Inverse hyperbolic tangent element-wise."""
def atleast_1d(*arys: Any) -> Array:
    """Convert inputs to arrays with at least one dimension."""
def atleast_2d(*arys: Any) -> Array:
    """View inputs as arrays with at least two dimensions."""
def atleast_3d(*arys: Any) -> Array:
    """View inputs as arrays with at least three dimensions."""
@overload
def average(a: ArrayLike, axis: int | Sequence[int] | None = None, weights: Any = None, *, keepdims: builtins.bool = ...) -> Array:
    """Compute the weighted average along the specified axis."""
@overload
def average(a: ArrayLike, axis: int | Sequence[int] | None = None, weights: Any = None, returned: Any = False, *, keepdims: builtins.bool = ...) -> Any:
    """Compute the weighted average along the specified axis."""
def bartlett(M: Any) -> Array:
    """Return the Bartlett window."""
def bincount(x: ArrayLike, /, weights: Any = None, minlength: Any = 0) -> Array:
    """Count number of occurrences of each value in array of non-negative ints."""
def bitwise_and(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute the bit-wise AND of two arrays element-wise."""
def bitwise_count(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Computes the number of 1-bits in the absolute value of ``x``."""
def bitwise_invert(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute bit-wise inversion, or bit-wise NOT, element-wise."""
def bitwise_left_shift(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Shift the bits of an integer to the left."""
def bitwise_not(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute bit-wise inversion, or bit-wise NOT, element-wise."""
def bitwise_or(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute the bit-wise OR of two arrays element-wise."""
def bitwise_right_shift(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Shift the bits of an integer to the right."""
def bitwise_xor(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute the bit-wise XOR of two arrays element-wise."""
def blackman(M: Any) -> Array:
    """Return the Blackman window."""
def block(arrays: Any) -> Array:
    """Assemble an nd-array from nested lists of blocks."""
def broadcast_arrays(*args: Any, subok: builtins.bool = False) -> tuple[Array, ...]:
    """Broadcast any number of arrays against each other."""
def broadcast_to(array: ArrayLike, shape: int | Sequence[int], subok: builtins.bool = False) -> Array:
    """Broadcast an array to a new shape."""
def can_cast(from_: Any, to: Any, casting: str = 'safe') -> builtins.bool:
    """can_cast(from_, to, casting='safe')."""
def cbrt(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the cube-root of an array, element-wise."""
def ceil(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the ceiling of the input, element-wise."""
def choose(a: ArrayLike, choices: Any, out: Any = None, mode: Any = 'raise') -> Array:
    """Construct an array from an index array and a list of arrays to choose from."""
def clip(a: ArrayLike, /, min: Any = None, max: Any = None, out: Any = None, **options: Any) -> Array:
    """min(max(a, min), max); None is no bound."""
def column_stack(tup: Any) -> Array:
    """Stack 1-D arrays as columns into a 2-D array."""
def compress(condition: ArrayLike, a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None) -> Array:
    """Return selected slices of an array along given axis."""
def concat(arrays: Any, /, axis: int | Sequence[int] | None = 0, out: Any = None, *, dtype: DTypeLike | None = None, casting: str = 'same_kind') -> Array:
    """Join a sequence of arrays along an existing axis."""
def concatenate(arrays: Any, /, axis: int | Sequence[int] | None = 0, out: Any = None, *, dtype: DTypeLike | None = None, casting: str = 'same_kind') -> Array:
    """Join a sequence of arrays along an existing axis."""
def conj(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the complex conjugate, element-wise."""
def conjugate(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the complex conjugate, element-wise."""
def convolve(a: ArrayLike, v: ArrayLike, mode: Any = 'full') -> Array:
    """Returns the discrete, linear convolution of two one-dimensional sequences."""
def copy(a: ArrayLike, order: str | None = 'K', subok: builtins.bool = False) -> Array:
    """Return an array copy of the given object."""
def copysign(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Change the sign of x1 to that of x2, element-wise."""
def copyto(dst: Any, src: Any, casting: str = 'same_kind', where: ArrayLike = True) -> None:
    """copyto(dst, src, casting='same_kind', where=True)."""
def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: Any = True, *, dtype: DTypeLike | None = None) -> Array:
    """Return Pearson product-moment correlation coefficients."""
def correlate(a: ArrayLike, v: ArrayLike, mode: Any = 'valid') -> Array:
    """Cross-correlation of two 1-dimensional sequences."""
def cos(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Cosine element-wise."""
def cosh(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Hyperbolic cosine, element-wise."""
def count_nonzero(a: ArrayLike, axis: int | Sequence[int] | None = None, *, keepdims: builtins.bool = False) -> Array:
    """Counts the number of non-zero values in the array ``a``."""
def cov(m: ArrayLike, y: ArrayLike | None = None, rowvar: Any = True, bias: Any = False, ddof: Any = None, fweights: Any = None, aweights: Any = None, *, dtype: DTypeLike | None = None) -> Array:
    """Estimate a covariance matrix, given data and weights."""
def cross(a: ArrayLike, b: ArrayLike, axisa: Any = -1, axisb: Any = -1, axisc: Any = -1, axis: int | Sequence[int] | None = None) -> Array:
    """Return the cross product of two (arrays of) vectors."""
def cumprod(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Array:
    """Return the cumulative product of elements along a given axis."""
def cumsum(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Array:
    """Return the cumulative sum of the elements along a given axis."""
def cumulative_prod(x: ArrayLike, /, *, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None, include_initial: Any = False) -> Array:
    """Return the cumulative product of elements along a given axis."""
def cumulative_sum(x: ArrayLike, /, *, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None, include_initial: Any = False) -> Array:
    """Return the cumulative sum of the elements along a given axis."""

class debug:
    @staticmethod
    def check_finite(x: ArrayLike, name: str = '') -> Any:
        """`x`, of any shape and dtype."""
    @staticmethod
    def print(*values: Any, sep: str = ' ', end: str = '\n', file: Any = None) -> None:
        """Python's `print` of the values that arrays have, at each call of the traced function."""
def deg2rad(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Convert angles from degrees to radians."""
def degrees(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Convert angles from radians to degrees."""
def delete(arr: ArrayLike, obj: Any, axis: int | Sequence[int] | None = None) -> Array:
    """Return a new array with sub-arrays along an axis deleted."""
def diag(v: ArrayLike, k: Any = 0) -> Array:
    """Extract a diagonal or construct a diagonal array."""
def diagflat(v: ArrayLike, k: Any = 0) -> Array:
    """Create a two-dimensional array with the flattened input as a diagonal."""
def diagonal(a: ArrayLike, offset: Any = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Return specified diagonals."""
def diff(a: ArrayLike, n: Any = 1, axis: int | Sequence[int] | None = -1, prepend: Any = ..., append: Any = ...) -> Array:
    """Calculate the n-th discrete difference along the given axis."""
def digitize(x: ArrayLike, bins: Any, right: Any = False) -> Array:
    """Return the indices of the bins to which each value in input array belongs."""
def divide(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Divide arguments element-wise."""
def divmod(x1: ArrayLike, x2: ArrayLike, /, out: Any = ..., *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> tuple[Array, Array]:
    """Return element-wise quotient and remainder simultaneously."""
def dot(a: ArrayLike, b: ArrayLike, out: Any = None) -> Array:
    """dot(a, b, out=None)."""
def dsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Split array into multiple sub-arrays along the 3rd axis (depth)."""
def dstack(tup: Any) -> Array:
    """Stack arrays in sequence depth wise (along third axis)."""
def ediff1d(ary: ArrayLike, to_end: Any = None, to_begin: Any = None) -> Array:
    """The differences between consecutive elements of an array."""
def einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Array:
    """einsum(subscripts, *operands, out=None, dtype=None, order='K', casting='safe', optimize=False)."""
def einsum_path(*operands: Any, optimize: Any = 'greedy', einsum_call: Any = False) -> Any:
    """einsum_path(subscripts, *operands, optimize='greedy')."""
@overload
def empty(shape: int | Sequence[int], dtype: type[S] | np.dtype[S], order: str | None = 'C', *, device: str | None = None, like: Any = None) -> Array[S]:
    """empty(shape, dtype=None, order='C', *, device=None, like=None)."""
@overload
def empty(shape: int | Sequence[int], dtype: DTypeLike | None = None, order: str | None = 'C', *, device: str | None = None, like: Any = None) -> Array:
    """empty(shape, dtype=None, order='C', *, device=None, like=None)."""
@overload
def empty_like(prototype: Any, /, dtype: type[S] | np.dtype[S], order: str | None = 'K', subok: builtins.bool = True, shape: int | Sequence[int] | None = None, *, device: str | None = None) -> Array[S]:
    """Return a new array with the same shape and type as a given array."""
@overload
def empty_like(prototype: Any, /, dtype: DTypeLike | None = None, order: str | None = 'K', subok: builtins.bool = True, shape: int | Sequence[int] | None = None, *, device: str | None = None) -> Array:
    """Return a new array with the same shape and type as a given array."""
def equal(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return (x1 == x2) element-wise."""
def erf(x: ArrayLike) -> Array:
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
def erfc(x: ArrayLike) -> Array:
    """1 - erf(x), without cancellation."""
def exp(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Calculate the exponential of all elements in the input array."""
def exp2(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Calculate `2**p` for all `p` in the input array."""
def expand_dims(a: ArrayLike, axis: int | Sequence[int] | None) -> Array:
    """Expand the shape of an array."""
def expm1(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Calculate ``exp(x) - 1`` for all elements in the array."""
def extract(condition: ArrayLike, arr: ArrayLike) -> Array:
    """Return the elements of an array that satisfy some condition."""
@overload
def eye(N: Any, M: Any = None, k: Any = 0, *, dtype: type[S] | np.dtype[S], order: str | None = 'C', device: str | None = None, like: Any = None) -> Array[S]:
    """Return a 2-D array with ones on the diagonal and zeros elsewhere."""
@overload
def eye(N: Any, M: Any = None, k: Any = 0, dtype: DTypeLike | None = ..., order: str | None = 'C', *, device: str | None = None, like: Any = None) -> Array:
    """Return a 2-D array with ones on the diagonal and zeros elsewhere."""
def fabs(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute the absolute values element-wise."""

class fft:
    @staticmethod
    def fft(a: ArrayLike, n: Any = None, axis: int | Sequence[int] | None = -1, norm: Any = None, out: Any = None) -> Array:
        """Compute the one-dimensional discrete Fourier Transform."""
    @staticmethod
    def fft2(a: ArrayLike, s: Any = None, axes: int | Sequence[int] | None = ..., norm: Any = None, out: Any = None) -> Array:
        """Compute the 2-dimensional discrete Fourier Transform."""
    @staticmethod
    def fftfreq(n: int, d: float = 1.0, device: str | None = None, *, dtype: DTypeLike | None = None) -> Array:
        """Return the Discrete Fourier Transform sample frequencies."""
    @staticmethod
    def fftn(a: ArrayLike, s: Any = None, axes: int | Sequence[int] | None = None, norm: Any = None, out: Any = None) -> Array:
        """Compute the N-dimensional discrete Fourier Transform."""
    @staticmethod
    def fftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
        """Shift the zero-frequency component to the center of the spectrum."""
    @staticmethod
    def hfft(a: ArrayLike, n: Any = None, axis: int | Sequence[int] | None = -1, norm: Any = None, out: Any = None) -> Array:
        """Compute the FFT of a signal that has Hermitian symmetry, i.e., a real spectrum."""
    @staticmethod
    def ifft(a: ArrayLike, n: Any = None, axis: int | Sequence[int] | None = -1, norm: Any = None, out: Any = None) -> Array:
        """Compute the one-dimensional inverse discrete Fourier Transform."""
    @staticmethod
    def ifft2(a: ArrayLike, s: Any = None, axes: int | Sequence[int] | None = ..., norm: Any = None, out: Any = None) -> Array:
        """Compute the 2-dimensional inverse discrete Fourier Transform."""
    @staticmethod
    def ifftn(a: ArrayLike, s: Any = None, axes: int | Sequence[int] | None = None, norm: Any = None, out: Any = None) -> Array:
        """Compute the N-dimensional inverse discrete Fourier Transform."""
    @staticmethod
    def ifftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
        """The inverse of `fftshift`."""
    @staticmethod
    def ihfft(a: ArrayLike, n: Any = None, axis: int | Sequence[int] | None = -1, norm: Any = None, out: Any = None) -> Array:
        """Compute the inverse FFT of a signal that has Hermitian symmetry."""
    @staticmethod
    def irfft(a: ArrayLike, n: Any = None, axis: int | Sequence[int] | None = -1, norm: Any = None, out: Any = None) -> Array:
        """Computes the inverse of `rfft`."""
    @staticmethod
    def irfft2(a: ArrayLike, s: Any = None, axes: int | Sequence[int] | None = ..., norm: Any = None, out: Any = None) -> Array:
        """Computes the inverse of `rfft2`."""
    @staticmethod
    def irfftn(a: ArrayLike, s: Any = None, axes: int | Sequence[int] | None = None, norm: Any = None, out: Any = None) -> Array:
        """Computes the inverse of `rfftn`."""
    @staticmethod
    def rfft(a: ArrayLike, n: Any = None, axis: int | Sequence[int] | None = -1, norm: Any = None, out: Any = None) -> Array:
        """Compute the one-dimensional discrete Fourier Transform for real input."""
    @staticmethod
    def rfft2(a: ArrayLike, s: Any = None, axes: int | Sequence[int] | None = ..., norm: Any = None, out: Any = None) -> Array:
        """Compute the 2-dimensional FFT of a real array."""
    @staticmethod
    def rfftfreq(n: int, d: float = 1.0, device: str | None = None, *, dtype: DTypeLike | None = None) -> Array:
        """Return the Discrete Fourier Transform sample frequencies (for usage with rfft, irfft)."""
    @staticmethod
    def rfftn(a: ArrayLike, s: Any = None, axes: int | Sequence[int] | None = None, norm: Any = None, out: Any = None) -> Array:
        """Compute the N-dimensional discrete Fourier Transform for real input."""
def fill_diagonal(a: ArrayLike, val: Any, wrap: Any = False) -> None:
    """Fill the main diagonal of the given array of any dimensionality."""
def fix(x: ArrayLike, out: Any = None) -> Array:
    """Round to nearest integer towards zero."""
def flatnonzero(a: ArrayLike) -> Array:
    """Return indices that are non-zero in the flattened version of a."""
def flip(m: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """Reverse the order of elements in an array along the given axis."""
def fliplr(m: ArrayLike) -> Array:
    """Reverse the order of elements along axis 1 (left/right)."""
def flipud(m: ArrayLike) -> Array:
    """Reverse the order of elements along axis 0 (up/down)."""
def float_power(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """First array elements raised to powers from second array, element-wise."""
def floor(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the floor of the input, element-wise."""
def floor_divide(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the largest integer smaller or equal to the division of the inputs."""
def fmax(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Element-wise maximum of array elements."""
def fmin(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Element-wise minimum of array elements."""
def fmod(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Returns the element-wise remainder of division."""
def frexp(x: ArrayLike, /, out: Any = ..., *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> tuple[Array, Array]:
    """Decompose the elements of x into mantissa and twos exponent."""
def fromfunction(function: Any, shape: int | Sequence[int], *, dtype: DTypeLike | None = ..., like: Any = None, **kwargs: Any) -> Array:
    """Construct an array by executing a function over each coordinate."""
@overload
def full(shape: int | Sequence[int], fill_value: Any, dtype: type[S] | np.dtype[S], order: str | None = 'C', *, device: str | None = None, like: Any = None) -> Array[S]:
    """Return a new array of given shape and type, filled with `fill_value`."""
@overload
def full(shape: int | Sequence[int], fill_value: Any, dtype: DTypeLike | None = None, order: str | None = 'C', *, device: str | None = None, like: Any = None) -> Array:
    """Return a new array of given shape and type, filled with `fill_value`."""
@overload
def full_like(a: ArrayLike, fill_value: Any, dtype: type[S] | np.dtype[S], order: str | None = 'K', subok: builtins.bool = True, shape: int | Sequence[int] | None = None, *, device: str | None = None) -> Array[S]:
    """Return a full array with the same shape and type as a given array."""
@overload
def full_like(a: ArrayLike, fill_value: Any, dtype: DTypeLike | None = None, order: str | None = 'K', subok: builtins.bool = True, shape: int | Sequence[int] | None = None, *, device: str | None = None) -> Array:
    """Return a full array with the same shape and type as a given array."""
def gcd(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Returns the greatest common divisor of ``|x1|`` and ``|x2|``."""
def gelu(x: ArrayLike, approximate: Any = False) -> Array:
    """x * (1 + erf(x / sqrt(2))) / 2 (Hendrycks and Gimpel, 2016)."""
def geomspace(start: Any, stop: Any, num: int = 50, endpoint: builtins.bool = True, dtype: DTypeLike | None = None, axis: int | Sequence[int] | None = 0) -> Array:
    """Return numbers spaced evenly on a log scale (a geometric progression)."""
def gradient(f: Any, *varargs: Any, axis: int | Sequence[int] | None = None, edge_order: Any = 1) -> Any:
    """Return the gradient of an N-dimensional array."""
def greater(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the truth value of (x1 > x2) element-wise."""
def greater_equal(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the truth value of (x1 >= x2) element-wise."""
def hamming(M: Any) -> Array:
    """Return the Hamming window."""
def hanning(M: Any) -> Array:
    """Return the Hanning window."""
def heaviside(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute the Heaviside step function."""
def histogram(a: ArrayLike, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> tuple[Array, Array]:
    """Compute the histogram of a dataset."""
def histogram2d(x: ArrayLike, y: ArrayLike, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> tuple[Array, Array, Array]:
    """Compute the bi-dimensional histogram of two data samples."""
def histogram_bin_edges(a: ArrayLike, bins: Any = 10, range: Any = None, weights: Any = None) -> Array:
    """Function to calculate only the edges of the bins used by the `histogram` function."""
def histogramdd(sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    """Compute the multidimensional histogram of some data."""
def hsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Split an array into multiple sub-arrays horizontally (column-wise)."""
def hstack(tup: Any, *, dtype: DTypeLike | None = None, casting: str = 'same_kind') -> Array:
    """Stack arrays in sequence horizontally (column wise)."""
def hypot(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Given the 'legs' of a right triangle, return its hypotenuse."""
def i0(x: ArrayLike) -> Array:
    """Modified Bessel function of the first kind, order 0."""
@overload
def identity(n: Any, dtype: type[S] | np.dtype[S], *, like: Any = None) -> Array[S]:
    """Return the identity array."""
@overload
def identity(n: Any, dtype: DTypeLike | None = None, *, like: Any = None) -> Array:
    """Return the identity array."""
def imag(val: Any) -> Array:
    """Return the imaginary part of the complex argument."""
def indices(dimensions: Any, dtype: DTypeLike | None = ..., sparse: Any = False) -> Array:
    """Return an array representing the indices of a grid."""
def inner(a: ArrayLike, b: ArrayLike, /) -> Array:
    """inner(a, b, /)."""
def insert(arr: ArrayLike, obj: Any, values: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """Insert values along the given axis before the given indices."""
def interp(x: ArrayLike, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Array:
    """One-dimensional linear interpolation for monotonically increasing sample points."""
@overload
def intersect1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: builtins.bool = False) -> Array:
    """Find the intersection of two arrays."""
@overload
def intersect1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: builtins.bool = False, return_indices: Any = False) -> Any:
    """Find the intersection of two arrays."""
def invert(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute bit-wise inversion, or bit-wise NOT, element-wise."""
def isclose(a: ArrayLike, b: ArrayLike, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: builtins.bool = False) -> Array:
    """Returns a boolean array where two arrays are element-wise equal within a tolerance."""
def iscomplex(x: ArrayLike) -> Array:
    """Returns a bool array, where True if input element is complex."""
def iscomplexobj(x: ArrayLike) -> builtins.bool:
    """Check for a complex type or an array of complex numbers."""
def isfinite(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Test element-wise for finiteness (not infinity and not Not a Number)."""
def isin(element: ArrayLike, test_elements: ArrayLike, assume_unique: builtins.bool = False, invert: Any = False, *, kind: Any = None) -> Array:
    """Calculates ``element in test_elements``, broadcasting over `element` only."""
def isinf(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Test element-wise for positive or negative infinity."""
def isnan(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Test element-wise for NaN and return result as a boolean array."""
def isneginf(x: ArrayLike, out: Any = None) -> Array:
    """Test element-wise for negative infinity, return result as bool array."""
def isposinf(x: ArrayLike, out: Any = None) -> Array:
    """Test element-wise for positive infinity, return result as bool array."""
def isreal(x: ArrayLike) -> Array:
    """Returns a bool array, where True if input element is real."""
def isrealobj(x: ArrayLike) -> builtins.bool:
    """Return True if x is a not complex type or an array of complex numbers."""
def ix_(*args: Any) -> tuple[Array, ...]:
    """Construct an open mesh from multiple sequences."""
def kaiser(M: Any, beta: Any) -> Array:
    """Return the Kaiser window."""
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """Kronecker product of two arrays."""
def lcm(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Returns the lowest common multiple of ``|x1|`` and ``|x2|``."""
def ldexp(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Returns x1 * 2**x2, element-wise."""
def left_shift(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Shift the bits of an integer to the left."""
def less(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the truth value of (x1 < x2) element-wise."""
def less_equal(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the truth value of (x1 <= x2) element-wise."""
def lexsort(keys: Any, axis: int | Sequence[int] | None = -1) -> Array:
    """lexsort(keys, axis=-1)."""
def lgamma(x: ArrayLike) -> Array:
    """The logarithm of the absolute value of the gamma function."""

class lib:

    class stride_tricks:
        @staticmethod
        def sliding_window_view(x: ArrayLike, window_shape: Any, axis: int | Sequence[int] | None = None, *, subok: builtins.bool = False, writeable: Any = False) -> Array:
            """Create a sliding window view into the array with the given window shape."""

class linalg:
    @staticmethod
    def cholesky(a: ArrayLike, /, *, upper: Any = False) -> Array:
        """Cholesky decomposition."""
    @staticmethod
    def cond(x: ArrayLike, p: Any = None) -> Array:
        """Compute the condition number of a matrix."""
    @staticmethod
    def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int | Sequence[int] | None = -1) -> Array:
        """Returns the cross product of 3-element vectors."""
    @staticmethod
    def det(a: ArrayLike) -> Array:
        """Compute the determinant of an array."""
    @staticmethod
    def diagonal(x: ArrayLike, /, *, offset: Any = 0) -> Array:
        """Returns specified diagonals of a matrix (or a stack of matrices) ``x``."""
    @staticmethod
    def eig(a: ArrayLike) -> EigResult:
        """Compute the eigenvalues and right eigenvectors of a square array."""
    @staticmethod
    def eigh(a: ArrayLike, UPLO: Any = 'L') -> EighResult:
        """Return the eigenvalues and eigenvectors of a complex Hermitian (conjugate symmetric) or a real symmetric matrix."""
    @staticmethod
    def eigvals(a: ArrayLike) -> Array:
        """Compute the eigenvalues of a general matrix."""
    @staticmethod
    def eigvalsh(a: ArrayLike, UPLO: Any = 'L') -> Array:
        """Compute the eigenvalues of a complex Hermitian or real symmetric matrix."""
    @staticmethod
    def inv(a: ArrayLike) -> Array:
        """Compute the inverse of a matrix."""
    @staticmethod
    def lstsq(a: ArrayLike, b: ArrayLike, rcond: Any = None) -> tuple[Array, Array, Any, Array]:
        """Return the least-squares solution to a linear matrix equation."""
    @staticmethod
    def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Array:
        """Computes the matrix product."""
    @staticmethod
    def matrix_norm(x: ArrayLike, /, *, keepdims: builtins.bool = False, ord: Any = 'fro') -> Array:
        """Computes the matrix norm of a matrix (or a stack of matrices) ``x``."""
    @staticmethod
    def matrix_power(a: ArrayLike, n: Any) -> Array:
        """Raise a square matrix to the (integer) power `n`."""
    @staticmethod
    def matrix_rank(A: Any, tol: Any = None, hermitian: Any = False, *, rtol: Any = None) -> Array:
        """Return matrix rank of array using SVD method."""
    @staticmethod
    def matrix_transpose(x: ArrayLike, /) -> Array:
        """Transposes a matrix (or a stack of matrices) ``x``."""
    @staticmethod
    def multi_dot(arrays: Any, *, out: Any = None) -> Array:
        """Compute the dot product of two or more arrays in a single function call, while automatically selecting the fastest evaluation order."""
    @staticmethod
    def norm(x: ArrayLike, ord: Any = None, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False) -> Array:
        """Matrix or vector norm."""
    @staticmethod
    def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
        """Compute the outer product of two vectors."""
    @staticmethod
    def pinv(a: ArrayLike, rcond: Any = None, hermitian: Any = False, *, rtol: Any = ...) -> Array:
        """Compute the (Moore-Penrose) pseudo-inverse of a matrix."""
    @overload
    @staticmethod
    def qr(a: ArrayLike) -> QRResult:
        """Compute the qr factorization of a matrix."""
    @overload
    @staticmethod
    def qr(a: ArrayLike, mode: Any = 'reduced') -> Any:
        """Compute the qr factorization of a matrix."""
    @staticmethod
    def slogdet(a: ArrayLike) -> SlogdetResult:
        """Compute the sign and (natural) logarithm of the determinant of an array."""
    @staticmethod
    def solve(a: ArrayLike, b: ArrayLike) -> Array:
        """Solve a linear matrix equation, or system of linear scalar equations."""
    @overload
    @staticmethod
    def svd(a: ArrayLike, full_matrices: Any = True, *, hermitian: Any = False) -> SVDResult:
        """Singular Value Decomposition."""
    @overload
    @staticmethod
    def svd(a: ArrayLike, full_matrices: Any = True, compute_uv: Any = True, hermitian: Any = False) -> Any:
        """Singular Value Decomposition."""
    @staticmethod
    def svdvals(x: ArrayLike, /) -> Array:
        """Returns the singular values of a matrix (or a stack of matrices) ``x``."""
    @staticmethod
    def tensordot(x1: ArrayLike, x2: ArrayLike, /, *, axes: int | Sequence[int] | None = 2) -> Array:
        """Compute tensor dot product along specified axes."""
    @staticmethod
    def tensorinv(a: ArrayLike, ind: Any = 2) -> Array:
        """Compute the 'inverse' of an N-dimensional array."""
    @staticmethod
    def tensorsolve(a: ArrayLike, b: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
        """Solve the tensor equation ``a x = b`` for x."""
    @staticmethod
    def trace(x: ArrayLike, /, *, offset: Any = 0, dtype: DTypeLike | None = None) -> Array:
        """Returns the sum along the specified diagonals of a matrix (or a stack of matrices) ``x``."""
    @staticmethod
    def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int | Sequence[int] | None = -1) -> Array:
        """Computes the vector dot product."""
    @staticmethod
    def vector_norm(x: ArrayLike, /, *, axis: int | Sequence[int] | None = None, keepdims: builtins.bool = False, ord: Any = 2) -> Array:
        """Computes the vector norm of a vector (or batch of vectors) ``x``."""
@overload
def linspace(start: Any, stop: Any, num: int = 50, endpoint: builtins.bool = True, retstep: builtins.bool = False, *, dtype: type[S] | np.dtype[S], axis: int | Sequence[int] | None = 0, device: str | None = None) -> Array[S]:
    """Return evenly spaced numbers over a specified interval."""
@overload
def linspace(start: Any, stop: Any, num: int = 50, endpoint: builtins.bool = True, retstep: builtins.bool = False, dtype: DTypeLike | None = None, axis: int | Sequence[int] | None = 0, *, device: str | None = None) -> Array:
    """Return evenly spaced numbers over a specified interval."""
def log(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Natural logarithm, element-wise."""
def log10(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the base 10 logarithm of the input array, element-wise."""
def log1p(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the natural logarithm of one plus the input array, element-wise."""
def log2(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Base-2 logarithm of `x`."""
def logaddexp(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Logarithm of the sum of exponentiations of the inputs."""
def logaddexp2(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Logarithm of the sum of exponentiations of the inputs in base-2."""
def logical_and(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute the truth value of x1 AND x2 element-wise."""
def logical_not(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute the truth value of NOT x element-wise."""
def logical_or(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute the truth value of x1 OR x2 element-wise."""
def logical_xor(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute the truth value of x1 XOR x2, element-wise."""
def logspace(start: Any, stop: Any, num: int = 50, endpoint: builtins.bool = True, base: Any = 10.0, dtype: DTypeLike | None = None, axis: int | Sequence[int] | None = 0) -> Array:
    """Return numbers spaced evenly on a log scale."""
def matmul(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, axes: int | Sequence[int] | None = ..., axis: int | Sequence[int] | None = ..., keepdims: builtins.bool = False, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Matrix product of two arrays."""
def matrix_transpose(x: ArrayLike, /) -> Array:
    """Transposes a matrix (or a stack of matrices) ``x``."""
def matvec(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, axes: int | Sequence[int] | None = ..., axis: int | Sequence[int] | None = ..., keepdims: builtins.bool = False, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Matrix-vector dot product of two arrays."""
def max(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, keepdims: builtins.bool = ..., initial: Any = ..., where: ArrayLike = ...) -> Array:
    """Return the maximum of an array or maximum along an axis."""
def maximum(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Element-wise maximum of array elements."""
def mean(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None, keepdims: builtins.bool = ..., *, where: ArrayLike = ...) -> Array:
    """Compute the arithmetic mean along the specified axis."""
def median(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, overwrite_input: Any = False, keepdims: builtins.bool = False) -> Array:
    """Compute the median along the specified axis."""
def meshgrid(*xi: Any, copy: Any = True, sparse: Any = False, indexing: Any = 'xy') -> tuple[Array, ...]:
    """Return a tuple of coordinate matrices from coordinate vectors."""
def min(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, keepdims: builtins.bool = ..., initial: Any = ..., where: ArrayLike = ...) -> Array:
    """Return the minimum of an array or minimum along an axis."""
def minimum(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Element-wise minimum of array elements."""
def mod(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Returns the element-wise remainder of division."""
def modf(x: ArrayLike, /, out: Any = ..., *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> tuple[Array, Array]:
    """Return the fractional and integral parts of an array, element-wise."""
def moveaxis(a: ArrayLike, source: Any, destination: Any) -> Array:
    """Move axes of an array to new positions."""
def multiply(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Multiply arguments element-wise."""
def nan_to_num(x: ArrayLike, copy: Any = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    """Replace NaN with zero and infinity with large finite numbers (default behaviour) or with the numbers defined by the user using the `nan`, `posinf` and/or `neginf` keywords."""
def nanargmax(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, *, keepdims: builtins.bool = ...) -> Array:
    """Return the indices of the maximum values in the specified axis ignoring NaNs."""
def nanargmin(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, *, keepdims: builtins.bool = ...) -> Array:
    """Return the indices of the minimum values in the specified axis ignoring NaNs."""
def nancumprod(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Array:
    """Return the cumulative product of array elements over a given axis treating Not a Numbers (NaNs) as one."""
def nancumsum(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Array:
    """Return the cumulative sum of array elements over a given axis treating Not a Numbers (NaNs) as zero."""
def nanmax(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, keepdims: builtins.bool = ..., initial: Any = ..., where: ArrayLike = ...) -> Array:
    """Return the maximum of an array or maximum along an axis, ignoring any NaNs."""
def nanmean(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None, keepdims: builtins.bool = ..., *, where: ArrayLike = ...) -> Array:
    """Compute the arithmetic mean along the specified axis, ignoring NaNs."""
def nanmedian(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, overwrite_input: Any = False, keepdims: builtins.bool = ...) -> Array:
    """Compute the median along the specified axis, while ignoring NaNs."""
def nanmin(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, keepdims: builtins.bool = ..., initial: Any = ..., where: ArrayLike = ...) -> Array:
    """Return minimum of an array or minimum along an axis, ignoring any NaNs."""
def nanpercentile(a: ArrayLike, q: Any, axis: int | Sequence[int] | None = None, out: Any = None, overwrite_input: Any = False, method: Any = 'linear', keepdims: builtins.bool = ..., *, weights: Any = None) -> Array:
    """Compute the qth percentile of the data along the specified axis, while ignoring nan values."""
def nanprod(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None, keepdims: builtins.bool = ..., initial: Any = ..., where: ArrayLike = ...) -> Array:
    """Return the product of array elements over a given axis treating Not a Numbers (NaNs) as ones."""
def nanquantile(a: ArrayLike, q: Any, axis: int | Sequence[int] | None = None, out: Any = None, overwrite_input: Any = False, method: Any = 'linear', keepdims: builtins.bool = ..., *, weights: Any = None) -> Array:
    """Compute the qth quantile of the data along the specified axis, while ignoring nan values."""
def nanstd(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None, ddof: Any = 0, keepdims: builtins.bool = ..., *, where: ArrayLike = ..., mean: Any = ..., correction: Any = ...) -> Array:
    """Compute the standard deviation along the specified axis, while ignoring NaNs."""
def nansum(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None, keepdims: builtins.bool = ..., initial: Any = ..., where: ArrayLike = ...) -> Array:
    """Return the sum of array elements over a given axis treating Not a Numbers (NaNs) as zero."""
def nanvar(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None, ddof: Any = 0, keepdims: builtins.bool = ..., *, where: ArrayLike = ..., mean: Any = ..., correction: Any = ...) -> Array:
    """Compute the variance along the specified axis, while ignoring NaNs."""
def ndim(a: ArrayLike) -> int:
    """Return the number of dimensions of an array."""
def negative(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Numerical negative, element-wise."""
def nextafter(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the next floating-point value after x1 towards x2, element-wise."""

class nn:
    @staticmethod
    def attention(q: Any, k: Any, v: _Arrays, mask: Any = None, *, causal: builtins.bool = False, scale: Any = None, precision: Any = None) -> Array:
        """softmax(q @ k.T * scale) @ v."""
    @staticmethod
    def avg_pool2d(x: _Arrays, size: Any, *, stride: Any = None, padding: Any = 0, count_include_pad: builtins.bool = True) -> Array:
        """The mean of each window; stride defaults to the window's size."""
    @staticmethod
    def batch_norm(x: _Arrays, mean: Any = None, var: Any = None, weight: _Arrays | None = None, bias: Any = None, *, axis: int = 1, eps: float = 1e-05) -> Array:
        """(x - mean) / sqrt(var + eps) * weight + bias for each channel."""
    @staticmethod
    def conv1d(x: _Arrays, weight: _Arrays, bias: Any = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, precision: Any = None) -> Array:
        """A convolution of signals (batch, channels, length) with weights, plus a bias."""
    @staticmethod
    def conv2d(x: _Arrays, weight: _Arrays, bias: Any = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, precision: Any = None) -> Array:
        """A convolution of images with weights, plus a bias."""
    @staticmethod
    def conv3d(x: _Arrays, weight: _Arrays, bias: Any = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, precision: Any = None) -> Array:
        """A convolution of volumes (batch, channels, depth, height, width) with weights, plus a bias."""
    @staticmethod
    def conv_transpose1d(x: _Arrays, weight: _Arrays, bias: Any = None, *, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1, precision: Any = None) -> Array:
        """The transpose of conv1d: each element of x is spread by the weights."""
    @staticmethod
    def conv_transpose2d(x: _Arrays, weight: _Arrays, bias: Any = None, *, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1, precision: Any = None) -> Array:
        """The transpose of conv2d: each element of x is spread by the weights."""
    @staticmethod
    def conv_transpose3d(x: _Arrays, weight: _Arrays, bias: Any = None, *, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1, precision: Any = None) -> Array:
        """The transpose of conv3d: each element of x is spread by the weights."""
    @staticmethod
    def cross_entropy(logits: _Arrays, labels: _Arrays, *, axis: int = -1, reduction: str = 'mean') -> Array:
        """-log softmax(logits) at the labels."""
    @staticmethod
    def elu(x: _Arrays, alpha: Any = 1.0) -> Array:
        """x where positive, else alpha * (exp(x) - 1)."""
    @staticmethod
    def gelu(x: _Arrays, approximate: Any = False) -> Array:
        """x * (1 + erf(x / sqrt(2))) / 2 (Hendrycks and Gimpel, 2016)."""
    @staticmethod
    def group_norm(x: _Arrays, groups: int, weight: _Arrays | None = None, bias: Any = None, *, eps: float = 1e-05) -> Array:
        """Layer norm over each group of channels and all places (Wu and He, 2018)."""
    @staticmethod
    def layer_norm(x: _Arrays, weight: _Arrays | None = None, bias: Any = None, *, axis: int | Sequence[int] | None = -1, eps: float = 1e-05) -> Array:
        """(x - mean) / sqrt(var + eps) * weight + bias."""
    @staticmethod
    def leaky_relu(x: _Arrays, slope: Any = 0.01) -> Array:
        """x where positive, else slope * x."""
    @staticmethod
    def linear(x: _Arrays, weight: _Arrays, bias: Any = None, *, precision: Any = None) -> Array:
        """x @ weight.T + bias."""
    @staticmethod
    def log_softmax(x: _Arrays, axis: int | Sequence[int] | None = -1) -> Array:
        """log(softmax(x)) without its underflow."""
    @staticmethod
    def logsumexp(x: _Arrays, axis: int | Sequence[int] | None = -1, keepdims: builtins.bool = False) -> Array:
        """log(sum(exp(x))) without overflow; -inf where every element is."""
    @staticmethod
    def max_pool2d(x: _Arrays, size: Any, *, stride: Any = None, padding: Any = 0, dilation: Any = 1) -> Array:
        """The largest element of each window; stride defaults to the window's size."""
    @staticmethod
    def one_hot(labels: _Arrays, classes: int, *, dtype: DTypeLike | None = ...) -> Array:
        """1 at each label along a new last axis, else 0."""
    @staticmethod
    def relu(x: _Arrays) -> Array:
        """max(x, 0)."""
    @staticmethod
    def rms_norm(x: _Arrays, weight: _Arrays | None = None, *, axis: int | Sequence[int] | None = -1, eps: float = 1e-06) -> Array:
        """x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich, 2019)."""
    @staticmethod
    def sigmoid(x: _Arrays) -> Array:
        """1 / (1 + exp(-x)), without overflow."""
    @staticmethod
    def silu(x: _Arrays) -> Array:
        """x / (1 + exp(-x))."""
    @staticmethod
    def softmax(x: _Arrays, axis: int | Sequence[int] | None = -1) -> Array:
        """exp(x) / sum(exp(x)) without overflow."""
    @staticmethod
    def softplus(x: _Arrays) -> Array:
        """log(1 + exp(x)) without overflow."""
    @staticmethod
    def tanh(x: _Arrays, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
        """Compute hyperbolic tangent element-wise."""
def nonzero(a: ArrayLike) -> tuple[Array, ...]:
    """Return the indices of the elements that are non-zero."""
def not_equal(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return (x1 != x2) element-wise."""
@overload
def ones(shape: int | Sequence[int], dtype: type[S] | np.dtype[S], order: str | None = 'C', *, device: str | None = None, like: Any = None) -> Array[S]:
    """Return a new array of given shape and type, filled with ones."""
@overload
def ones(shape: int | Sequence[int], dtype: DTypeLike | None = None, order: str | None = 'C', *, device: str | None = None, like: Any = None) -> Array:
    """Return a new array of given shape and type, filled with ones."""
@overload
def ones_like(a: ArrayLike, dtype: type[S] | np.dtype[S], order: str | None = 'K', subok: builtins.bool = True, shape: int | Sequence[int] | None = None, *, device: str | None = None) -> Array[S]:
    """Return an array of ones with the same shape and type as a given array."""
@overload
def ones_like(a: ArrayLike, dtype: DTypeLike | None = None, order: str | None = 'K', subok: builtins.bool = True, shape: int | Sequence[int] | None = None, *, device: str | None = None) -> Array:
    """Return an array of ones with the same shape and type as a given array."""
def outer(a: ArrayLike, b: ArrayLike, out: Any = None) -> Array:
    """Compute the outer product of two vectors."""
def pad(array: ArrayLike, pad_width: Any, mode: Any = 'constant', **kwargs: Any) -> Array:
    """Pad an array."""
def partition(a: ArrayLike, kth: Any, axis: int | Sequence[int] | None = -1, kind: Any = 'introselect', order: str | None = None) -> Array:
    """Return a partitioned copy of an array."""
def percentile(a: ArrayLike, q: Any, axis: int | Sequence[int] | None = None, out: Any = None, overwrite_input: Any = False, method: Any = 'linear', keepdims: builtins.bool = False, *, weights: Any = None) -> Array:
    """Compute the q-th percentile of the data along the specified axis."""
def permute_dims(a: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """Returns an array with axes transposed."""
def piecewise(x: ArrayLike, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Array:
    """Evaluate a piecewise-defined function."""
def poly(seq_of_zeros: Any) -> Array:
    """Find the coefficients of a polynomial with the given sequence of roots."""
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Find the sum of two polynomials."""
def polyder(p: Any, m: ArrayLike = 1) -> Array:
    """Return the derivative of the specified order of a polynomial."""
def polydiv(u: Any, v: ArrayLike) -> tuple[Array, Array]:
    """Returns the quotient and remainder of polynomial division."""
@overload
def polyfit(x: ArrayLike, y: ArrayLike, deg: Any, rcond: Any = None, *, w: Any = None) -> Array:
    """Least squares polynomial fit."""
@overload
def polyfit(x: ArrayLike, y: ArrayLike, deg: Any, rcond: Any = None, full: Any = False, w: Any = None, cov: Any = False) -> Any:
    """Least squares polynomial fit."""
def polyint(p: Any, m: ArrayLike = 1, k: Any = None) -> Array:
    """Return an antiderivative (indefinite integral) of a polynomial."""
def polymul(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Find the product of two polynomials."""
def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Difference (subtraction) of two polynomials."""
def polyval(p: Any, x: ArrayLike) -> Array:
    """Evaluate a polynomial at specific values."""
def positive(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Numerical positive, element-wise."""
def pow(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """First array elements raised to powers from second array, element-wise."""
def power(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """First array elements raised to powers from second array, element-wise."""
def prod(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None, keepdims: builtins.bool = ..., initial: Any = ..., where: ArrayLike = ...) -> Array:
    """Return the product of array elements over a given axis."""
def ptp(a: ArrayLike, axis: int | Sequence[int] | None = None, out: Any = None, keepdims: builtins.bool = ...) -> Array:
    """Range of values (maximum - minimum) along an axis."""
def put(a: ArrayLike, ind: Any, v: ArrayLike, mode: Any = 'raise') -> None:
    """Replaces specified elements of an array with given values."""
def put_along_axis(arr: ArrayLike, indices: Any, values: ArrayLike, axis: int | Sequence[int] | None) -> None:
    """Put values into the destination array by matching 1d index and data slices."""
def putmask(a: ArrayLike, /, mask: Any, values: ArrayLike) -> None:
    """putmask(a, /, mask, values)."""
def quantile(a: ArrayLike, q: Any, axis: int | Sequence[int] | None = None, out: Any = None, overwrite_input: Any = False, method: Any = 'linear', keepdims: builtins.bool = False, *, weights: Any = None) -> Array:
    """Compute the q-th quantile of the data along the specified axis."""
def rad2deg(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Convert angles from radians to degrees."""
def radians(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Convert angles from degrees to radians."""

class random:
    Key: TypeAlias = _Key
    @staticmethod
    def bernoulli(key: _Key, shape: int | Sequence[int] = ..., p: Any = 0.5) -> Array:
        """True with probability p, rounded up to a multiple of 2**-24."""
    @staticmethod
    def bits(key: _Key, shape: int | Sequence[int] = ..., dtype: DTypeLike | None = ...) -> Array:
        """Random bits as uint32 or uint64."""
    @staticmethod
    def choice(key: _Key, a: ArrayLike, shape: int | Sequence[int] = ...) -> Array:
        """Elements of `a`, each as likely, with replacement."""
    @staticmethod
    def exponential(key: _Key, shape: int | Sequence[int] = ..., dtype: DTypeLike | None = ...) -> Array:
        """Exponentially distributed numbers of mean 1, float32 or float64: -log u."""
    @staticmethod
    def integers(key: _Key, shape: int | Sequence[int], low: Any, high: Any, dtype: DTypeLike | None = ...) -> Array:
        """Integers in [low, high)."""
    @staticmethod
    def key(seed: Any) -> _Key:
        """The key of an integer (mod 2**64); inside a trace it may be an argument."""
    @staticmethod
    def normal(key: _Key, shape: int | Sequence[int] = ..., dtype: DTypeLike | None = ...) -> Array:
        """Normally distributed numbers of mean 0 and variance 1."""
    @staticmethod
    def split(key: _Key, n: int = 2) -> tuple[_Key, ...]:
        """`n` keys that have nothing to do with each other."""
    @staticmethod
    def uniform(key: _Key, shape: int | Sequence[int] = ..., dtype: DTypeLike | None = ..., low: Any = 0, high: Any = 1) -> Array:
        """float32 or float64 numbers in [low, high), where low and high broadcast to the shape."""
def ravel(a: ArrayLike, order: str | None = 'C') -> Array:
    """Return a contiguous flattened array."""
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = 'raise', order: str | None = 'C') -> Array:
    """ravel_multi_index(multi_index, dims, mode='raise', order='C')."""
def real(val: Any) -> Array:
    """Return the real part of the complex argument."""
def real_if_close(a: ArrayLike, tol: Any = 100) -> Array:
    """If input is complex with all imaginary parts close to zero, return real parts."""
def reciprocal(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the reciprocal of the argument, element-wise."""
def relu(x: ArrayLike) -> Array:
    """max(x, 0)."""
def remainder(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Returns the element-wise remainder of division."""
def repeat(a: ArrayLike, repeats: Any, axis: int | Sequence[int] | None = None) -> Array:
    """Repeat each element of an array after themselves."""
def reshape(a: ArrayLike, /, shape: int | Sequence[int], order: str | None = 'C', *, copy: Any = None) -> Array:
    """Gives a new shape to an array without changing its data."""
def resize(a: ArrayLike, new_shape: Any) -> Array:
    """Return a new array with the specified shape."""
def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """result_type(*arrays_and_dtypes)."""
def right_shift(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Shift the bits of an integer to the right."""
def rint(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Round elements of the array to the nearest integer."""
def roll(a: ArrayLike, shift: Any, axis: int | Sequence[int] | None = None) -> Array:
    """Roll array elements along a given axis."""
def rollaxis(a: ArrayLike, axis: int | Sequence[int] | None, start: Any = 0) -> Array:
    """Roll the specified axis backwards, until it lies in a given position."""
def roots(p: Any) -> Array:
    """Return the roots of a polynomial with coefficients given in p."""
def rot90(m: ArrayLike, k: Any = 1, axes: int | Sequence[int] | None = ...) -> Array:
    """Rotate an array by 90 degrees in the plane specified by axes."""
def round(a: ArrayLike, decimals: Any = 0, out: Any = None) -> Array:
    """Evenly round to the given number of decimals."""
def searchsorted(a: ArrayLike, v: ArrayLike, side: Any = 'left', sorter: Any = None) -> Array:
    """Find indices where elements should be inserted to maintain order."""
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Array:
    """Return an array drawn from elements in choicelist, depending on conditions."""
def setdiff1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: builtins.bool = False) -> Array:
    """Find the set difference of two arrays."""
def setxor1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: builtins.bool = False) -> Array:
    """Find the set exclusive-or of two arrays."""
def shape(a: ArrayLike) -> tuple[int, ...]:
    """Return the shape of an array."""
def sigmoid(x: ArrayLike) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
def sign(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Returns an element-wise indication of the sign of a number."""
def signbit(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Returns element-wise True where signbit is set (less than zero)."""
def sin(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Trigonometric sine, element-wise."""
def sinc(x: ArrayLike) -> Array:
    """Return the normalized sinc function."""
def sinh(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Hyperbolic sine, element-wise."""
def size(a: ArrayLike, axis: int | Sequence[int] | None = None) -> int:
    """Return the number of elements along a given axis."""
def sort(a: ArrayLike, axis: int | None = -1, kind: Any = None, order: str | None = None, *, stable: builtins.bool | None = None, descending: builtins.bool = False) -> Array:
    """`kg.sort` of arrays: np.sort, and the Array API's `descending`."""
def spacing(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the distance between x and the nearest adjacent number."""
def split(ary: ArrayLike, indices_or_sections: Any, axis: int | Sequence[int] | None = 0) -> list[Array]:
    """Split an array into multiple sub-arrays as views into `ary`."""
def sqrt(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the non-negative square-root of an array, element-wise."""
def square(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the element-wise square of the input."""
def squeeze(a: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    """Remove axes of length one from `a`."""
def stack(arrays: Any, axis: int | Sequence[int] | None = 0, out: Any = None, *, dtype: DTypeLike | None = None, casting: str = 'same_kind') -> Array:
    """Join a sequence of arrays along a new axis."""
def std(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None, ddof: Any = 0, keepdims: builtins.bool = ..., *, where: ArrayLike = ..., mean: Any = ..., correction: Any = ...) -> Array:
    """Compute the standard deviation along the specified axis."""
def subtract(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Subtract arguments, element-wise."""
def sum(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None, keepdims: builtins.bool = ..., initial: Any = ..., where: ArrayLike = ...) -> Array:
    """Sum of array elements over a given axis."""
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Interchange two axes of an array."""
def take(a: ArrayLike, indices: Any, axis: int | Sequence[int] | None = None, out: Any = None, mode: Any = 'raise') -> Array:
    """Take elements from an array along an axis."""
def take_along_axis(arr: ArrayLike, indices: Any, axis: int | Sequence[int] | None = -1) -> Array:
    """Take values from the input array by matching 1d index and data slices."""
def tan(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute tangent element-wise."""
def tanh(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Compute hyperbolic tangent element-wise."""
def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[int] | None = 2) -> Array:
    """Compute tensor dot product along specified axes."""
def tile(A: Any, reps: Any) -> Array:
    """Construct an array by repeating A the number of times given by reps."""
def topk(x: ArrayLike, k: int, axis: int = -1, largest: builtins.bool = True) -> tuple[Array, Array]:
    """`topk` of NumPy arrays."""
def trace(a: ArrayLike, offset: Any = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None, out: Any = None) -> Array:
    """Return the sum along diagonals of the array."""
def transpose(a: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """Returns an array with axes transposed."""
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: Any = 1.0, axis: int | Sequence[int] | None = -1) -> Array:
    """Integrate along the given axis using the composite trapezoidal rule."""
@overload
def tri(N: Any, M: Any = None, k: Any = 0, *, dtype: type[S] | np.dtype[S], like: Any = None) -> Array[S]:
    """An array with ones at and below the given diagonal and zeros elsewhere."""
@overload
def tri(N: Any, M: Any = None, k: Any = 0, dtype: DTypeLike | None = ..., *, like: Any = None) -> Array:
    """An array with ones at and below the given diagonal and zeros elsewhere."""
def tril(m: ArrayLike, k: Any = 0) -> Array:
    """Lower triangle of an array."""
def tril_indices_from(arr: ArrayLike, k: Any = 0) -> tuple[Array, ...]:
    """Return the indices for the lower-triangle of arr."""
def trim_zeros(filt: Any, trim: Any = 'fb', axis: int | Sequence[int] | None = None) -> Array:
    """Remove values along a dimension which are zero along all other."""
def triu(m: ArrayLike, k: Any = 0) -> Array:
    """Upper triangle of an array."""
def triu_indices_from(arr: ArrayLike, k: Any = 0) -> tuple[Array, ...]:
    """Return the indices for the upper-triangle of arr."""
def true_divide(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Divide arguments element-wise."""
def trunc(x: ArrayLike, /, out: Any = None, *, where: ArrayLike = True, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Return the truncated value of the input, element-wise."""
def union1d(ar1: ArrayLike, ar2: ArrayLike) -> Array:
    """Find the union of two arrays."""
@overload
def unique(ar: Any, *, axis: int | Sequence[int] | None = None, equal_nan: builtins.bool = True, sorted: Any = True) -> Array:
    """Find the unique elements of an array."""
@overload
def unique(ar: Any, return_index: Any = False, return_inverse: Any = False, return_counts: Any = False, axis: int | Sequence[int] | None = None, *, equal_nan: builtins.bool = True, sorted: Any = True) -> Any:
    """Find the unique elements of an array."""
def unique_all(x: ArrayLike) -> UniqueAllResult:
    """Find the unique elements of an array, and counts, inverse, and indices."""
def unique_counts(x: ArrayLike) -> UniqueCountsResult:
    """Find the unique elements and counts of an input array `x`."""
def unique_inverse(x: ArrayLike) -> UniqueInverseResult:
    """Find the unique elements of `x` and indices to reconstruct `x`."""
def unique_values(x: ArrayLike, /) -> Array:
    """The distinct values of an array, sorted; np.unique_values gives them in no order."""
def unravel_index(indices: Any, shape: int | Sequence[int], order: str | None = 'C') -> tuple[Array, ...]:
    """unravel_index(indices, shape, order='C')."""
def unstack(x: ArrayLike, /, *, axis: int | Sequence[int] | None = 0) -> tuple[Array, ...]:
    """Split an array into a sequence of arrays along the given axis."""
def unwrap(p: Any, discont: Any = None, axis: int | Sequence[int] | None = -1, *, period: Any = 6.283185307179586) -> Array:
    """Unwrap by taking the complement of large deltas with respect to the period."""
def vander(x: ArrayLike, N: Any = None, increasing: Any = False) -> Array:
    """Generate a Vandermonde matrix."""
def var(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: Any = None, ddof: Any = 0, keepdims: builtins.bool = ..., *, where: ArrayLike = ..., mean: Any = ..., correction: Any = ...) -> Array:
    """Compute the variance along the specified axis."""
def vdot(a: ArrayLike, b: ArrayLike, /) -> Array:
    """vdot(a, b, /)."""
def vecdot(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, axes: int | Sequence[int] | None = ..., axis: int | Sequence[int] | None = ..., keepdims: builtins.bool = False, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Vector dot product of two arrays."""
def vecmat(x1: ArrayLike, x2: ArrayLike, /, out: Any = None, *, axes: int | Sequence[int] | None = ..., axis: int | Sequence[int] | None = ..., keepdims: builtins.bool = False, casting: str = 'same_kind', order: str | None = 'K', dtype: DTypeLike | None = None, subok: builtins.bool = True, signature: Any = None) -> Array:
    """Vector-matrix dot product of two arrays."""
def vsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """Split an array into multiple sub-arrays vertically (row-wise)."""
def vstack(tup: Any, *, dtype: DTypeLike | None = None, casting: str = 'same_kind') -> Array:
    """Stack arrays in sequence vertically (row wise)."""
def where(condition: ArrayLike, x: ArrayLike | None = None, y: ArrayLike | None = None, /) -> Array:
    """where(condition, [x, y], /)."""
@overload
def zeros(shape: int | Sequence[int], dtype: type[S] | np.dtype[S], order: str | None = 'C', *, device: str | None = None, like: Any = None) -> Array[S]:
    """zeros(shape, dtype=None, order='C', *, device=None, like=None)."""
@overload
def zeros(shape: int | Sequence[int], dtype: DTypeLike | None = None, order: str | None = 'C', *, device: str | None = None, like: Any = None) -> Array:
    """zeros(shape, dtype=None, order='C', *, device=None, like=None)."""
@overload
def zeros_like(a: ArrayLike, dtype: type[S] | np.dtype[S], order: str | None = 'K', subok: builtins.bool = True, shape: int | Sequence[int] | None = None, *, device: str | None = None) -> Array[S]:
    """Return an array of zeros with the same shape and type as a given array."""
@overload
def zeros_like(a: ArrayLike, dtype: DTypeLike | None = None, order: str | None = 'K', subok: builtins.bool = True, shape: int | Sequence[int] | None = None, *, device: str | None = None) -> Array:
    """Return an array of zeros with the same shape and type as a given array."""
