"""The true place of an error, with the engine that runs ahead and with the one that waits for each step.

PyTorch:

    y = x[index]  # an index out of range
    z = y * 2  # CUDA error: device-side assert triggered, somewhere later
    # CUDA_LAUNCH_BLOCKING=1 python program.py     to see where

MXNet:

    # MXNET_ENGINE_TYPE=NaiveEngine python program.py
"""

import numpy as np

import kernelgraph as kg


# ours
@kg.kernel_graph
def gather(x, index):
    y = x[index]  # the error names this line, whichever engine runs
    return y * 2


def place_of_error(x, index):
    try:
        np.asarray(gather(x, index))
    except IndexError as error:
        return str(error) + " ".join(getattr(error, "__notes__", []))
    return ""


# checked
def main():
    x, right, wrong = np.arange(10.0), np.array([1, 2]), np.array([1, 99])
    ahead = place_of_error(x, wrong)
    with kg.override(engine="sync"):
        waiting = place_of_error(x, wrong)
    assert "s08_where_an_error_is.py:22" in ahead and "s08_where_an_error_is.py:22" in waiting
    return {"y": (gather(x, right), x[right] * 2)}


def plan():
    given = kg.spec((1 << 20,), np.float32), kg.spec((1 << 20,), np.int64)
    return kg.kernel_graph(gather._function, device="fake").plan(*given)


if __name__ == "__main__":
    main()
    print(plan())
