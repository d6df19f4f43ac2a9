"""`dataclass`, `field` and `replace` as this package uses them. The standard library's meaning at a tenth of its cost.
`frozen` is `dataclass(frozen=True, slots=True)`.

The standard library writes and compiles six methods for each class when its module is imported, which was half of a
warm start. Here they are closures over the fields' names; only `__init__`, whose speed counts, is compiled, when the
first instance is made. Supported: `frozen`, `slots`, `__post_init__`, and `field` with `default`, `default_factory`,
`repr` and `compare`. Fields are compared as a tuple, as they were before Python 3.13: what is one object is
equal, NaN too. Type checkers see the standard library's own, whose functions take these classes too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, dataclass_transform

_MISSING: Any = object()
_Class = TypeVar("_Class")


class _Field:
    """How one field differs from the others."""

    __slots__ = ("compare", "default", "default_factory", "repr")

    def __init__(
        self,
        *,
        default: Any = _MISSING,
        default_factory: Callable[[], Any] = _MISSING,
        repr: bool = True,
        compare: bool = True,
    ) -> None:
        self.default, self.default_factory = default, default_factory
        self.repr, self.compare = repr, compare


def _make_fast_dataclass(cls: Any = None, *, frozen: bool = False, slots: bool = False) -> Any:
    if cls is None:
        return lambda cls: _make_fast_dataclass(cls, frozen=frozen, slots=slots)
    types = cls.__annotations__
    fields = {name: _pop_dataclass_field_default(cls, name) for name in types}
    if slots:
        kept = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__", *fields)}
        kept |= {"__slots__": tuple(fields), "__qualname__": cls.__qualname__}
        cls = type(cls)(cls.__name__, cls.__bases__, kept)
    compared = _dataclass_values_getter(name for name, entry in fields.items() if entry.compare)
    made: dict[str, Any] = {
        "__dataclass_fields__": _LazyFieldTable(types, fields),
        "__match_args__": tuple(fields),
        "__init__": _lazily_compiled_dataclass_init(cls, fields, frozen, slots),
        "__repr__": _make_dataclass_repr([name for name, entry in fields.items() if entry.repr]),
        "__eq__": _make_dataclass_eq(compared),
        "__hash__": (lambda self: hash(compared(self))) if frozen else None,
    }
    if frozen:
        made |= {"__setattr__": _refuse_setattr_on_frozen, "__delattr__": _refuse_delattr_on_frozen}
    if frozen and slots:  # else pickle would set the attributes
        made |= _make_dataclass_getstate(tuple(fields))
    for name, value in made.items():
        if name not in vars(cls):
            setattr(cls, name, value)
    return cls


def _pop_dataclass_field_default(cls: Any, name: str) -> _Field:
    """A field of the class, which keeps no more of it than the default."""
    given = vars(cls).get(name, _MISSING)
    if not isinstance(given, _Field):
        return _Field(default=given)
    if given.default is _MISSING:
        delattr(cls, name)
    else:
        setattr(cls, name, given.default)
    return given


def _lazily_compiled_dataclass_init(
    cls: Any, fields: dict[str, _Field], frozen: bool, slots: bool
) -> Callable[..., None]:
    """An `__init__` that puts the compiled one in its place."""

    def __init__(self: Any, *given: Any, **named: Any) -> None:
        cls.__init__ = exact = _compile_dataclass_init(cls, fields, frozen, slots)
        exact(self, *given, **named)

    return __init__


def _compile_dataclass_init(cls: Any, fields: dict[str, _Field], frozen: bool, slots: bool) -> Callable[..., None]:
    parameters, lines = ["self"], []
    scope: dict[str, Any] = {"_missing": _MISSING, "_set": object.__setattr__}
    for name, entry in fields.items():
        value, default = name, entry.default
        if entry.default_factory is not _MISSING:
            scope[f"_make_{name}"], default = entry.default_factory, _MISSING
            value = f"_make_{name}() if {name} is _missing else {name}"
        optional = default is not _MISSING or value != name
        scope[f"_default_{name}"] = default
        parameters.append(f"{name}=_default_{name}" if optional else name)
        if frozen and slots:
            scope[f"_set_{name}"] = getattr(cls, name).__set__  # faster than object's
            lines.append(f"_set_{name}(self, {value})")
        else:
            lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), scope)
    made: Callable[..., None] = scope["__init__"]
    made.__module__, made.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    return made


def _dataclass_values_getter(names: Iterable[str]) -> Callable[[Any], tuple[Any, ...]]:
    every = tuple(names)
    if len(every) > 1:
        return attrgetter(*every)
    return lambda self: tuple(getattr(self, name) for name in every)


def _make_dataclass_repr(names: list[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _make_dataclass_eq(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], bool]:
    def __eq__(self: Any, other: Any) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return __eq__


def _refuse_setattr_on_frozen(self: Any, name: str, value: Any) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delattr_on_frozen(self: Any, name: str) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _make_dataclass_getstate(names: tuple[str, ...]) -> dict[str, Any]:
    values = _dataclass_values_getter(names)

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return {"__getstate__": lambda self: list(values(self)), "__setstate__": __setstate__}


class _LazyFieldTable:
    """`__dataclass_fields__`, made when a function of the standard library's asks for it."""

    def __init__(self, types: dict[str, Any], fields: dict[str, _Field]) -> None:
        self.types, self.fields = types, fields

    def __get__(self, _: Any, cls: Any) -> Any:
        import dataclasses

        listed = [
            (name, self.types[name], self._standard_field(dataclasses, entry)) for name, entry in self.fields.items()
        ]
        cls.__dataclass_fields__ = vars(dataclasses.make_dataclass(cls.__name__, listed))["__dataclass_fields__"]
        return cls.__dataclass_fields__

    def _standard_field(self, dataclasses: Any, entry: _Field) -> Any:
        given = {name: getattr(entry, name) for name in _Field.__slots__}
        return dataclasses.field(**{name: value for name, value in given.items() if value is not _MISSING})


def _replace_dataclass_fields(record: Any, /, **changes: Any) -> Any:
    for name in record.__match_args__:
        if name not in changes:
            changes[name] = getattr(record, name)
    return type(record)(**changes)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace

    @dataclass_transform(frozen_default=True, field_specifiers=(field,))
    def frozen(cls: type[_Class]) -> type[_Class]: ...
else:
    dataclass, field, replace = _make_fast_dataclass, _Field, _replace_dataclass_fields
    frozen = dataclass(frozen=True, slots=True)
