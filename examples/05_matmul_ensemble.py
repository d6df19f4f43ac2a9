"""An ensemble: eight small networks on one input, each a branch of its own, side by side on streams.

python examples/05_matmul_ensemble.py
"""

import numpy as np

import kernelgraph as kg

MEMBERS, LAYERS, WIDTH = 8, 4, 256


@kg.kernel_graph
def ensemble(x: kg.Array, members: list[list[np.ndarray]]) -> list[kg.Array]:
    votes = []
    for weights in members:  # runs while tracing: eight independent chains of matmul and relu
        hidden = x
        for weight in weights:
            hidden = kg.relu(hidden @ weight)
        votes.append(hidden)
    return votes


def data(seed: int = 0) -> tuple[kg.Array, list[list[np.ndarray]]]:
    random = np.random.default_rng(seed)
    x = kg.asarray(random.normal(size=(WIDTH, WIDTH)), kg.float32)
    weights = random.normal(0, (2 / WIDTH) ** 0.5, (MEMBERS, LAYERS, WIDTH, WIDTH)).astype(np.float32)
    members = [list(layers) for layers in weights]
    return x, members


def main() -> list[np.ndarray]:
    x, members = data()
    votes = [vote.numpy() for vote in ensemble(x, members)]
    plan = ensemble.plan(x, members)
    print(f"{len(plan.tasks)} tasks on {plan.streams} streams, {plan.waits} waits between streams")
    print("mean vote of each member:", " ".join(f"{vote.mean():.4f}" for vote in votes))
    print(f"the members disagree by  {np.std(votes, axis=0).mean():.4f}")
    return votes


if __name__ == "__main__":
    main()
