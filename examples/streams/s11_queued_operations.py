"""`z = x + y` is queued: the engine orders what reads and writes the same arrays.

MXNet:

    z = x + y  # returns at once
    x += 1  # waits for the reader of x
    w = z * x
    mx.nd.waitall()
"""

import numpy as np

import kernelgraph as kg


# ours
def main():
    x0, y0 = np.arange(1000.0), np.ones(1000)
    x, y = kg.asarray(x0), kg.asarray(y0)
    z = x + y  # returns at once
    x += 1  # a new value: the reader of the old one is not waited for
    w = z * x
    kg.waitall()
    return {"z": (z, x0 + y0), "x": (x, x0 + 1), "w": (w, (x0 + y0) * (x0 + 1))}


def plan():
    def diamond(x, y):  # a write and reads of the same array, in one plan
        z = x @ y
        x[...] = x + 1
        return z, z @ x, y @ x

    square = kg.spec((512, 512), np.float32)
    return kg.kernel_graph(diamond, device="fake", streams="max").plan(square, square)


if __name__ == "__main__":
    main()
    print(plan())
