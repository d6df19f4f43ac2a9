"""Priorities, and the legacy default stream that waits for all others.

PyTorch:

    urgent = torch.cuda.Stream(priority=-1)
    with torch.cuda.stream(urgent):
        b = y @ y
    # work on the legacy default stream waits for every ordinary stream of the process, and these wait for it
"""

import numpy as np

import kernelgraph as kg


# ours: the plan gives the critical path the high priority; no stream of ours is tied to the legacy default stream
@kg.kernel_graph(streams="max")
def work(x, y):
    return x @ x @ x @ x, y @ y


def main():
    x, y = (np.random.default_rng(seed).random((128, 128)) for seed in (0, 1))
    urgent = kg.Stream(priority=-1)  # for a call that is to come first
    with kg.stream(urgent):
        b = work(y, x)[1]
    a = work(x, y)[0]
    return {"a": (a, x @ x @ x @ x), "b": (b, x @ x)}


def plan():
    square = kg.spec((512, 512), np.float32)
    return kg.kernel_graph(work._function, device="fake", streams="max").plan(square, square)


if __name__ == "__main__":
    main()
    print(plan())
