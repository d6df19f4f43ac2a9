"""What is worth knowing of an NVIDIA GPU before a launch: plain data. Launch shapes and costs come from it."""

from __future__ import annotations

from ..core.frozen import dataclass


@dataclass(frozen=True, slots=True)
class GpuProperties:
    """One GPU; the defaults are an H200's, which programs are compiled for where there is no GPU.

    bandwidth: what copies reach, in bytes a microsecond.
    """

    name: str = "NVIDIA H200"
    compute_capability: tuple[int, int] = (9, 0)
    multiprocessors: int = 132
    threads_per_multiprocessor: int = 2048
    blocks_per_multiprocessor: int = 32
    warp: int = 32
    shared_bytes: int = 48 * 1024  # of one block, without opting in to more
    shared_per_multiprocessor: int = 228 * 1024
    l2_bytes: int = 60 * 2**20
    memory_bytes: int = 141 * 10**9
    bandwidth: float = 4.0e6

    @property
    def float_lanes(self) -> int:
        """float32 operations a clock of one multiprocessor (CUDA C++ Programming Guide, arithmetic instructions)."""
        return 64 if self.compute_capability in ((7, 0), (7, 5), (8, 0)) else 128


H200 = GpuProperties()
