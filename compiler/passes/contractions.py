"""Graph -> Graph: contractions over sliding windows as convolutions, however they are written.

A node is read backwards as a sum of products of two arrays, whose elements lie at affine forms of variables: one for
each axis of the result and each that is summed over. Slices, windows, stacked or assigned parts and sums of shifted
products are all such forms; what makes it a convolution is how the variables meet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from itertools import islice, pairwise
from typing import Any

from ...runtime.core.frozen import frozen
from ..core.types import FLOAT32, FLOAT64, HALVES, ArrayType
from ..graph.builder import GraphBuilder, nodes_to_copy
from ..graph.graph import Graph, Node, Value
from ..graph.precision import precision_of_attrs
from .attention import AffineForm, combined_affine_forms, is_rounded_to_16_bits
from .simplify import constant_value_of_node, rebuild_node_by_rule

FEW, FEW_OUT = 32, 2  # products for a result, and results for which an element is multiplied: sums of shifted products
MOST_AXES = 3
MOST_PARTS = 4096  # that are stacked or added up, and elements of a window
_ENDS = ("matmul", "sum", "add", "concat", "update")
ZERO: AffineForm = ({}, 0)


class _NoConvolution(Exception):
    """A graph computes something else."""


def _required(condition: object) -> None:
    if not condition:
        raise _NoConvolution


@frozen
class _Load:
    """The elements of a node at a form for each of its axes."""

    base: int
    at: tuple[AffineForm, ...]


@frozen
class _Window:
    """along: the variable of the result's axis; place: of what is summed over, if there is any; the image's elements
    that are read lie `common` apart, so many."""

    along: int
    place: int | None = None
    stride: int = 1
    dilation: int = 1
    common: int = 1
    extent: int = 0


@frozen
class _Convolution:
    """axes: of each axis of the result its variables. batch, group, channel, out: the variables that are in the image
    alone, in all, summed over, in the weights alone; rest: nodes that are added."""

    axes: tuple[tuple[int, ...], ...]
    image: _Load
    weights: _Load
    windows: tuple[_Window, ...]
    batch: tuple[int, ...]
    group: tuple[int, ...]
    channel: tuple[int, ...]
    out: tuple[int, ...]
    precision: str
    rest: tuple[int, ...]


def call_convolutions(graph: Graph) -> Graph:
    """sum(windows of x * w) -> convolution(x, w), of floats, where windows are contracted with weights."""
    counts = Counter((node.op, node.args) for node in graph.nodes if node.op in ("windows", "slice"))
    if not any(op == "windows" or n > 1 for (op, _), n in counts.items()):
        return graph
    found: dict[int, tuple[_Reader, _Convolution]] = {}
    covered: set[int] = set()
    for number in reversed(range(len(graph.nodes))):
        node = graph.nodes[number]
        if node.op in _ENDS and number not in covered and node.dtype in (FLOAT32, FLOAT64, *HALVES):
            reader = _Reader(graph)
            try:
                found[number] = reader, reader.convolution(number)
                covered |= reader.read
            except _NoConvolution:
                covered |= reader.chain
    if not found:
        return graph
    builder, new = GraphBuilder(graph.name), list[Value]()
    for number, node in nodes_to_copy(graph, builder):

        def written(builder: GraphBuilder, node: Node, args: object, number: int = number) -> Value | None:
            return _write_convolution(builder, graph, number, *found[number], new) if number in found else None

        new.append(rebuild_node_by_rule(builder, node, [new[a] for a in node.args], written))
    return builder.finish([new[o] for o in graph.outputs])


class _Reader:
    """Reads a graph backwards from one node. lengths: of the variables; digits: those that were split, v = m * a + b;
    read: the nodes that were; chain: the additions among them.

    Parts that are stacked or added up are read with the same variables: `made` gives them again in their order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lengths: list[int] = []
        self.digits: dict[int, tuple[int, int, int]] = {}
        self.made: list[int] = []
        self.cursor = 0
        self.read: set[int] = set()
        self.chain: set[int] = set()
        self.precision = ""
        self.reduced = False

    # variables and forms

    def variable(self, length: int) -> int:
        self.lengths.append(length)
        return len(self.lengths) - 1

    def new(self, length: int) -> AffineForm:
        _required(length > 0)
        if length == 1:
            return ZERO
        if self.cursor == len(self.made):
            self.made.append(self.variable(length))
        number = self.made[self.cursor]
        _required(self.lengths[number] == length)
        self.cursor += 1
        return {number: 1}, 0

    def expanded(self, form: AffineForm) -> AffineForm:
        """In variables that were not split."""
        while split := [v for v in form[0] if v in self.digits]:
            for v in split:
                high, step, low = self.digits[v]
                factor = form[0][v]
                form = combined_affine_forms(form, ({v: -factor, high: factor * step, low: factor}, 0), 1, 1)
        return form

    def variables(self, form: AffineForm) -> tuple[int, ...]:
        """Those of a form that counts elements, the slowest first."""
        factors = self.expanded(form)[0]
        return tuple(sorted(factors, key=lambda v: -abs(factors[v])))

    def divided(self, form: AffineForm, divisor: int) -> tuple[AffineForm, AffineForm]:
        """Quotient and remainder, both affine: variables that reach beyond the divisor are split there."""
        _required(divisor > 0)
        factors, constant = self.expanded(form)
        high, low = dict[int, int](), dict[int, int]()
        for v, factor in factors.items():
            if factor % divisor == 0:
                high[v] = factor // divisor
                continue
            reach = divisor // abs(factor)
            if self.lengths[v] <= reach or divisor % abs(factor):
                low[v] = factor
                continue
            _required(factor > 0 and self.lengths[v] % reach == 0)
            self.digits[v] = a, _, b = self.variable(self.lengths[v] // reach), reach, self.variable(reach)
            high[a], low[b] = 1, factor
        first, rest = divmod(constant, divisor)
        ends = [factor * (self.lengths[v] - 1) for v, factor in low.items()]
        _required(rest + sum(min(0, e) for e in ends) >= 0 and rest + sum(max(0, e) for e in ends) < divisor)
        return (high, first), (low, rest)

    # what is multiplied

    def load(self, number: int, at: Sequence[AffineForm]) -> _Load:
        """Where the elements of a node come from, through views, casts that are exact, and parts put together."""
        node = self.graph.nodes[number]
        self.read.add(number)
        if (rule := _VIEWS.get(node.op)) is not None:
            return self.load(node.args[0], rule(self, node, at))
        source = self.graph.nodes[node.args[0]].type if node.args else node.type
        if node.op == "cast" and source.dtype in (FLOAT32, *HALVES) and node.dtype in (FLOAT32, FLOAT64):
            return self.load(node.args[0], at)
        if node.op in ("concat", "update") and (
            joined := self.tried(self.cursor, lambda: self.parts(number, at, lambda n, at: (self.load(n, at),)))
        ):
            return joined[0]
        return _Load(number, tuple(at))

    def product(self, number: int, at: Sequence[AffineForm]) -> tuple[_Load, ...]:
        """The two factors of a node's elements, summed over new variables."""
        node = self.graph.nodes[number]
        self.read.add(number)
        if (rule := _VIEWS.get(node.op)) is not None:
            return self.product(node.args[0], rule(self, node, at))
        if node.op in ("concat", "update"):
            return self.parts(number, at, self.product)
        if node.op == "sum":
            self.reduced = True
            entries = iter(at)
            shape = self.graph.nodes[node.args[0]].type.shape
            axes = node.attr("axes")
            return self.product(
                node.args[0], [self.new(n) if i in axes else next(entries) for i, n in enumerate(shape)]
            )
        if node.op == "matmul":
            a, b = node.args
            self.reduced, self.precision = True, precision_of_attrs(node.attrs)
            *batch, row, column = at
            summed = self.new(self.graph.nodes[a].type.shape[-1])
            return self.argument(a, (*batch, row, summed)), self.argument(b, (*batch, summed, column))
        if node.op == "add":
            factors, rest = self.terms(number, at)
            _required(not rest)
            return factors
        _required(node.op == "multiply" and node.dtype not in HALVES)  # each product is rounded
        a, b = node.args
        return self.argument(a, at), self.argument(b, at)

    def argument(self, number: int, at: Sequence[AffineForm]) -> _Load:
        return self.load(number, self.broadcast(number, at))

    def broadcast(self, number: int, at: Sequence[AffineForm]) -> list[AffineForm]:
        """The forms of what is broadcast."""
        shape = self.graph.nodes[number].type.shape
        return [ZERO if n == 1 else form for n, form in zip(shape, at[len(at) - len(shape) :], strict=True)]

    def terms(self, number: int, at: Sequence[AffineForm]) -> tuple[tuple[_Load, ...], tuple[int, ...]]:
        """The factors of the products that are added up, as one, and what else is added."""
        groups: dict[Any, list[tuple[int, tuple[_Load, ...]]]] = {}
        rest, start, end = list[int](), self.cursor, self.cursor
        for term in self.terms_added(number):
            factors = self.tried(start, partial(self.product, term, self.broadcast(term, at)))
            if factors is None:
                rest.append(term)
            else:
                end = max(end, self.cursor)
                groups.setdefault(tuple(f.base for f in factors), []).append((term, factors))
        self.cursor = end
        _required(groups)
        largest = max(groups.values(), key=len)
        rest += [term for group in groups.values() if group is not largest for term, _ in group]
        zeros = [n for n in rest if constant_value_of_node(self.graph, n) == 0]
        factors = self.joined([each for _, each in largest], None)
        return factors, tuple(n for n in rest if n not in zeros)

    def tried(self, start: int, read: Callable[[], tuple[_Load, ...]]) -> tuple[_Load, ...] | None:
        """What is read with the variables from `start` on; None, and no new variables, where it is something else."""
        self.cursor, made = start, len(self.made)
        try:
            return read()
        except _NoConvolution:
            self.cursor = start
            del self.made[made:]
            return None

    def terms_added(self, number: int) -> list[int]:
        """The terms of a chain of additions whose sums nothing else reads."""
        _required(self.graph.nodes[number].type.dtype not in HALVES)  # each sum is rounded
        terms, left = [], [number]
        while left:
            n = left.pop()
            node = self.graph.nodes[n]
            alone = n == number or (len(self.graph.users[n]) == 1 and n not in self.graph.outputs)
            if node.op == "add" and alone:
                self.chain.add(n)
                left += node.args
            else:
                terms.append(n)
        _required(len(terms) <= MOST_PARTS)
        self.read |= self.chain
        return terms

    def parts(
        self, number: int, at: Sequence[AffineForm], of: Callable[[int, Sequence[AffineForm]], tuple[_Load, ...]]
    ) -> tuple[_Load, ...]:
        """The loads of parts of equal shapes that are put together, as one."""
        node = self.graph.nodes[number]
        shape = node.shape
        placed = _parts_of_concat(self.graph, node) if node.op == "concat" else _parts_of_updates(self.graph, number)
        lengths = self.graph.nodes[placed[0][1]].type.shape
        _required(len(placed) <= MOST_PARTS and all(self.graph.nodes[n].type.shape == lengths for _, n in placed))
        place, inner, places = ZERO, list(at), list[int]()
        for axis, (n, length) in enumerate(zip(shape, lengths, strict=True)):
            if n != length:
                _required(n % length == 0)
                high, inner[axis] = self.divided(at[axis], length)
                place = combined_affine_forms(place, high, n // length, 1)
                places.append(axis)
        by_place = {}
        for starts, n in placed:
            flat = 0
            for axis in places:
                _required(starts[axis] % lengths[axis] == 0)
                flat = flat * (shape[axis] // lengths[axis]) + starts[axis] // lengths[axis]
            by_place[flat] = n
        _required(len(by_place) == len(placed) == math.prod(shape[a] // lengths[a] for a in places))
        start, read = self.cursor, []
        for flat in range(len(placed)):
            self.cursor = start
            read.append(of(by_place[flat], inner))
        return self.joined(read, place)

    def joined(self, parts: Sequence[tuple[_Load, ...]], place: AffineForm | None) -> tuple[_Load, ...]:
        """Loads that differ by where they begin, as those of one more variable or several: of which part (place), else
        they are summed over, in any order."""
        read = [[(load.base, *self.expanded(form)) for load in loads for form in load.at] for loads in parts]
        same = [[(base, factors) for base, factors, _ in forms] for forms in read]
        _required(all(each == same[0] for each in same))
        starts = [tuple(start for _, _, start in forms) for forms in read]
        if summed := place is None:
            starts.sort()
        forms: list[AffineForm] = [(factors, n) for (_, factors), n in zip(same[0], starts[0], strict=True)]
        for count, step in reversed(_progressions(starts)):
            _required(not summed or any(step))
            place, value = (ZERO, self.new(count)) if summed else self.divided(place or ZERO, count)
            forms = [combined_affine_forms(form, value, 1, n) for form, n in zip(forms, step, strict=True)]
        at = iter(forms)
        return tuple(_Load(load.base, tuple(islice(at, len(load.at)))) for load in parts[0])

    # what it is

    def convolution(self, end: int) -> _Convolution:
        node, rest = self.graph.nodes[end], tuple[int, ...]()
        axes = [self.new(n) for n in node.shape]
        self.cursor = len(self.made)
        if node.op == "add":
            factors, rest = self.terms(end, axes)
        else:
            factors = self.product(end, axes)
        loads = [_Load(load.base, tuple(map(self.expanded, load.at))) for load in factors]
        results = tuple(self.variables(form) for form in axes)
        for image, weights in (loads, loads[::-1]):
            try:
                return self.roles(results, image, weights, rest)
            except _NoConvolution:
                continue
        raise _NoConvolution

    def roles(
        self, axes: tuple[tuple[int, ...], ...], image: _Load, weights: _Load, rest: tuple[int, ...]
    ) -> _Convolution:
        """Each variable's, by which arrays have it."""
        ends = {v for axis in axes for v in axis}
        of_image, of_weights = map(_variables_read_once, (image, weights))
        _required({v for n in self.made for v in self.expanded(({n: 1}, 0))[0]} == of_image | of_weights)
        _required(of_image - ends == of_weights - ends)  # none is summed alone
        moving, summed = ends & of_image - of_weights, of_image - ends
        windows = {
            axis: self.window(f, moving) for axis, f in enumerate(image.at) if {*f[0]} & moving and {*f[0]} & summed
        }
        _required(windows)
        inside = {v: f for axis in windows for v, f in image.at[axis][0].items() if v in summed}
        image, weights = (self.turned(load, {v for v in inside if inside[v] < 0}) for load in (image, weights))
        _required(all(self.counts_elements(f) for i, f in enumerate(image.at) if i not in windows))
        _required(all(map(self.counts_elements, weights.at)))
        channel, group = self.ordered(image, summed - {*inside}), self.ordered(image, ends & of_weights)
        windows |= self.windows_of_one(image, {*channel, *group}, windows)
        _required(len(windows) <= MOST_AXES and self.size(inside) <= MOST_PARTS)
        batch = self.ordered(image, moving - {w.along for w in windows.values()})
        out = self.ordered(weights, ends - of_image)
        _required(self.reduced or self.size({*channel, *inside}) > FEW or self.size(out) > FEW_OUT)
        along = tuple(windows[axis] for axis in sorted(windows))
        return _Convolution(axes, image, weights, along, batch, group, channel, out, self.precision, rest)

    def ordered(self, load: _Load, among: set[int]) -> tuple[int, ...]:
        """These variables as they lie in memory."""
        return tuple(v for form in load.at for v in self.variables(form) if v in among)

    def windows_of_one(self, image: _Load, channels: set[int], windows: Mapping[int, _Window]) -> dict[int, _Window]:
        """Axes behind the channels along which nothing is summed: as images of a batch they would be copied."""
        each = [self.variables(form) for form in image.at]
        behind = max((i for i, axis in enumerate(each) if channels & {*axis}), default=len(each))
        alone = [i for i, axis in enumerate(each) if i > behind and len(axis) == 1 and i not in windows]
        return {i: _Window(each[i][0]) for i in alone[: max(0, MOST_AXES - len(windows))]}

    def window(self, form: AffineForm, moving: set[int]) -> _Window:
        """That of an axis along which one variable moves and one is summed over."""
        factors, _ = form
        _required(len(factors) == 2)
        along, place = sorted(factors, key=lambda v: v not in moving)
        step, apart = factors[along], abs(factors[place])
        _required(step > 0)
        common = math.gcd(step, apart)
        reach = step * (self.lengths[along] - 1) + apart * (self.lengths[place] - 1)
        return _Window(along, place, step // common, apart // common, common, reach // common + 1)

    def turned(self, load: _Load, places: set[int]) -> _Load:
        """With windows read from their other ends."""
        forms = []
        for form in load.at:
            for v in places & {*form[0]}:
                factor = form[0][v]
                form = combined_affine_forms(form, ({v: factor}, 0), 1, -2, factor * (self.lengths[v] - 1))
            forms.append(form)
        return _Load(load.base, tuple(forms))

    def counts_elements(self, form: AffineForm) -> bool:
        """Whether its variables count elements that lie equally far apart."""
        variables = self.variables(form)
        return all(form[0][a] == form[0][b] * self.lengths[b] for a, b in pairwise(variables))

    def size(self, variables: Iterable[int]) -> int:
        return math.prod(self.lengths[v] for v in variables)


def _variables_read_once(load: _Load) -> set[int]:
    """Those of all axes, of which none is on a diagonal."""
    variables = [v for factors, _ in load.at for v in factors]
    _required(len(variables) == len(set(variables)))
    return set(variables)


def _progressions(starts: Sequence[tuple[int, ...]]) -> list[tuple[int, tuple[int, ...]]]:
    """(count, step) of nested progressions, the slowest first, that give these numbers one after the other."""
    if len(starts) == 1:
        return []
    first = starts[0]
    step = tuple(b - a for a, b in zip(first, starts[1], strict=True))
    count = 2
    while count < len(starts) and starts[count] == tuple(a + count * s for a, s in zip(first, step, strict=True)):
        count += 1
    _required(len(starts) % count == 0)
    for begin in range(count, len(starts), count):
        for i in range(1, count):
            _required(starts[begin + i] == tuple(a + i * s for a, s in zip(starts[begin], step, strict=True)))
    return [*_progressions(starts[::count]), (count, step)]


# parts: (where it begins, node)

Part = tuple[Sequence[int], int]


def _parts_of_concat(graph: Graph, node: Node) -> list[Part]:
    placed, axis, start = list[Part](), node.attr("axis"), 0
    for n in node.args:
        placed.append(([start if i == axis else 0 for i in range(len(node.shape))], n))
        start += graph.nodes[n].type.shape[axis]
    return placed


def _parts_of_updates(graph: Graph, number: int) -> list[Part]:
    """Of updates one on another, without gaps inside, that are as large as the array: none hides another if their
    places differ."""
    placed, node = list[Part](), graph.nodes[number]
    covered, size = 0, node.type.size
    while covered < size:
        _required(node.op == "update")
        value = graph.nodes[node.args[1]].type
        _required(all(s == 1 or n == 1 for s, n in zip(node.attr("steps"), value.shape, strict=True)))
        placed.append((node.attr("starts"), node.args[1]))
        covered += value.size
        node = graph.nodes[node.args[0]]
    return placed


# views: the forms of the array that a view is of


def _forms_of_slice(reader: _Reader, node: Node, at: Sequence[AffineForm]) -> list[AffineForm]:
    parts = zip(at, node.attr("starts"), node.attr("steps"), strict=True)
    return [combined_affine_forms(form, ZERO, step, 0, start) for form, start, step in parts]


def _forms_of_permute(reader: _Reader, node: Node, at: Sequence[AffineForm]) -> list[AffineForm]:
    axes = node.attr("axes")
    return [at[axes.index(i)] for i in range(len(at))]


def _forms_of_windows(reader: _Reader, node: Node, at: Sequence[AffineForm]) -> list[AffineForm]:
    *forms, inside = at
    axis = node.attr("axis")
    forms[axis] = combined_affine_forms(forms[axis], inside, 1, 1)
    return forms


def _forms_of_broadcast(reader: _Reader, node: Node, at: Sequence[AffineForm]) -> list[AffineForm]:
    return reader.broadcast(node.args[0], at)


def _forms_of_reshape(reader: _Reader, node: Node, at: Sequence[AffineForm]) -> list[AffineForm]:
    """An element's place in all, and that again by the other lengths."""
    place = ZERO
    for form, n in zip(at, node.shape, strict=True):
        place = combined_affine_forms(place, form, n, 1)
    forms = []
    for n in reversed(reader.graph.nodes[node.args[0]].type.shape):
        place, form = reader.divided(place, n)
        forms.append(form)
    return forms[::-1]


_VIEWS: dict[str, Callable[[_Reader, Node, Sequence[AffineForm]], list[AffineForm]]] = {
    "slice": _forms_of_slice,
    "permute": _forms_of_permute,
    "windows": _forms_of_windows,
    "broadcast": _forms_of_broadcast,
    "reshape": _forms_of_reshape,
}


# writing


def _write_convolution(
    builder: GraphBuilder, graph: Graph, number: int, reader: _Reader, call: _Convolution, new: Sequence[Value]
) -> Value:
    """The call in the place of a node. new: what stands for the nodes before it."""
    size, type = reader.size, graph.nodes[number].type
    dtypes = {graph.nodes[load.base].type.dtype for load in (call.image, call.weights)}
    narrow = len(dtypes) == 1 and dtypes <= set(HALVES) and is_rounded_to_16_bits(graph, number)
    dtype = dtypes.pop() if narrow else type.dtype
    along, places = [w.along for w in call.windows], [w.place for w in call.windows if w.place is not None]
    image = _arranged(builder, reader, new, call.image, (*call.batch, *call.group, *call.channel, *along), call.windows)
    channels = size((*call.group, *call.channel))
    image = builder.reshape(image, (size(call.batch), channels, *image.shape[len(image.shape) - len(along) :]))
    weights = _arranged(builder, reader, new, call.weights, (*call.group, *call.out, *call.channel, *places))
    kernel = [1 if w.place is None else reader.lengths[w.place] for w in call.windows]
    weights = builder.reshape(weights, (size((*call.group, *call.out)), size(call.channel), *kernel))
    options: dict[str, Any] = {
        "stride": tuple(w.stride for w in call.windows),
        "dilation": tuple(w.dilation for w in call.windows),
        "groups": size(call.group),
        **({"precision": call.precision} if call.precision else {}),
    }
    shape = (image.shape[0], weights.shape[0], *(reader.lengths[v] for v in along))
    both = [builder.cast(a, dtype) for a in (image, weights)]
    (result,) = builder.host("convolution", both, [ArrayType(shape, dtype)], **options)
    order = (*call.batch, *call.group, *call.out, *along)
    result = builder.reshape(result, [reader.lengths[v] for v in order])
    result = builder.permute(result, [order.index(v) for axis in call.axes for v in axis])
    result = builder.cast(builder.reshape(result, type.shape), type.dtype)
    return reduce(partial(builder.map, "add"), (new[n] for n in call.rest), result)


def _arranged(
    builder: GraphBuilder,
    reader: _Reader,
    new: Sequence[Value],
    load: _Load,
    order: Sequence[int],
    windows: Sequence[_Window] = (),
) -> Value:
    """What is loaded, with an axis for each variable; a window's elements lie along its result's."""
    extents = {w.along: w for w in windows if w.place is not None}
    starts, steps, counts, split, variables = [], [], [], list[int](), list[int]()
    for form in load.at:
        window = next((extents[v] for v in form[0] if v in extents), None)
        inside = reader.variables(form) if window is None else (window.along,)
        lengths = [reader.lengths[v] if window is None else window.extent for v in inside]
        starts.append(form[1])
        steps.append(window.common if window else form[0][inside[-1]] if inside else 1)
        counts.append(math.prod(lengths))
        split += lengths
        variables += inside
    value = builder.reshape(builder.slice(new[load.base], starts, steps, counts), split)
    return builder.permute(value, [variables.index(v) for v in order])
