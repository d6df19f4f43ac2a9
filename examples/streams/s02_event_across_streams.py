"""An event that is recorded on one stream and waited for on another.

PyTorch:

    done = torch.cuda.Event()
    with torch.cuda.stream(s1):
        a = x @ x
        done.record()
    with torch.cuda.stream(s2):
        s2.wait_event(done)
        b = a @ y
"""

import numpy as np

import kernelgraph as kg


# ours
@kg.kernel_graph
def first(x):
    return x @ x


@kg.kernel_graph
def second(a, y):
    return a @ y


def follow(x, y):
    return second(first(x), y)  # b reads a: that is the event


# the same in streams' words, where a program of other libraries needs them
def follow_by_event(x, y):
    s1, s2 = kg.Stream(), kg.Stream()
    with kg.stream(s1):
        a = first(x)
        done = s1.record()
    s2.wait(done)
    with kg.stream(s2):
        return second(a, y)


# checked
def main():
    x, y = (np.random.default_rng(seed).random((128, 128)) for seed in (0, 1))
    return {"data": (follow(x, y), x @ x @ y), "events": (follow_by_event(x, y), x @ x @ y)}


def plan():
    def fork(x, y):
        a = x @ x
        return a @ y, y @ y, a + y @ x

    square = kg.spec((512, 512), np.float32)
    return kg.kernel_graph(fork, device="fake", streams="max").plan(square, square)


if __name__ == "__main__":
    main()
    print(plan())
