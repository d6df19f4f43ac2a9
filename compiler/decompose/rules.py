"""Who runs an operation on a target. For each call: ops that fuse, kernels of the target's own, or NumPy on the host.

`TABLE` decides it, here and nowhere else: the front end emits calls, lowering does what the graph says. On a GPU the
host's share of `np.fft` and `np.linalg` goes to cuFFT and cuSOLVER where they do such a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...runtime.core.frozen import dataclass, frozen
from ...runtime.core.settings import settings
from ...runtime.program.device import H200
from ...runtime.program.dnn import DnnLibrary
from ..core.combiners import COMBINERS
from ..core.cost import WorkCostModel, work_cost_model_of_gpu
from ..core.types import ArrayType
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value, Values
from ..layout.operands import contiguous_strides, strides_of_memory_view_node
from ..passes.materialize import MemoryLayout
from ..passes.simplify import rewrite_nodes
from . import own_kernels as own
from .assignments import (
    decompose_combine_at,
    decompose_put_along_axis,
    decompose_setitem,
    decompose_ufunc_at,
)
from .channels_last import finish_convolutions, keep_channels_last
from .convolution import (
    decompose_convolution,
    decompose_convolution_image,
    decompose_convolution_weights,
    decompose_convolution_weights_without_windows,
    decompose_convolution_without_windows,
    decompose_convolve,
    decompose_correlate,
)
from .cumulative import decompose_complex_scan, decompose_cumulative
from .dnn import (
    CONVOLUTION_CALLS,
    call_dnn_attention,
    call_dnn_attention_gradient,
    call_dnn_convolution,
    cut_images_of_gradients,
    decompose_attention,
    decompose_attention_gradient,
)
from .histograms import decompose_bincount, decompose_histogram, decompose_histogram_in_range
from .linalg import decompose_cholesky, decompose_det, decompose_eigh, decompose_qr, decompose_slogdet, decompose_svd
from .order_statistics import (
    decompose_complex_argsort,
    decompose_complex_sort,
    decompose_lexsort,
    decompose_median,
    decompose_nanmedian,
    decompose_nanquantile,
    decompose_quantile,
)
from .searching import decompose_digitize, decompose_isin, decompose_searchsorted
from .sorting_networks import decompose_call_of_short_rows, decompose_kth_of_short_rows, decompose_sort_of_short_rows

HOST = "NumPy on the host"
# What stands in a call's place, or why nothing does; and "" where the target's own kernels do it, or why not.
Rule = Callable[[GraphBuilder, Node, Values], Value | str]
Condition = Callable[[own.DecomposableCall], str]
DnnRule = Callable[[DnnLibrary | None, WorkCostModel, GraphBuilder, Node, Values], Value | str]


@frozen
class DecompositionRule:
    """fuses: ops in the call's place. kernels: the target's own do it as it stands. dnn: a library for deep neural
    networks does it. checked: no error of NumPy's that
    follows the values is lost, so that it holds where all is verified. contiguous: those kernels take arrays without
    gaps."""

    fuses: Rule | None = None
    kernels: Condition | None = None
    dnn: DnnRule | None = None
    checked: bool = True
    contiguous: bool = False


def _decomposition_rule_that_fuses(rule: Rule, checked: bool = True) -> DecompositionRule:
    return DecompositionRule(fuses=rule, checked=checked)


def _decomposition_rule_of_short_rows(rule: Rule) -> DecompositionRule:
    return DecompositionRule(fuses=partial(decompose_call_of_short_rows, rule))


def _decomposition_rule_of_own_kernel(condition: Condition) -> DecompositionRule:
    return DecompositionRule(kernels=condition)


def _decompose_require(builder: GraphBuilder, node: Node, args: Values) -> Value:
    """require(a, condition) -> a"""
    return args[0]


def _decompose_complex_reduction(builder: GraphBuilder, node: Node, args: Values) -> Value:
    """prod(z) -> NumPy's"""
    return builder.host("reduce", args, [node.type], op=node.op, axes=node.attr("axes"))[0]


# reductions that do not reduce the two parts of complex numbers on their own
_NUMPYS = frozenset(name for name, row in COMBINERS.items() if row.primitive != "add")
# function (or op) -> target -> the ways that are tried in order; what none of them takes NumPy does on the host
_SORTED, _PLACES = (
    (_decomposition_rule_that_fuses(decompose_complex_sort), _decomposition_rule_of_own_kernel(own.why_no_sort_kernel)),
    (
        _decomposition_rule_that_fuses(decompose_complex_argsort),
        _decomposition_rule_of_own_kernel(own.why_no_sort_kernel),
    ),
)
_EVERYWHERE: dict[str, tuple[DecompositionRule, ...]] = {
    "searchsorted": (_decomposition_rule_that_fuses(decompose_searchsorted),),
    "isin": (_decomposition_rule_that_fuses(decompose_isin),),
    "histogram": (_decomposition_rule_that_fuses(decompose_histogram_in_range),),
    "convolve": (_decomposition_rule_that_fuses(decompose_convolve),),
    "correlate": (_decomposition_rule_that_fuses(decompose_correlate),),
    "convolution": (_decomposition_rule_that_fuses(decompose_convolution),),
    "convolution_image": (_decomposition_rule_that_fuses(decompose_convolution_image),),
    "convolution_weights": (_decomposition_rule_that_fuses(decompose_convolution_weights),),
    "attention": (_decomposition_rule_that_fuses(decompose_attention),),
    "attention_gradient": (_decomposition_rule_that_fuses(decompose_attention_gradient),),
    **dict.fromkeys(_NUMPYS, (_decomposition_rule_that_fuses(_decompose_complex_reduction),)),
}
TABLE: dict[str, dict[str, tuple[DecompositionRule, ...]]] = {
    "cpu": {
        **_EVERYWHERE,
        "convolution": (
            _decomposition_rule_that_fuses(decompose_convolution_without_windows),
            _decomposition_rule_that_fuses(decompose_convolution),
        ),
        "convolution_weights": (
            _decomposition_rule_that_fuses(decompose_convolution_weights_without_windows),
            _decomposition_rule_that_fuses(decompose_convolution_weights),
        ),
        **dict.fromkeys(
            ("shifted_products", "shifted_dots"),
            (DecompositionRule(kernels=own.why_no_shifted_rows_kernel, contiguous=True),),
        ),
        "cumsum": (_decomposition_rule_of_own_kernel(own.why_no_running_kernel),),
        "cumprod": (_decomposition_rule_of_own_kernel(own.why_no_running_kernel),),
        "sort": (_decomposition_rule_that_fuses(decompose_sort_of_short_rows),),
        "kth": (_decomposition_rule_that_fuses(decompose_kth_of_short_rows),),
        "median": (_decomposition_rule_of_short_rows(decompose_median),),
        "nanmedian": (_decomposition_rule_of_short_rows(decompose_nanmedian),),
        "quantile": (_decomposition_rule_of_short_rows(decompose_quantile),),
        "percentile": (_decomposition_rule_of_short_rows(partial(decompose_quantile, scale=100)),),
    },
    "cuda": {
        **_EVERYWHERE,
        **{name: (DecompositionRule(dnn=call_dnn_convolution), *_EVERYWHERE[name]) for name in CONVOLUTION_CALLS},
        "attention": (DecompositionRule(dnn=call_dnn_attention), *_EVERYWHERE["attention"]),
        "attention_gradient": (
            DecompositionRule(dnn=call_dnn_attention_gradient),
            *_EVERYWHERE["attention_gradient"],
        ),
        "sort": _SORTED,
        "partition": _SORTED,
        "argsort": _PLACES,
        "argpartition": _PLACES,
        "lexsort": (_decomposition_rule_that_fuses(decompose_lexsort),),
        "kth": (_decomposition_rule_of_own_kernel(own.why_no_kth_kernel),),
        "topk": (_decomposition_rule_of_own_kernel(own.why_no_sort_kernel),),
        "median": (_decomposition_rule_that_fuses(decompose_median),),
        "nanmedian": (_decomposition_rule_that_fuses(decompose_nanmedian),),
        "quantile": (_decomposition_rule_that_fuses(decompose_quantile),),
        "percentile": (_decomposition_rule_that_fuses(partial(decompose_quantile, scale=100)),),
        "nanquantile": (_decomposition_rule_that_fuses(decompose_nanquantile),),
        "nanpercentile": (_decomposition_rule_that_fuses(partial(decompose_nanquantile, scale=100)),),
        "cumulative_sum": (_decomposition_rule_that_fuses(partial(decompose_cumulative, name="cumsum")),),
        "cumulative_prod": (_decomposition_rule_that_fuses(partial(decompose_cumulative, name="cumprod")),),
        "cumsum": (
            _decomposition_rule_that_fuses(partial(decompose_complex_scan, name="cumsum")),
            _decomposition_rule_of_own_kernel(partial(own.why_no_scan_kernel, ufunc="add")),
        ),
        "cumprod": (
            _decomposition_rule_that_fuses(partial(decompose_complex_scan, name="cumprod")),
            _decomposition_rule_of_own_kernel(partial(own.why_no_scan_kernel, ufunc="multiply")),
        ),
        "accumulate": (
            _decomposition_rule_that_fuses(decompose_complex_scan),
            _decomposition_rule_of_own_kernel(own.why_no_accumulate_kernel),
        ),
        "linalg.cholesky": (_decomposition_rule_that_fuses(decompose_cholesky),),
        "linalg.det": (_decomposition_rule_that_fuses(decompose_det),),
        "linalg.slogdet": (_decomposition_rule_that_fuses(decompose_slogdet),),
        "linalg.qr": (_decomposition_rule_that_fuses(decompose_qr),),
        "linalg.eigh": (_decomposition_rule_that_fuses(decompose_eigh),),
        "linalg.svd": (_decomposition_rule_that_fuses(decompose_svd),),
        "setitem": (_decomposition_rule_that_fuses(decompose_setitem, checked=False),),
        "at": (_decomposition_rule_that_fuses(decompose_ufunc_at, checked=False),),
        "put_along_axis": (_decomposition_rule_that_fuses(decompose_put_along_axis, checked=False),),
        "last_places": (_decomposition_rule_of_own_kernel(own.why_no_last_places_kernel),),
        "combine_at": (
            _decomposition_rule_of_own_kernel(own.why_no_combine_at_kernel),
            _decomposition_rule_that_fuses(decompose_combine_at),
        ),
        "places_in_order": (_decomposition_rule_of_own_kernel(own.why_no_places_in_order_kernel),),
        "combine_in_order": (_decomposition_rule_of_own_kernel(own.why_no_combine_in_order_kernel),),
        "bincount": (
            _decomposition_rule_that_fuses(decompose_bincount, checked=False),
            _decomposition_rule_of_own_kernel(own.why_no_bincount_kernel),
        ),
        "digitize": (_decomposition_rule_that_fuses(decompose_digitize, checked=False),),
        "histogram": (
            _decomposition_rule_that_fuses(decompose_histogram_in_range),
            _decomposition_rule_that_fuses(decompose_histogram, checked=False),
        ),
        "require": (_decomposition_rule_that_fuses(_decompose_require, checked=False),),
    },
}


def decompose_host_calls(
    graph: Graph,
    target: str,
    layouts: Sequence[MemoryLayout] | None = None,
    remarks: dict[str, None] | None = None,
    dnn: DnnLibrary | None = None,
    model: WorkCostModel | None = None,
) -> Graph:
    """Decides who runs each call: ops with kernels, the target's own kernels (`by`), a library or NumPy.

    layouts: of the inputs, contiguous by default. remarks: gets a line for each call: who runs it, and why. dnn: the
    library for deep neural networks, if there is one. model: what the target's own kernels cost, beside that."""
    table = TABLE[target]
    calls = (_decomposition_rule_name_of_node(node, [graph.nodes[a].type for a in node.args]) for node in graph.nodes)
    if remarks is None and not any(name in table for name in calls):
        return graph
    model = model or work_cost_model_of_gpu(H200)
    deciding = _Decomposer(target, table, layouts, {} if remarks is None else remarks, dnn, model)
    while deciding.changed:  # a call may become others
        deciding.changed = False
        graph = rewrite_nodes(graph, deciding.decide_call)
    return graph


def lay_out_convolutions(graph: Graph, dnn: DnnLibrary, model: WorkCostModel) -> Graph:
    """The library's convolutions with no more memory moved around them than need be."""
    return finish_convolutions(keep_channels_last(cut_images_of_gradients(graph, dnn), dnn, model), dnn, model)


@dataclass(slots=True)
class _Decomposer:
    """Decides one graph. changed: whether there are calls that nobody has looked at."""

    target: str
    table: dict[str, tuple[DecompositionRule, ...]]
    layouts: Sequence[MemoryLayout] | None
    remarks: dict[str, None]
    dnn: DnnLibrary | None
    model: WorkCostModel
    changed: bool = True

    def decide_call(self, builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        """What stands in the place of a call: ops, or the call with who does it; None leaves it to NumPy."""
        name, line, start = (
            _decomposition_rule_name_of_node(node, [a.type for a in args]),
            builder.where(),
            len(builder.nodes),
        )
        if not name or _is_host_call_decided(node):
            return None
        reasons: dict[str, None] = {}
        for way in self.table.get(name, ()):
            if settings.verify and not way.checked:
                result: Value | str = "bad values are to be reported"
            elif way.fuses is not None:
                result = way.fuses(builder, node, args)
            elif way.dnn is not None:
                result = way.dnn(self.dnn, self.model, builder, node, args)
            else:
                result = _keep_call_undecomposed(way, builder, node, args, self.layouts)
            if isinstance(result, Value):
                if node.op == "host":  # else what becomes a call
                    own = f"kernels of {self.target}'s own"
                    who = "ops with kernels" if way.fuses else f"{self.dnn}" if way.dnn else own
                    self._note_decision(name, line, who, "; ".join(r for r in reasons if "cuDNN" in r))
                made = builder.nodes[start:]
                self.changed |= any(n.op == "host" and not _is_host_call_decided(n) for n in made)
                return result
            reasons[result] = None
        library = self.target == "cuda" and name.startswith(("fft.", "linalg."))
        who = f"cuFFT or cuSOLVER where they have it, else {HOST}" if library else HOST
        self._note_decision(name, line, who, "; ".join(filter(None, reasons)) or f"no kernels on {self.target}")
        return None

    def _note_decision(self, name: str, line: str, who: str, why: str = "") -> None:
        self.remarks[f"{name}{line and f' at {line}'}: {who}{why and f', because of {why}'}"] = None


def _decomposition_rule_name_of_node(node: Node, args: Sequence[ArrayType]) -> str:
    """The row of the table that a node is looked up in; empty where nothing is to be decided."""
    if node.op == "host":
        return str(node.attr("function"))
    return node.op if node.op in _NUMPYS and args[0].dtype.kind == "c" else ""


def _is_host_call_decided(node: Node) -> bool:
    return any(name == "by" for name, _ in node.attrs)


def _keep_call_undecomposed(
    way: DecompositionRule,
    builder: GraphBuilder,
    node: Node,
    args: Values,
    layouts: Sequence[MemoryLayout] | None,
) -> Value | str:
    """The call, for kernels of the target's own, or why they do not take it."""
    if way.kernels is None or not args or any(0 in shape for shape in (node.shape, *(a.shape for a in args))):
        return "no elements"
    strides = _predicted_strides_for_decomposition(builder, args[0].number, layouts)
    refusal = way.kernels(own.DecomposableCall(node.options, [a.type for a in args], node.type, strides))
    *fixed, part = node.attrs
    attrs = (*fixed, ("by", "kernels"), *((("contiguous", True),) if way.contiguous else ()), part)
    return refusal or builder.add("host", tuple(a.number for a in args), node.type, attrs)


def _predicted_strides_for_decomposition(
    builder: GraphBuilder, number: int, layouts: Sequence[MemoryLayout] | None
) -> tuple[int, ...]:
    """How a node will lie in memory: an input as it does, a view as its base, anything else without gaps."""
    node = builder.nodes[number]
    if node.op == "input" and layouts is not None:
        layout: MemoryLayout = layouts[node.attr("index")]
        return layout.strides
    if node.kind == "view":
        base = builder.nodes[node.args[0]].shape
        found = strides_of_memory_view_node(
            node, base, _predicted_strides_for_decomposition(builder, node.args[0], layouts)
        )
        if found is not None:
            return found
    return contiguous_strides(node.shape, node.dtype.itemsize)
