"""Quick start: one decorated function, fused into one kernel.

python examples/01_quick_start.py
"""

import numpy as np

import kernelgraph as kg


@kg.kernel_graph
def damped_wave(t: np.ndarray, frequency: float) -> tuple[np.ndarray, np.ndarray]:
    envelope = np.exp(-t)
    return envelope * np.sin(2 * np.pi * frequency * t), envelope


def main() -> tuple[np.ndarray, np.ndarray]:
    t = np.linspace(0, 5, 1_000_000, dtype=np.float32)
    wave, envelope = damped_wave(t, 3.0)

    print("wave[::250000]    ", np.asarray(wave)[::250_000])
    print("envelope[::250000]", np.asarray(envelope)[::250_000])
    print("kernels launched: ", len(damped_wave.program(t, 3.0).tasks))
    print(damped_wave.graph(t, 3.0))
    return wave, envelope


if __name__ == "__main__":
    main()
