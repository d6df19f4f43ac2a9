"""Functions of the language of words that use no memory: Python runs them too, so the two can be compared."""

from __future__ import annotations

SMALL = 10


def gcd(a, b):
    while b:
        rest = a % b
        a = b
        b = rest
    return a


def collatz(n, most):
    steps = 0
    while n != 1 and steps < most:
        if n % 2:
            n = 3 * n + 1
        else:
            n //= 2
        steps += 1
    return steps


def bits(a, b):
    x = (a ^ (a >> 7)) | (b << 3 & 0xFFFF)
    x &= ~(b & 0xFF)
    return x - b // 3 + (-(a & 1) * -1)


def logic(a, b):
    found = 0
    if a > b and not (b == SMALL or a >= 1000):
        found += 1
    elif a == b or (a < SMALL and b <= SMALL and a != b):
        found += 2
    else:
        found += 4
    return found + (a < b) + 8 * (not a)


def loops(a, b):
    total = 0
    i = 0
    while i < a % 50:
        i += 1
        if i % 3 == 0:
            continue
        j = 0
        while 1:
            j += 1
            if j > b % 20:
                break
            total += i * j
        if total > 5000:
            return total
    return total + _helper(a, b)


def _helper(a, b):
    if a:
        return b * b + 1
    return 7
