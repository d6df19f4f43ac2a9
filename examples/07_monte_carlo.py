"""Monte Carlo: the price of an Asian option, its random paths drawn inside the kernels that use them.

python examples/07_monte_carlo.py
"""

import numpy as np

import kernelgraph as kg

PATHS, STEPS = 200_000, 16


@kg.kernel_graph
def asian_call(key, spot, strike, years=1.0, rate=0.03, volatility=0.2):
    """The discounted mean payoff of the average price along each path, and its standard error."""
    dt = years / STEPS
    price, total = spot, 0.0
    for step in range(STEPS):  # unrolled while tracing
        noise = kg.random.normal(key.fold_in(step), (PATHS,))
        price = price * np.exp((rate - volatility**2 / 2) * dt + volatility * dt**0.5 * noise)
        total = total + price
    payoff = np.exp(-rate * years) * np.maximum(total / STEPS - strike, 0)
    return payoff.mean(), payoff.std() / PATHS**0.5


def main(seeds=3):
    results = []
    for seed in range(seeds):  # a new key is a new argument: nothing compiles anew
        mean, error = asian_call(kg.random.key(seed), 100.0, 105.0)
        results.append((float(mean), float(error)))
        print(f"seed {seed}: price {results[-1][0]:.4f}, standard error {results[-1][1]:.4f}")
    print("kernels launched:", len(asian_call.program(kg.random.key(0), 100.0, 105.0).tasks))
    return results


if __name__ == "__main__":
    main()
