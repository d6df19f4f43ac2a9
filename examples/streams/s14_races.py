"""Two programs that race in PyTorch, and cannot here.

PyTorch:

    with torch.cuda.stream(s1):
        a = x @ x
        ready = s1.record_event()
    s2.wait_event(ready)
    s3.wait_event(ready)
    with torch.cuda.stream(s2):
        b = a.relu_()  # writes a ...
    with torch.cuda.stream(s3):
        c = a.sum()  # ... while this reads it

    x = torch.randn(n, n, device="cuda")  # on the current stream
    with torch.cuda.stream(s1):
        y = x @ x  # and read on another, without a wait

`TORCH_CUDA_SANITIZER=1` finds such pairs while a program runs.
"""

import numpy as np

import kernelgraph as kg


# ours: a read and a write of one array come in the order of the program, and a call waits for what it reads
def write_beside_read(x):
    a = x @ x
    c = a.sum()
    a[...] = np.maximum(a, 0)
    return a, c


# checked
def main(runs=10):
    x = np.random.default_rng(0).normal(size=(48, 48))
    a = x @ x
    f = kg.kernel_graph(write_beside_read, streams="max")
    b, c = map(np.asarray, f(x))
    with kg.override(engine="chaos"):  # random delays before every step
        for _ in range(runs):
            again = [np.asarray(part) for part in f(x)]
            assert again[0].tobytes() == b.tobytes() and again[1].tobytes() == c.tobytes()
    return {"b": (b, np.maximum(a, 0)), "c": (c, a.sum())}


def plan():
    # KERNELGRAPH_VERIFY=1 proves of each plan that runs that no two tasks are unordered which touch the same bytes
    made = kg.kernel_graph(write_beside_read, device="fake", streams="max")
    return made.plan(kg.spec((512, 512), np.float32))


if __name__ == "__main__":
    main()
    print(plan())
