"""Split the batch, run the parts on several devices, synchronise: forward, and training.

PyTorch:

    out = torch.nn.DataParallel(model)(x)

MXNet:

    parts = mx.gluon.utils.split_and_load(x, ctx_list)
    with autograd.record():
        losses = [loss(net(part), label) for part, label in zip(parts, labels)]
    for each in losses:
        each.backward()
    trainer.step(batch_size)
"""

import numpy as np

import kernelgraph as kg


def loss(w, x, y):
    return ((x @ w - y) ** 2).mean()


def forward(x):
    return np.tanh(x) @ np.ones((3, 2))


# ours
def main():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(8, 3)), np.zeros(3)
    y = x @ np.array([1.0, -2.0, 0.5])
    with kg.override(cpu_devices=2):
        mesh = kg.Mesh(["cpu:0", "cpu:1"])
        out = kg.DataParallel(forward, mesh)(x)  # forward in one line
        train = kg.DataParallel(loss, mesh, update=lambda w, g: w - 0.1 * g)
        new, value = train(w, x, y)  # and training in one
    gradient = 2 * x.T @ (x @ w - y) / 8
    return {"out": (out, forward(x)), "w": (new, w - 0.1 * gradient), "loss": (value, (y**2).mean())}


def plan():
    def step(w, x, y):
        value, gradient = kg.value_and_grad(loss)(w, x, y)
        return w - 0.1 * gradient, value

    given = kg.spec((256,), "f4"), kg.spec((4096, 256), "f4"), kg.spec((4096,), "f4")
    return kg.kernel_graph(step, device="fake", streams="max").plan(*given)


if __name__ == "__main__":
    main()
    print(plan())
