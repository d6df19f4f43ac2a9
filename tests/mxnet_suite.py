"""MXNet's own tests of its KVStore, run with `kg.KVStore` in its place.

python -m tests.mxnet_suite CHECKOUT                                        the unit tests
python -m kernelgraph.run -n 4 -m tests.mxnet_suite CHECKOUT dist_sync      or dist_async

CHECKOUT is MXNet's repository (github.com/apache/mxnet). Its files are run as they are, but for calls of what we do not
have, which CUT takes out; `mxnet` is a stand-in whose arrays are NumPy's. Tests of nothing else are in NOT_APPLICABLE.
"""

from __future__ import annotations

import ast
import re
import sys
import traceback
import types
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg

FILES = {
    "unit": "tests/python/unittest/test_kvstore.py",
    "dist_sync": "tests/nightly/dist_sync_kvstore.py",
    "dist_async": "tests/nightly/dist_async_kvstore.py",
}
QUANTIZATION = "tests/nightly/test_kvstore.py"  # of which the others import what compressed gradients should be
CUT = ((r"^ +check_invalid_key_types_(single|list)\(.*\n", ""),)  # ours keeps keys of both types
NOT_APPLICABLE = {
    "test_invalid_operations": "gluon's Trainer",
    "test_gluon_trainer_type": "gluon's Trainer",
    "test_gluon_trainer_step": "gluon's Trainer",
    "test_gluon_trainer_sparse_step": "gluon's Trainer",
}
KINDS = {"local_allreduce_cpu": "local"}  # MXNet's other names
REPEATS = 7  # what MXNet's own command line has


class NDArray:
    """An array of MXNet's: NumPy's, changed in place; of row-sparse ones we have one of ours as well."""

    def __init__(self, values: Any, stype: str = "default") -> None:
        self._values = np.array(values)
        self.stype = stype
        self.sparse: kg.RowSparse | None = None
        if stype == "row_sparse":
            rows = np.flatnonzero(self._values.reshape(len(self._values), -1).any(axis=1))
            self.sparse = kg.RowSparse(self._values[rows], rows, self._values.shape)

    @property
    def values(self) -> Any:
        return self._values if self.sparse is None else self.sparse

    def asnumpy(self) -> Any:
        return self._values if self.sparse is None else self.sparse.numpy()

    def tostype(self, stype: str) -> NDArray:
        return NDArray(self.asnumpy(), stype)

    def copyto(self, context: Any) -> NDArray:
        return NDArray(self.asnumpy(), self.stype)

    def astype(self, dtype: Any) -> NDArray:
        return NDArray(self.asnumpy().astype(dtype), self.stype)

    def reshape(self, shape: Any) -> NDArray:
        return NDArray(self.asnumpy().reshape([int(n) for n in shape]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.asnumpy(), dtype)

    def __getitem__(self, key: Any) -> NDArray:
        return NDArray(np.atleast_1d(self.asnumpy()[key]))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._values[key] = np.asarray(value)

    @property
    def shape(self) -> Any:
        return self._values.shape

    def __add__(self, other: Any) -> NDArray:
        return NDArray(self.asnumpy() + other)

    def __sub__(self, other: Any) -> NDArray:
        return NDArray(self.asnumpy() - (other.asnumpy() if isinstance(other, NDArray) else other))

    def __mul__(self, other: Any) -> NDArray:
        return NDArray((self.asnumpy() * other).astype(self._values.dtype))

    __rmul__ = __mul__


def filled(value: float) -> Any:
    def make(shape: Any, ctx: Any = None, dtype: str = "float32", stype: str = "default") -> NDArray:
        return NDArray(np.full(shape, value, dtype), stype)

    return make


def array(values: Any) -> NDArray:
    """MXNet's arrays are of float32, unless they are made of one."""
    return NDArray(values.asnumpy() if isinstance(values, NDArray) else np.asarray(values, np.float32))


def sparse_zeros(stype: str, shape: Any, dtype: str = "float32") -> NDArray:
    return NDArray(np.zeros(shape, dtype), stype)


def rand_ndarray(shape: Any, stype: str) -> NDArray:
    kept = np.random.rand(shape[0]) < 0.5
    return NDArray((np.random.rand(*shape) * kept[:, None]).astype(np.float32), stype)


def assert_raises(kind: type[Exception], call: Any, *args: Any, **options: Any) -> None:
    try:
        call(*args, **options)
    except kind:
        return
    raise AssertionError(f"{call} raised no {kind.__name__}")


def arrays_of(given: Any) -> Any:
    """What a store takes for MXNet's arrays, in lists of any depth."""
    return [arrays_of(each) for each in given] if isinstance(given, (list, tuple)) else given.values


class AddRescaled(kg.optimizer.Optimizer):
    """MXNet's optimizer `test`."""

    def update(self, key: Any, pushed: Any, stored: Any, *rest: Any) -> None:
        stored += pushed * rest[-1]


class Store:
    """MXNet's KVStore."""

    def __init__(self, kind: str = "local") -> None:
        self.type, self._store = kind, kg.KVStore(KINDS.get(kind, kind))
        self.rank, self.num_workers = self._store.rank, self._store.num_workers
        self.set_optimizer = self._store.set_optimizer
        self.set_gradient_compression = self._store.set_gradient_compression
        self._set_updater = self._store.set_updater

    def init(self, key: Any, value: Any) -> None:
        self._store.init(key, arrays_of(value))

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        self._store.push(key, arrays_of(value), priority)

    def pull(self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        self._store.pull(key, arrays_of(out), priority, ignore_sparse)

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        ids = row_ids
        if not isinstance(key, list):
            ids = [np.asarray(one) for one in ids] if isinstance(ids, list) else np.asarray(ids)
        elif isinstance(ids[0], list):
            ids = [[np.asarray(one) for one in each] for each in ids]
        else:
            ids = [np.asarray(one) for one in ids]
        self._store.row_sparse_pull(key, arrays_of(out), priority, ids)


def stand_in(checkout: Path) -> dict[str, types.ModuleType]:
    """Modules by name."""
    found: dict[str, Any] = {
        n: types.ModuleType(n) for n in ("mxnet", "mxnet.test_utils", "mxnet.base", "common", "test_kvstore")
    }
    mx = found["mxnet"]
    sparse = types.SimpleNamespace(zeros=sparse_zeros)
    mx.nd = types.SimpleNamespace(zeros=filled(0), ones=filled(1), empty=filled(np.nan), array=array, sparse=sparse)
    mx.kv = types.SimpleNamespace(create=Store)
    mx.random = types.SimpleNamespace(seed=lambda seed: None)  # of draws that nothing reads
    mx.Context = mx.cpu = lambda *which: which
    mx.optimizer = types.SimpleNamespace(create=lambda name, **options: AddRescaled(**options))
    found["mxnet.test_utils"].rand_ndarray = rand_ndarray
    found["mxnet.test_utils"].assert_almost_equal = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    found["mxnet.test_utils"].assert_exception = None  # of tests with gluon's Trainer
    found["mxnet.base"].MXNetError, found["mxnet.base"].py_str = kg.UserError, str
    found["common"].assertRaises = assert_raises
    nightly = ast.parse((checkout / QUANTIZATION).read_text())
    nightly.body = [n for n in nightly.body if isinstance(n, ast.FunctionDef) and n.name.startswith("compute_")]
    exec(compile(nightly, QUANTIZATION, "exec"), {"np": np}, vars(found["test_kvstore"]))
    vars(found["test_kvstore"]).update(np=np)
    return found


def run(checkout: Path, which: str) -> list[tuple[str, str]]:
    """Each test's name and what became of it: empty for right."""
    text = (checkout / FILES[which]).read_text()
    for pattern, instead in CUT:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    sys.modules.update(stand_in(checkout))
    scope: dict[str, Any] = {"__name__": which}
    exec(compile(text, FILES[which], "exec"), scope)
    outcomes = []
    for name, test in [(n, t) for n, t in scope.items() if n.startswith("test_") and callable(t)]:
        if name in NOT_APPLICABLE:
            outcomes.append((name, f"not applicable: {NOT_APPLICABLE[name]}"))
            continue
        try:
            if name.startswith("test_sync_") and name != "test_sync_init":  # as MXNet's command line begins each
                scope["kv"] = Store("dist_sync")
                compressed = {"test_sync_1bit_compression": ("1bit", 0), "test_sync_2bit_compression": ("2bit", 0.5)}
                if name in compressed:
                    threshold = scope["init_kv_compressed"](scope["kv"], *compressed[name])[1]
                    scope["set_optimizer"](True), test(threshold, REPEATS)
                else:
                    scope["init_kv"](), scope["set_optimizer"](True), test(REPEATS)
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
