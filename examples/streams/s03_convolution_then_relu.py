"""A convolution, then a relu: on one stream, and on two with the wait that is easily forgotten.

PyTorch:

    with torch.cuda.stream(s1):
        y = conv(x)
    s2.wait_stream(s1)  # without this line: a race
    with torch.cuda.stream(s2):
        z = y.relu()
    y.record_stream(s2)  # without this line: y's memory may be given away
"""

import numpy as np

import kernelgraph as kg


# ours
def layer(x, w):
    y = kg.nn.conv2d(x, w)
    return kg.relu(y)  # reads y: the plan orders them, with no wait where both are on one stream


# checked
def main():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(1, 2, 8, 8)), rng.normal(size=(3, 2, 3, 3))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    right = np.maximum(np.einsum("bchwij,ocij->bohw", windows, w), 0)
    one, two = (np.asarray(kg.kernel_graph(layer, streams=n)(x, w)) for n in (1, 2))
    return {"one stream": (one, right), "two streams": (two, right)}


def plan():
    given = kg.spec((8, 16, 64, 64), np.float32), kg.spec((16, 16, 3, 3), np.float32)
    return kg.kernel_graph(layer, device="fake", streams=2).plan(*given)


if __name__ == "__main__":
    main()
    print(plan())
