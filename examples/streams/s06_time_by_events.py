"""An operation is timed by events.

PyTorch:

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    y = x @ x
    end.record()
    torch.cuda.synchronize()
    print(start.elapsed_time(end), "ms")
"""

import numpy as np

import kernelgraph as kg


# ours
@kg.kernel_graph
def product(x):
    return x @ x


def timed(x):
    stream = kg.Stream()
    start = stream.record()
    with kg.stream(stream):
        y = product(x)
    end = stream.record()
    end.synchronize()
    return y, start.elapsed_time(end)  # milliseconds; `kg.profile()` has them of every kernel


# checked
def main():
    x = np.random.default_rng(0).random((256, 256))
    y, milliseconds = timed(x)
    assert milliseconds > 0
    return {"y": (y, x @ x)}


def plan():
    return kg.kernel_graph(product._function, device="fake").plan(kg.spec((512, 512), np.float32))


if __name__ == "__main__":
    main()
    print(plan())
