"""Events between devices, the end of one device's work, and copies from one to the other.

PyTorch:

    with torch.cuda.device(0):
        a = x0 @ x0
        done = torch.cuda.current_stream().record_event()
    with torch.cuda.device(1):
        torch.cuda.current_stream().wait_event(done)
        b = a.to("cuda:1", non_blocking=True) + 1
        torch.cuda.synchronize(1)
"""

import numpy as np

import kernelgraph as kg


# ours: two devices of the CPU stand for two GPUs; there, write cuda:0 and cuda:1
def across(x):
    a = kg.place(x, "cpu:0") @ x
    return kg.place(a, "cpu:1") + 1  # the copy follows the product, and the sum follows the copy


def main():
    x = np.random.default_rng(0).random((128, 128))
    with kg.override(cpu_devices=2):
        b = kg.kernel_graph(across, device="cpu")(x)
        kg.synchronize("cpu:1")  # that device alone
        assert b.is_ready() and b.device == "cpu:1"
        peer = b.to_device("cpu:0")  # nobody waits
        return {"b": (b, x @ x + 1), "copy": (peer, x @ x + 1)}


def plan():
    def parts(x):
        return x @ x + 1, x + 1

    return kg.kernel_graph(parts, device="fake", streams="max").plan(kg.spec((512, 512), np.float32))


if __name__ == "__main__":
    main()
    print(plan())
