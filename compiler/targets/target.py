"""The targets: how each prints kernels, shapes launches, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from ...runtime.codegen.llvm_jit import jit_vector_register_bytes, widest_vector_libm_of_cpu
from ...runtime.core.frozen import frozen
from ...runtime.program.custom_calls import CustomKernel
from ...runtime.program.device import H200, GpuProperties
from ...runtime.program.dnn import DnnLibrary
from ...runtime.program.program import Buffer, Kernel, Program, Task
from ...runtime.schedule.cost_model import MACHINES, MachineModel, machine_of_gpu
from ..core.cost import CLUSTER, CLUSTERS_FROM, CPU, NARROW, WorkCostModel, work_cost_model_of_gpu
from ..core.types import ArrayType
from ..kernel.loop_nest import LoopNest, user_functions_of_loop_nest
from ..sequential.form import Routine


@frozen
class LaunchShape:
    """units and grain: parallel units of a CPU kernel and a chunk of them; grid and block: a GPU's launch."""

    units: int = 1
    grain: int = 1
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)


Calls = Callable[..., list[Task]]


def _refuse_routine_on_target(routine: Routine, numbers: Sequence[int]) -> tuple[Kernel, LaunchShape]:
    raise AssertionError("this target runs no loop nest as one kernel")


@frozen
class Target:
    """model: what work costs; machine: what the scheduler assumes; kernel: structured form -> kernel text; launch: form
    and axis lengths -> launch shape; width: lengths of the reduced axes, bytes of the largest item, flop-equivalents
    a point and whether several loops go over a row -> the size class `LoopNest.width`; calls: the tasks of a host call
    that has kernels of its own; own: a kernel of the user's and its arrays -> the kernel, where the target has such;
    aligns: whether its texts for aligned memory differ from those for any other; windows: from how many points on its
    threads take twice as many rows of shifted views (0: its texts know nothing of those); zips: its texts store outputs
    together that lie in turn in one array; short: lengths of the parallel and the reduced axes, and whether a reduction
    finds a place -> the size class `LoopNest.short`; narrow: where nothing is reduced, nests are `short` with fewer
    elements along an axis that operands are contiguous along; epilogues: its matmuls take a bias and an activation;
    checks_indices: kernels report bad ones; vector_products: the tasks of a product in memory of a matrix and a vector,
    or of small matrices, None where a library does it; routine: a loop nest that runs in order, and its numbers -> its
    kernel, and how that is launched; routine_copies: whether that kernel copies what it starts from; axis_orders:
    elementwise work takes the order of axes of the matrix products beside it; online_sums: memory is so slow that long
    rows are read once for their maxima and for sums of exponentials below them; block_bytes: about how large a block of
    a large product is that is computed block by block; dnn: a library for deep neural networks; join_tasks: a program
    -> the same with those tasks joined that are faster done part by part."""

    name: str
    model: WorkCostModel
    machine: MachineModel
    kernel: Callable[[LoopNest], Kernel]
    launch: Callable[[LoopNest, Sequence[int]], LaunchShape]
    width: Callable[[Sequence[int], int, float, bool], int]
    calls: Calls
    own: Callable[[CustomKernel, Sequence[ArrayType]], Kernel] | None = None
    aligns: bool = True
    windows: int = 0
    zips: bool = False
    short: Callable[[Sequence[int], Sequence[int], bool], bool] | None = None
    narrow: int = 0
    epilogues: bool = False
    checks_indices: bool = False
    vector_products: Callable[..., list[Task] | None] | None = None
    routine: Callable[[Routine, Sequence[int]], tuple[Kernel, LaunchShape]] = _refuse_routine_on_target
    routine_copies: bool = False
    axis_orders: bool = False
    online_sums: bool = False
    block_bytes: int = 1 << 22
    dnn: DnnLibrary | None = None
    join_tasks: Callable[[Program], Program] | None = None


def cpu_vector_features() -> tuple[str | None, int]:
    """What the CPU's texts depend on: the vector mathematics that they may call, and the bytes of a vector."""
    return widest_vector_libm_of_cpu(), jit_vector_register_bytes()


@lru_cache(4096)
def _dispatch_kernel_printing_to_cpu_target(form: LoopNest, library: str | None, width: int) -> Kernel:
    from .cpu.kernel import print_llvm_kernel

    return Kernel(
        form.name,
        "cpu",
        print_llvm_kernel(form, library, width),
        form.signature,
        (),
        user_functions_of_loop_nest(form),
        form,
    )


def _dispatch_routine_to_cpu_target(routine: Routine, numbers: Sequence[int]) -> tuple[Kernel, LaunchShape]:
    from .cpu.sequential import cpu_kernel_of_routine, units_and_grain_of_rows

    kernel = cpu_kernel_of_routine(routine, *cpu_vector_features())
    return kernel, LaunchShape(*units_and_grain_of_rows(routine, numbers))


def _dispatch_launch_shape_to_cpu_target(form: LoopNest, sizes: Sequence[int]) -> LaunchShape:
    from .cpu.kernel import cpu_launch_units

    return LaunchShape(*cpu_launch_units(form, sizes))


@lru_cache(4096)
def _dispatch_kernel_to_cuda_target(form: LoopNest) -> Kernel:
    from .cuda.kernel import cuda_kernel_of_nest

    return cuda_kernel_of_nest(form)


def _dispatch_routine_to_cuda_target(
    gpu: GpuProperties, routine: Routine, numbers: Sequence[int]
) -> tuple[Kernel, LaunchShape]:
    from .cuda.sequential import cuda_kernel_of_routine, cuda_routine_and_shape

    routine, shape = cuda_routine_and_shape(routine, gpu.compute_capability >= (9, 0))
    return cuda_kernel_of_routine(routine, shape), LaunchShape(grid=(shape.blocks, 1, 1), block=(shape.threads, 1, 1))


def _dispatch_launch_shape_to_cuda_target(gpu: GpuProperties, form: LoopNest, sizes: Sequence[int]) -> LaunchShape:
    from .cuda.kernel import cuda_grid_and_block

    grid, block = cuda_grid_and_block(form, sizes, gpu)
    return LaunchShape(grid=grid, block=block)


def _dispatch_device_call_to_cuda_target(gpu: GpuProperties, *args: Any) -> list[Task]:
    from .cuda.algorithms.table import lower_gpu_call

    return lower_gpu_call(gpu, *args)


def _dispatch_custom_kernel_to_cuda_target(own: CustomKernel, arrays: Sequence[ArrayType]) -> Kernel:
    from .cuda.algorithms.custom_kernel import custom_cuda_kernel_of_arrays

    return custom_cuda_kernel_of_arrays(own, arrays)


def _dispatch_matmul_to_cpu_target(reads: Any, writes: Any, line: str) -> list[Task] | None:
    from .cpu.matmul import cpu_matmul_kernel_task
    from .cpu.matvec import cpu_matvec_task

    width = jit_vector_register_bytes()
    return cpu_matvec_task(width, reads, writes, line) or cpu_matmul_kernel_task(width, reads, writes, line)


def _dispatch_device_call_to_cpu_target(
    function: str, reads: Any, results: Any, options: Any, buffers: list[Buffer], line: str
) -> list[Task]:
    (result,) = results.values()
    if function in ("shifted_products", "shifted_dots"):
        from .cpu.shifted_rows import cpu_shifted_dots_task, cpu_shifted_products_task

        task = cpu_shifted_products_task if function == "shifted_products" else cpu_shifted_dots_task
        return [task(jit_vector_register_bytes(), reads, result, options, line)]
    from .cpu.running import cpu_running_total_task

    return [cpu_running_total_task(CPU, function, reads[0], result, options["axis"], line)]


HEAVY = 16.0  # flop-equivalents a point from which a GPU thread takes two groups


def _dispatch_reduction_width_to_cuda_target(
    gpu: GpuProperties, reduced: Sequence[int], itemsize: int, flops: float, again: bool
) -> int:
    from .cuda.kernel import cuda_threads_of_resident_row

    if not reduced:
        return 1 + (flops >= HEAVY)
    cluster = CLUSTER if again and len(reduced) == 1 and gpu.compute_capability >= CLUSTERS_FROM else 1
    return cuda_threads_of_resident_row(reduced[-1], itemsize, cluster)[0]


def _dispatch_short_rows_to_cpu_target(parallel: Sequence[int], reduced: Sequence[int], indexed: bool) -> bool:
    from .cpu.kernel import cpu_rows_are_short

    return cpu_rows_are_short(parallel, reduced, indexed)


def _dispatch_tasks_to_cpu_strips(program: Program) -> Program:
    from .cpu.strips import join_tasks_in_strips

    return join_tasks_in_strips(program, CPU, cpu_vector_features())


@lru_cache(64)
def target_of(name: str, gpu: GpuProperties = H200) -> Target:
    """The target `cpu` or `cuda`; gpu: the GPU that is to run it."""
    if name == "cpu":
        cpu = MACHINES[name]
        return Target(
            name,
            CPU,
            cpu,
            lambda form: _dispatch_kernel_printing_to_cpu_target(form, *cpu_vector_features()),
            _dispatch_launch_shape_to_cpu_target,
            lambda reduced, itemsize, flops, again: 1,
            _dispatch_device_call_to_cpu_target,
            aligns=False,
            zips=True,
            short=_dispatch_short_rows_to_cpu_target,
            checks_indices=True,
            vector_products=_dispatch_matmul_to_cpu_target,
            routine=_dispatch_routine_to_cpu_target,
            routine_copies=True,
            axis_orders=True,
            join_tasks=_dispatch_tasks_to_cpu_strips,
        )
    if name != "cuda":
        raise ValueError(f"there is no target {name!r}; write 'cpu' or 'cuda'")
    launch, calls = (
        partial(_dispatch_launch_shape_to_cuda_target, gpu),
        partial(_dispatch_device_call_to_cuda_target, gpu),
    )
    model, machine, lanes = (
        work_cost_model_of_gpu(gpu),
        machine_of_gpu(gpu),
        16 * gpu.multiprocessors * gpu.threads_per_multiprocessor,
    )
    parts = (
        _dispatch_kernel_to_cuda_target,
        launch,
        partial(_dispatch_reduction_width_to_cuda_target, gpu),
        calls,
        _dispatch_custom_kernel_to_cuda_target,
    )
    return Target(
        name,
        model,
        machine,
        *parts,
        windows=lanes,
        narrow=NARROW,
        epilogues=True,
        online_sums=True,
        block_bytes=1 << 26,
        routine=partial(_dispatch_routine_to_cuda_target, gpu),
        dnn=gpu.dnn,
    )
