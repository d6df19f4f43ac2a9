"""What is worth knowing of an NVIDIA GPU before a launch: plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuProperties:
    """bandwidth: of device memory, in bytes a microsecond."""

    name: str = "NVIDIA H200"
    compute_capability: tuple[int, int] = (9, 0)
    multiprocessors: int = 132
    threads_per_multiprocessor: int = 2048
    warp: int = 32
    shared_bytes: int = 48 * 1024  # of one block, without opting in to more
    l2_bytes: int = 60 * 2**20
    memory_bytes: int = 141 * 10**9
    bandwidth: float = 4.1e6


H200 = GpuProperties()
