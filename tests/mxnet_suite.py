"""MXNet's own tests of its KVStore, run with `kg.KVStore` in its place: those of dense keys.

python -m tests.mxnet_suite CHECKOUT                                        the unit tests
python -m kernelgraph.run -n 4 -m tests.mxnet_suite CHECKOUT dist_sync      or dist_async

CHECKOUT is MXNet's repository (github.com/apache/mxnet). Its files are run as they are, but for calls of what we do not
have, which CUT takes out; `mxnet` is a stand-in whose arrays are NumPy's. Tests of nothing else are in NOT_APPLICABLE.
"""

from __future__ import annotations

import re
import sys
import traceback
import types
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg

FILES = {
    "unit": "tests/python/unittest/test_kvstore.py",
    "dist_sync": "tests/nightly/dist_sync_kvstore.py",
    "dist_async": "tests/nightly/dist_async_kvstore.py",
}
CUT = (
    (r"\['default', 'row_sparse'\]", "['default']"),
    (r"^ +kv\.init\((fp16_)?rsp_.*\n", ""),
    (r"^ +check_(big_)?row_sparse_keys(_with_zeros)?\(dtype, nrepeat\)\n", ""),
)
NOT_APPLICABLE = {
    "test_row_sparse_pull": "row-sparse values",
    "test_sparse_aggregator": "row-sparse values",
    "test_invalid_pull": "row-sparse values",
    "test_sync_1bit_compression": "compressed gradients",
    "test_sync_2bit_compression": "compressed gradients",
    "test_invalid_operations": "row-sparse values, and gluon's Trainer",
    "test_gluon_trainer_type": "gluon's Trainer",
    "test_gluon_trainer_step": "gluon's Trainer",
    "test_gluon_trainer_sparse_step": "gluon's Trainer",
}
KINDS = {"local_allreduce_cpu": "local"}  # MXNet's other names
REPEATS = 7  # what MXNet's own command line has


class NDArray:
    """An array of MXNet's: NumPy's, changed in place."""

    def __init__(self, values: Any) -> None:
        self.values = np.array(values)

    def asnumpy(self) -> Any:
        return self.values

    def tostype(self, kind: str) -> NDArray:
        assert kind == "default"
        return NDArray(self.values)

    def __sub__(self, other: Any) -> NDArray:
        return NDArray(self.values - getattr(other, "values", other))

    def __mul__(self, other: Any) -> NDArray:
        return NDArray((self.values * other).astype(self.values.dtype))

    __rmul__ = __mul__


def filled(value: float) -> Any:
    def make(shape: Any, ctx: Any = None, dtype: str = "float32", stype: str = "default") -> NDArray:
        assert stype == "default"
        return NDArray(np.full(shape, value, dtype))

    return make


def arrays_of(given: Any) -> Any:
    """What a store takes for MXNet's arrays, in lists of any depth."""
    return [arrays_of(each) for each in given] if isinstance(given, (list, tuple)) else given.values


class Store:
    """MXNet's KVStore."""

    def __init__(self, kind: str = "local") -> None:
        self.type, self._store = kind, kg.KVStore(KINDS.get(kind, kind))
        self.rank, self.num_workers = self._store.rank, self._store.num_workers

    def init(self, key: Any, value: Any) -> None:
        self._store.init(key, arrays_of(value))

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        self._store.push(key, arrays_of(value), priority)

    def pull(self, key: Any, out: Any = None, priority: int = 0) -> None:
        self._store.pull(key, arrays_of(out), priority)

    def _set_updater(self, updater: Any) -> None:
        self._store.set_updater(updater)

    def set_optimizer(self, rate: float) -> None:
        def add(key: Any, pushed: Any, stored: Any) -> None:  # what MXNet's optimizer `test` does
            stored += rate * pushed

        self._store.set_updater(add)


def stand_in() -> dict[str, types.ModuleType]:
    """Modules by name."""
    found = {n: types.ModuleType(n) for n in ("mxnet", "mxnet.test_utils", "mxnet.base", "common", "test_kvstore")}
    mx: Any = found["mxnet"]
    mx.nd = types.SimpleNamespace(zeros=filled(0), ones=filled(1), empty=filled(np.nan), array=NDArray)
    mx.kv = types.SimpleNamespace(create=Store)
    mx.Context = mx.cpu = lambda *which: which
    mx.optimizer = types.SimpleNamespace(create=lambda name, rescale_grad, **options: rescale_grad)
    lacking = ("rand_ndarray", "assert_almost_equal", "assert_exception", "assertRaises", "py_str", "MXNetError")
    quantized = ("compute_expected_quantization", "compute_1bit", "compute_2bit")
    for module in list(found.values())[1:]:
        for name in (*lacking, *quantized):  # that tests of what we do not have import
            setattr(module, name, None)
    return found


def run(checkout: Path, which: str) -> list[tuple[str, str]]:
    """Each test's name and what became of it: empty for right."""
    text = (checkout / FILES[which]).read_text()
    for pattern, instead in CUT:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    sys.modules.update(stand_in())
    scope: dict[str, Any] = {"__name__": which}
    exec(compile(text, FILES[which], "exec"), scope)
    outcomes = []
    for name, test in [(n, t) for n, t in scope.items() if n.startswith("test_") and callable(t)]:
        if name in NOT_APPLICABLE:
            outcomes.append((name, f"not applicable: {NOT_APPLICABLE[name]}"))
            continue
        try:
            if name == "test_sync_push_pull":
                scope["init_kv"](), scope["set_optimizer"](False), test(REPEATS)
            else:
                test()
            outcomes.append((name, ""))
        except Exception:
            outcomes.append((name, traceback.format_exc()))
    return outcomes


def main(checkout: str, which: str = "unit") -> int:
    kg.distributed.init()
    outcomes = run(Path(checkout), which)
    if kg.distributed.rank() == 0:
        for name, said in outcomes:
            print(f"{name}: {said or 'passed'}")
        applicable = [said for _, said in outcomes if not said.startswith("not applicable")]
        right = applicable.count("")
        print(f"{which}: {right} of {len(applicable)} passed, {len(outcomes) - len(applicable)} not applicable")
    return int(any(said and not said.startswith("not applicable") for _, said in outcomes))


if __name__ == "__main__":
    with kg.device("cpu"):
        sys.exit(main(*sys.argv[1:]))
