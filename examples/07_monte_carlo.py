"""Monte Carlo: the price of an Asian option, its random paths drawn inside the kernels that use them.

python examples/07_monte_carlo.py
"""

import numpy as np

import kernelgraph as kg

PATHS, STEPS = 200_000, 16


@kg.kernel_graph
def asian_call(
    key: kg.random.Key, spot: float, strike: float, years: float = 1.0, rate: float = 0.03, volatility: float = 0.2
) -> tuple[kg.Array, kg.Array]:
    """The discounted mean payoff of the average price along each path, and its standard error."""
    dt = years / STEPS
    price, total = spot, 0.0
    for step in range(STEPS):  # unrolled while tracing
        noise = kg.random.normal(key.fold_in(step), (PATHS,))
        price = price * np.exp((rate - volatility**2 / 2) * dt + volatility * dt**0.5 * noise)
        total = total + price
    payoff = np.exp(-rate * years) * np.maximum(total / STEPS - strike, 0)
    return payoff.mean(), payoff.std() / PATHS**0.5


def main(seeds: int = 3) -> list[tuple[float, float]]:
    results = []
    for seed in range(seeds):  # a new key is a new argument: nothing compiles anew
        mean, error = asian_call(kg.random.key(seed), 100.0, 105.0)
        results.append((float(mean), float(error)))
        print(f"seed {seed}: price {results[-1][0]:.4f}, standard error {results[-1][1]:.4f}")
    print("kernels launched:", len(asian_call.program(kg.random.key(0), 100.0, 105.0).tasks))
    return results


if __name__ == "__main__":
    main()
