"""Python's own tests, with every function's control flow rewritten: what passes as it stands passes rewritten too.

python -m tests.rewritten_python                     # all of MODULES
python -m tests.rewritten_python test_grammar ...    # some
"""

from __future__ import annotations

import argparse
import builtins
import collections
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import CodeType, ModuleType
from typing import Any

from kernelgraph.dsl.control_flow import hooks
from kernelgraph.dsl.control_flow.rewrite import HOOKS, code_with_control_flow_calls
from kernelgraph.dsl.control_flow.source import SourceUnavailable

# a module of Python's tests, and the modules of the standard library that are rewritten with it
MODULES: dict[str, tuple[str, ...]] = {
    "test_grammar": (),
    "test_scope": (),
    "test_with": (),
    "test_patma": (),
    "test_named_expressions": (),
    "test_exceptions": (),
    "test_except_star": (),
    "test_exception_variations": (),
    "test_raise": (),
    "test_compare": (),
    "test_augassign": (),
    "test_listcomps": (),
    "test_dictcomps": (),
    "test_setcomps": (),
    "test_genexps": (),
    "test_generators": (),
    "test_contains": (),
    "test_bool": (),
    "test_unpack": (),
    "test_unpack_ex": (),
    "test_extcall": (),
    "test_keywordonlyarg": (),
    "test_positional_only_arg": (),
    "test_super": (),
    "test_class": (),
    "test_descr": (),
    "test_decorators": (),
    "test_dynamic": (),
    "test_funcattrs": (),
    "test_global": (),
    "test_iter": (),
    "test_itertools": (),
    "test_enumerate": (),
    "test_range": (),
    "test_richcmp": (),
    "test_int": (),
    "test_float": (),
    "test_list": (),
    "test_dict": (),
    "test_set": (),
    "test_string": ("string",),
    "test_heapq": ("heapq",),
    "test_bisect": ("bisect",),
    "test_statistics": ("statistics", "fractions"),
    "test_fractions": ("fractions",),
    "test_textwrap": ("textwrap",),
    "test_difflib": ("difflib",),
    "test_shlex": ("shlex",),
    "test_csv": ("csv",),
    "test_configparser": ("configparser",),
    "test_argparse": ("argparse",),
    "test_optparse": ("optparse",),
    "test_graphlib": ("graphlib",),
    "test_colorsys": ("colorsys",),
    "test_calendar": ("calendar",),
    "test_ipaddress": ("ipaddress",),
    "test_pprint": ("pprint",),
    "test_copy": ("copy",),
    "test_contextlib": (),
    "test_dataclasses": (),
    "test_functools": (),
    "test_enum": (),
    "test_decimal": ("_pydecimal",),
    "test_traceback": (),
}
QUICK = ("test_grammar", "test_scope", "test_with", "test_named_expressions", "test_compare")
# tests that see how a function is made, and why that differs
SEEN = {
    "TestTracing.test_unreachable_code": "sys.settrace sees each part called",
    "NameErrorTests.test_name_error_suggestions": "the order of a function's names decides between two equally near",
    "TestSuper.test_obscure_super_errors": "super() without its first argument: UnboundLocalError for RuntimeError",
    "ClassPropertiesAndMethods.test_slots": "counts all objects: parts are some, and live as long as their function",
}


@dataclass
class Outcomes:
    """How each test of a module ended, and how many functions were rewritten, or why not."""

    tests: dict[str, str] = field(default_factory=dict)
    functions: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def rewrite_all(code: CodeType, found: Outcomes) -> CodeType:
    """A module's code with every function's control flow as calls."""
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            constant = _rewrite_one(constant, found)
        constants.append(constant)
    return code.replace(co_consts=tuple(constants))


def _rewrite_one(code: CodeType, found: Outcomes) -> CodeType:
    if code.co_flags & 1:  # a function's; a class body's names are looked up otherwise
        try:
            made = code_with_control_flow_calls(code)
        except SourceUnavailable as error:
            if not (code.co_name.startswith("<") and code.co_name != "<lambda>"):
                found.refused[str(error)] = found.refused.get(str(error), 0) + 1
        else:
            found.functions += 1
            return made
    return rewrite_all(code, found)


class _Finder(importlib.abc.MetaPathFinder):
    """Rewrites these modules as they are imported."""

    def __init__(self, names: Sequence[str], found: Outcomes) -> None:
        self.names, self.found = names, found

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name not in self.names:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            return spec
        spec.loader = _Loader(name, spec.origin)
        spec.loader.found = self.found
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    found: Outcomes

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code = compile(self.get_data(path), path, "exec", dont_inherit=True)
        return rewrite_all(code, self.found)


class _Result(unittest.TestResult):
    def __init__(self) -> None:
        super().__init__()
        self.tests: dict[str, str] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.tests[test.id()] = "passes"

    def _failed(self, test: Any, error: Any) -> None:
        kind, value, _ = error
        self.tests[getattr(test, "test_case", test).id()] = f"{kind.__name__}: {value}"[-1500:]

    def addError(self, test: Any, err: Any) -> None:
        self._failed(test, err)

    def addFailure(self, test: Any, err: Any) -> None:
        self._failed(test, err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._failed(test, err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.tests[test.id()] = "skipped"


def run_here(modules: Sequence[str], is_rewritten: bool) -> Outcomes:
    """Runs modules' tests in this process."""
    found = Outcomes()
    names = [name for module in modules for name in (f"test.{module}", *MODULES.get(module, ()))]
    if is_rewritten:
        setattr(builtins, HOOKS, hooks)
        sys.meta_path.insert(0, _Finder(names, found))
    for name in names:
        sys.modules.pop(name, None)
    result = _Result()
    for module in modules:
        unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(f"test.{module}")).run(result)
    found.tests = result.tests
    return found


def run_apart(modules: Sequence[str], is_rewritten: bool, seconds: float = 600) -> Outcomes:
    """Runs modules' tests in a process of their own."""
    way = "rewritten" if is_rewritten else "plain"
    command = [sys.executable, "-m", "tests.rewritten_python", "--here", way, *modules]
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.getcwd(), *sys.path]
        options = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, cwd=folder, env=options, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise AssertionError(f"{modules}: {done.stderr[-3000:]}")
    return Outcomes(**json.loads(done.stdout.splitlines()[-1]))


def differences(plain: Outcomes, other: Outcomes) -> dict[str, str]:
    """The tests that pass as they stand and end otherwise when rewritten."""
    return {
        name: other.tests.get(name, "is gone")
        for name, end in plain.tests.items()
        if end == "passes" and other.tests.get(name) != "passes" and ".".join(name.split(".")[-2:]) not in SEEN
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--here", choices=("plain", "rewritten"))
    options = parser.parse_args()
    if options.here:
        stdout, sys.stdout = sys.stdout, sys.stderr
        found = run_here(options.modules, options.here == "rewritten")
        sys.stdout = stdout
        print()
        print(json.dumps(found.__dict__))
        sys.stdout.flush()
        os._exit(0)
    total: collections.Counter[str] = collections.Counter()
    for module in options.modules or MODULES:
        try:
            plain, other = run_apart([module], False), run_apart([module], True)
        except Exception as error:
            print(f"{module}: {error}")
            continue
        wrong = differences(plain, other)
        passes = sum(end == "passes" for end in plain.tests.values())
        total.update(tests=passes, wrong=len(wrong), functions=other.functions)
        total.update(other.refused)
        print(f"{module}: {other.functions} functions rewritten, {passes} tests pass, {len(wrong)} of them differ")
        for name, end in wrong.items():
            print(f"  {name}: {end}")
        sys.stdout.flush()
    for name, count in total.items():
        print(f"{count:6} {name}")


if __name__ == "__main__":
    main()
