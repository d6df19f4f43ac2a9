"""The next batch is copied while this one computes: page-locked memory, and a stream for copies.

PyTorch:

    copies = torch.cuda.Stream()
    for batch in loader:  # pin_memory=True
        with torch.cuda.stream(copies):
            following = batch.to("cuda", non_blocking=True)
        if current is not None:
            out = model(current)
        torch.cuda.current_stream().wait_stream(copies)
        following.record_stream(torch.cuda.current_stream())
        current = following
"""

import numpy as np

import kernelgraph as kg


# ours
@kg.kernel_graph
def model(x):
    return np.tanh(x @ x).sum()


def batches(count, n=128):
    buffer = kg.pinned_empty((n, n), np.float64)
    for i in range(count):
        buffer[...] = np.cos(np.arange(n * n).reshape(n, n) + i)
        yield buffer  # is copied before the next one is asked for


def main():
    out = [model(x) for x in kg.prefetch(batches(4), depth=2)]  # batch 2 arrives while batch 1 computes
    right = [np.tanh(x @ x).sum() for x in (np.array(b) for b in batches(4))]
    return {f"batch {i}": pair for i, pair in enumerate(zip(out, right, strict=True))}


def plan():
    return kg.kernel_graph(model._function, device="fake", streams="max").plan(kg.spec((512, 512), np.float32))


if __name__ == "__main__":
    main()
    print(plan())
