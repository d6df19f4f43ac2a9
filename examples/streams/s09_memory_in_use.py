"""Memory that another stream still reads is not given away.

PyTorch:

    with torch.cuda.stream(s2):
        b = a.sum()
    a.record_stream(s2)  # without this line the allocator may give a's memory to c
    del a
    c = torch.empty_like(x)
"""

import numpy as np

import kernelgraph as kg


# ours: there is no `record_stream`; whoever reads an array holds its memory until it is done
@kg.kernel_graph
def double(x):
    return 2 * x


@kg.kernel_graph
def total(a):
    return a.sum()


def main():
    x = np.arange(200_000.0)
    sums, stream = [], kg.Stream()
    for i in range(20):
        a = double(x + i)
        with kg.stream(stream):
            sums.append(total(a))
        del a  # its memory goes back when `total` has read it
        double(x)  # which may take that memory, and then writes after the read
    return {f"sum {i}": (sums[i], 2 * (x + i).sum()) for i in range(20)}


def plan():
    def step(x):
        a = np.tanh(x @ x)
        b = np.tanh(x @ a)  # a's bytes are taken again only where its readers come before
        return (b @ b).sum(), a.sum()

    return kg.kernel_graph(step, device="fake", streams="max").plan(kg.spec((512, 512), np.float32))


if __name__ == "__main__":
    main()
    print(plan())
