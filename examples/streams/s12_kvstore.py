"""A store of values by key that devices push gradients to and pull weights from.

MXNet:

    kv = mx.kv.create("device")  # or "local", "dist_sync", "dist_async"
    kv.init("w", mx.nd.zeros(shape))
    kv.push("w", [g0, g1])  # summed over the devices
    kv.pull("w", out=[w0, w1])
"""

import numpy as np

import kernelgraph as kg


# ours
def pushed_and_pulled(kind):
    with kg.override(cpu_devices=2):
        store = kg.KVStore(kind)
        store.init("w", np.zeros(4))
        store.push("w", [kg.asarray(np.full(4, 1.0 + i), device=f"cpu:{i}") for i in range(2)])
        return store.pull("w")  # follows the push; "dist_sync" and "dist_async" sum over ranks


# checked
def main():
    return {kind: (pushed_and_pulled(kind), np.full(4, 3.0)) for kind in ("local", "device")}


def plan():
    def update(w, g0, g1):  # what a push with an updater is
        return w - 0.1 * (g0 + g1)

    row = kg.spec((1 << 20,), np.float32)
    return kg.kernel_graph(update, device="fake").plan(row, row, row)


if __name__ == "__main__":
    main()
    print(plan())
