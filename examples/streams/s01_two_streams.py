"""Two operations on two streams, then wait for all.

PyTorch:

    s1, s2 = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.current_stream().synchronize()  # x and y must be there
    with torch.cuda.stream(s1):
        a = x @ x
    with torch.cuda.stream(s2):
        b = y @ y
    torch.cuda.synchronize()
"""

import numpy as np

import kernelgraph as kg


# ours
def both(x, y):
    return x @ x, y @ y  # neither reads the other, so each has a stream


# checked
def main():
    x, y = (np.random.default_rng(seed).random((256, 256)) for seed in (0, 1))
    a, b = kg.kernel_graph(both)(x, y)
    kg.waitall()
    return {"a": (a, x @ x), "b": (b, y @ y)}


def plan():
    square = kg.spec((512, 512), np.float32)
    return kg.kernel_graph(both, device="fake", streams="max").plan(square, square)


if __name__ == "__main__":
    main()
    print(plan())
