"""What numba says of derivatives of scalar functions, at the line of the call: a graph in, an error out."""

from __future__ import annotations

from ...compiler.graph.graph import Graph
from ...runtime.codegen.numba_errors import ScalarFunctionError
from ...runtime.codegen.numba_functions import infer_user_function_dtypes
from ..core.errors import UnsupportedError


def check_user_functions_have_derivatives(graph: Graph) -> None:
    """Compiles the derivatives of `@kg.elementwise` functions. Raises UnsupportedError for one that has none."""
    for number, node in enumerate(graph.nodes):
        if node.op not in ("call", "call_loop") or not node.attr("function").order:
            continue
        function = node.attr("function")
        try:
            infer_user_function_dtypes(function.source, function.arguments)
        except ScalarFunctionError as error:
            line = graph.lines[number] if graph.lines else ""
            name = function.source.name.rpartition("partials_of_")[2]
            reason = f"{name} has no derivative: {error.reason}; give it one with kg.custom_jvp"
            raise UnsupportedError(reason, line) from None
