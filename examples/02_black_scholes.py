"""Black-Scholes: prices and deltas of a million European options, three inputs and four outputs in one kernel.

python examples/02_black_scholes.py
"""

import numpy as np

import kernelgraph as kg


def normal_cdf(x: kg.Array) -> kg.Array:
    return 0.5 * (1 + kg.erf(x / 2**0.5))


@kg.kernel_graph
def black_scholes(
    spot: kg.Array, strike: kg.Array, years: kg.Array, rate: float = 0.03, volatility: float = 0.2
) -> dict[str, kg.Array]:
    spread = volatility * kg.sqrt(years)
    d1 = (kg.log(spot / strike) + (rate + volatility**2 / 2) * years) / spread
    n1, n2 = normal_cdf(d1), normal_cdf(d1 - spread)
    discounted = strike * kg.exp(-rate * years)
    call = spot * n1 - discounted * n2
    put = call - spot + discounted  # put-call parity
    return {"call": call, "put": put, "call delta": n1, "put delta": n1 - 1}


def options(n: int, seed: int = 0) -> tuple[kg.Array, kg.Array, kg.Array]:
    random = np.random.default_rng(seed)
    spot, strike, years = (random.uniform(low, high, n) for low, high in ((20, 200), (20, 200), (0.1, 3)))
    return kg.asarray(spot, "f4"), kg.asarray(strike, "f4"), kg.asarray(years, "f4")


def main() -> dict[str, kg.Array]:
    market = options(1_000_000)
    prices = black_scholes(*market)
    for name, value in prices.items():
        print(f"{name:10} mean {np.asarray(value).mean():8.4f}")

    nervous = black_scholes(*market, volatility=0.4)  # another number, the same compiled kernel
    rise = float(np.mean(nervous["call"].numpy() - prices["call"].numpy()))
    print(f"doubling the volatility raises the mean call by {rise:.4f}")
    print("kernels launched:", len(black_scholes.program(*market).tasks))
    return prices


if __name__ == "__main__":
    main()
