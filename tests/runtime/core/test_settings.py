"""Settings: one table, read from the environment once, overridden in blocks that always restore."""

import ast
from pathlib import Path

import pytest

import kernelgraph.runtime as runtime
from kernelgraph.runtime.core.settings import TABLE, Settings, override, settings, unknown_variables

FOLDER = Path(runtime.__file__).parent


def test_every_row_has_an_attribute_and_a_variable_of_its_own():
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names)
    assert {*names, "special"} == set(Settings.__annotations__)
    values = Settings({})
    for row in TABLE:
        assert getattr(values, row.name) == row.default
        assert row.environment_variable == "KERNELGRAPH_" + row.name.upper()
        assert row.environment_variable in str(values)


def test_calls_are_special_while_a_setting_makes_them_so():
    assert not Settings({}).special and Settings({"KERNELGRAPH_DISABLE": "1"}).special
    values = Settings({})
    for name, value in (("engine", "sync"), ("verify", True), ("disable", True)):
        setattr(values, name, value)
        assert values.special
        setattr(values, name, False if value is True else "async")
        assert not values.special
    values.tune = False
    assert not values.special


def test_the_environment_decides():
    given = {"KERNELGRAPH_ENGINE": "sync", "KERNELGRAPH_VERIFY": "1", "KERNELGRAPH_THREADS": "3", "OTHER": "x"}
    values = Settings(given)
    assert (values.engine, values.verify, values.threads, values.tune) == ("sync", True, 3, True)
    assert Settings({"KERNELGRAPH_TUNE": "0"}).tune is False


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ENGINE", "fast"),
        ("VERIFY", "maybe"),
        ("THREADS", "-1"),
        ("THREADS", "two"),
        ("CACHE_BYTES", "1e9"),
        ("CPU_FEATURES", "avx512f"),
    ],
)
def test_a_bad_value_names_its_variable(name, text):
    with pytest.raises(ValueError, match=f"KERNELGRAPH_{name}"):
        Settings({f"KERNELGRAPH_{name}": text})


@pytest.mark.parametrize(("name", "value"), [("cpu_devices", -1), ("threads", "many"), ("engine", "fast"), ("tune", 2)])
def test_an_assignment_is_checked(name, value):
    values = Settings({})
    with pytest.raises(ValueError, match=f"{name}="):
        setattr(values, name, value)
    assert getattr(values, name) == getattr(Settings({}), name)
    with pytest.raises(AttributeError, match="cpu_devices"):
        values.cpu_device = 4


def test_override_restores_also_after_an_error():
    before = settings.engine
    with pytest.raises(RuntimeError), override(engine="chaos", verify=True):
        assert (settings.engine, settings.verify) == ("chaos", True)
        raise RuntimeError
    assert settings.engine == before
    assert settings.verify is False


def test_override_refuses_what_the_table_refuses():
    before = settings.engine
    with pytest.raises(AttributeError, match="no setting 'engin'"), override(engin="sync"):
        pass
    with pytest.raises(ValueError, match="async, sync, chaos"), override(engine="fast"):
        pass
    with pytest.raises(ValueError, match="whole number"), override(engine="sync", threads=-2):
        pass
    assert settings.engine == before


def test_nothing_else_reads_the_environment():
    """Handing all of it on to a child process reads no setting; nor does what launchers say of their ranks."""
    for path in FOLDER.rglob("*.py"):
        if path.name in ("settings.py", "launched.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            text = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Subscript | ast.Name) else ""
            reads = text.startswith(("os.environ.", "os.environ[")) or text in ("os.getenv", "getenv", "environ")
            assert not reads, f"{path.name}:{node.lineno}: {text}"


def test_a_wrong_value_of_the_environment_names_no_line() -> None:
    with pytest.raises(ValueError, match=r"^KERNELGRAPH_THREADS='two': write a whole number"):
        Settings({"KERNELGRAPH_THREADS": "two"})
    with pytest.raises(ValueError, match=r"^test_settings\.py:\d+: threads='two': write"), override(threads="two"):
        pass


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("KERNELGRAPH_TREADS", "KERNELGRAPH_THREADS"),
        ("kernelgraph_threads", "KERNELGRAPH_THREADS"),
        ("KernelGraph_Tune", "KERNELGRAPH_TUNE"),
        ("KERNELGRAPH_cache_dir", "KERNELGRAPH_CACHE_DIR"),
        ("KERNELGRPAH_CACHE_DIR", "KERNELGRAPH_CACHE_DIR"),
        ("KERNEL_GRAPH_THREADS", "KERNELGRAPH_THREADS"),
        ("KERNALGRAPH_ENGINE", "KERNELGRAPH_ENGINE"),
        ("KERNELGRAPHS_ENGINE", "KERNELGRAPH_ENGINE"),
        ("KERNELGRAPHTUNE", "KERNELGRAPH_TUNE"),
        ("KG_THREADS", "KERNELGRAPH_THREADS"),
    ],
)
def test_a_misspelt_variable_is_told(name, meant):
    assert unknown_variables({name: "1", "PATH": "/bin"}) == [f"{name} is no setting; did you mean {meant}?"]


def test_variables_of_others_and_of_tests_are_left_alone():
    others = "KMP_THREADS KUBE_CACHE_DIR KERAS_ENGINE GRAPH_TUNE KERNEL_THREADS KERNELGRAPH_TEST_LARGE OMP_NUM_THREADS"
    known = [row.environment_variable for row in TABLE]
    assert unknown_variables(dict.fromkeys([*others.split(), *known], "1")) == []
    assert unknown_variables({"kernelgraph_colour": "1"}) == ["kernelgraph_colour is no setting"]
