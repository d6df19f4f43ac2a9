"""Reading on the CPU: what is waited for, the device, a stream, or one array.

PyTorch:

    torch.cuda.synchronize()  # all streams of the device
    s1.synchronize()  # all that is on s1
    done.synchronize()  # what was on the stream when the event was recorded
    a.cpu()  # all that is on the current stream
"""

import numpy as np

import kernelgraph as kg


# ours
@kg.kernel_graph
def long(x):
    return x @ x @ x @ x @ x


@kg.kernel_graph
def short(x):
    return x + 1


def main():
    x = np.random.default_rng(0).random((400, 400)) / 100
    x_there = kg.asarray(x)
    slow, quick = long(x_there), short(x_there)
    value = np.asarray(quick)  # waits for `quick` alone: `slow` may still run
    stream = kg.Stream()
    with kg.stream(stream):
        again = short(quick)
        event = stream.record()
    event.synchronize()  # what was put on the stream before
    stream.synchronize()  # all that is on it
    kg.synchronize()  # all of the device
    assert slow.is_ready() and again.is_ready() and event.query() and stream.query()
    return {"quick": (value, x + 1), "again": (again, x + 2), "slow": (slow, x @ x @ x @ x @ x)}


def plan():
    def branches(x):
        return x @ x @ x, x + 1

    return kg.kernel_graph(branches, device="fake", streams="max").plan(kg.spec((512, 512), np.float32))


if __name__ == "__main__":
    main()
    print(plan())
