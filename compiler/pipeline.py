"""The pipeline: a Graph and its inputs' layouts in, a Program out. There is a check between the passes."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.core.frozen import frozen, replace
from ..runtime.core.gc_pause import paused_garbage_collection
from ..runtime.program.device import H200, GpuProperties
from ..runtime.program.dnn import DnnLibrary
from ..runtime.program.plan import Plan
from ..runtime.program.program import Program
from ..runtime.schedule.schedule import batch_matmul_tasks_where_faster, plan_by_cost_model, predicted_microseconds
from .core.cost import WorkCostModel
from .core.types import ArrayType
from .fusion.fuse import fuse, has_reductions_of_several_axes
from .fusion.groups import Fusion
from .fusion.inplace_hazards import InplaceConflict
from .fusion.sweeps import reduce_axis_by_axis, split_row_reductions_for_fusion, split_sums_around_insides
from .graph.graph import Graph
from .lowering.lower import Replaced, lower_to_program
from .passes.attention import call_attention
from .passes.axis_order import keep_axis_order_of_products
from .passes.blocked_products import compute_large_products_in_blocks
from .passes.contractions import call_convolutions
from .passes.index_orders import CutGraph, cut_off_index_orders
from .passes.long_products import cut_long_products, join_thin_products
from .passes.materialize import MemoryLayout, materialize_copies
from .passes.matmul_epilogue import absorb_matmul_epilogues
from .passes.online_sums import sum_exponentials_in_parts
from .passes.picked_elements import compute_picked_elements
from .passes.product_precision import (
    forget_precision,
    multiply_16_bit_operands,
    multiply_float16_in_float32,
    round_operands_as_allowed,
)
from .passes.rows_in_scalars import compute_rows_in_scalars
from .passes.simplify import rewrite_sums_as_vector_products, simplify_graph
from .passes.stacked_parts import compute_stacks_in_parts
from .targets.target import Target, target_of

REPLAYED_US = 10.0  # of the host, in a call that is replayed as a graph (measured on an H200's host)
SURELY = 0.05  # part of a predicted time by which predictions must differ


def run_fusion_stage(simple: Graph, layouts: Sequence[MemoryLayout], target: Target) -> tuple[Graph, Fusion]:
    """The graph with copies where memory must be of its own, and its groups. Updates are first tried in place; those
    that conflict get a second buffer, and at last a copy of what is assigned, made once that buffer is filled."""
    types = types_checked_between_stages(simple)
    if target.online_sums:
        simple = sum_exponentials_in_parts(simple, layouts, target.model)
        check_graph_after_stage(simple, types, "online sums")
    if target.windows:
        simple = split_sums_around_insides(simple)
    simple = reduce_axis_by_axis(simple, target.model)
    if has_reductions_of_several_axes(simple):
        simple = split_row_reductions_for_fusion(simple, target.model)
    second: frozenset[int] = frozenset()
    copied: frozenset[int] = frozenset()
    while True:
        prepared = materialize_copies(simple, layouts, second, copied, target.epilogues)
        check_graph_after_stage(prepared, types, "materialize")
        try:
            return prepared, fuse(prepared, target)
        except InplaceConflict as conflict:
            if conflict.updates <= copied:
                raise AssertionError("an update conflicts where all is copied") from conflict
            copied |= conflict.updates & second
            second |= conflict.updates


def run_graph_pass_stages(
    graph: Graph, target: Target, precision: str = "float32", layouts: Sequence[MemoryLayout] | None = None
) -> tuple[Graph, ...]:
    """The forms of a graph that are planned: simplified, and with epilogues in its matmuls. Before, each call is
    decided for the target."""
    types = types_checked_between_stages(graph)
    graph = call_convolutions(graph)
    check_graph_after_stage(graph, types, "convolutions")
    simple = simplify_graph(run_decomposition_stage(graph, target.name, layouts, dnn=target.dnn, model=target.model))
    check_graph_after_stage(simple, types, "simplify")
    if target.dnn is not None and (called := call_attention(simple)) is not simple:
        simple = simplify_graph(
            run_decomposition_stage(called, target.name, layouts, dnn=target.dnn, model=target.model)
        )
        check_graph_after_stage(simple, types, "attention")
    if target.dnn is not None and any(node.op == "host" for node in simple.nodes):
        from .decompose.rules import lay_out_convolutions

        simple = lay_out_convolutions(simple, target.dnn, target.model)
        check_graph_after_stage(simple, types, "channels last")
    simple = compute_stacks_in_parts(compute_picked_elements(compute_rows_in_scalars(simple)))
    check_graph_after_stage(simple, types, "rows in scalars")
    if all(node.op != "matmul" for node in simple.nodes):
        return (simple,)
    if not target.epilogues:
        simple = multiply_float16_in_float32(forget_precision(simple))
    narrow = multiply_16_bit_operands(simple) if target.epilogues else simple
    blocked = compute_large_products_in_blocks(narrow, target.block_bytes)
    simple = simple if blocked is narrow else blocked
    check_graph_after_stage(simple, types, "blocked products")
    if target.axis_orders:
        simple = keep_axis_order_of_products(simple)
        check_graph_after_stage(simple, types, "axis order")
    if not target.epilogues:
        return (simple,)
    simple = cut_long_products(simple)
    check_graph_after_stage(simple, types, "long products")
    simple = join_thin_products(round_operands_as_allowed(multiply_16_bit_operands(simple), precision))
    check_graph_after_stage(simple, types, "product precision")
    finished = absorb_matmul_epilogues(simple)
    check_graph_after_stage(finished, types, "absorb")
    return (simple,) if finished is simple else (finished, simple)


@frozen
class PipelineStages:
    """What becomes of a graph. passes: a name and the graph after that pass, from the graph that was given to the
    prepared one, which `fusion` and the tasks' `nodes` number. bodies: of loops and branches, the plan that a task
    holds and its own stages, and those of forms that were not taken. model: what the target's work costs."""

    passes: tuple[tuple[str, Graph], ...]
    fusion: Fusion
    program: Program
    model: WorkCostModel
    bodies: tuple[tuple[Plan, PipelineStages], ...] = ()

    @property
    def prepared(self) -> Graph:
        return self.passes[-1][1]


Ends = tuple[list[ArrayType], list[ArrayType]]


def types_checked_between_stages(graph: Graph) -> Ends:
    """The types of the inputs and of the outputs. Raises AssertionError for inputs that do not stand in their order,
    which is how a pass counts them."""
    if list(graph.inputs) != sorted(graph.inputs):
        raise AssertionError(f"{graph.name}: inputs out of order: {graph.inputs}")
    return [graph.nodes[i].type for i in graph.inputs], [graph.nodes[o].type for o in graph.outputs]


def check_graph_after_stage(graph: Graph, types: Ends, step: str) -> None:
    """A broken pass is caught at its own door. Arguments point backwards, inputs and outputs keep their types."""
    for number, node in enumerate(graph.nodes):
        for arg in node.args:
            if arg >= number:
                raise AssertionError(f"{step}: node %{number} uses a later node")
    if types_checked_between_stages(graph) != types:
        raise AssertionError(f"{step}: changed the types of inputs or outputs")


def compile_graph_to_program(
    graph: Graph,
    target: str = "cpu",
    layouts: Sequence[MemoryLayout] | None = None,
    *,
    fastmath: bool = False,
    precision: str = "float32",
    gpu: GpuProperties = H200,
) -> Program:
    """The program of `graph` for a target (`cpu` or `cuda`). layouts: of its inputs, contiguous by default; gpu: the
    GPU that is to run it."""
    return run_pipeline_stages(graph, target, layouts, fastmath=fastmath, precision=precision, gpu=gpu).program


def run_decomposition_stage(
    graph: Graph,
    target: str,
    layouts: Sequence[MemoryLayout] | None,
    remarks: dict[str, None] | None = None,
    dnn: DnnLibrary | None = None,
    model: WorkCostModel | None = None,
) -> Graph:
    """Each call decided for the target. Graphs without calls, or reductions of complex numbers, have none to decide."""
    if not any(node.op == "host" or node.dtype.kind == "c" for node in graph.nodes):
        return graph
    from .decompose.rules import decompose_host_calls

    return decompose_host_calls(graph, target, layouts, remarks, dnn, model)


def explain_decomposition_stage(
    graph: Graph,
    target: str,
    layouts: Sequence[MemoryLayout],
    dnn: DnnLibrary | None = None,
    gpu: GpuProperties = H200,
) -> list[str]:
    """Who runs each call of the graph on a target, and why."""
    remarks: dict[str, None] = {}
    model = target_of(target, gpu).model
    graph = call_convolutions(graph)
    simple = simplify_graph(run_decomposition_stage(graph, target, layouts, remarks, dnn, model))
    if target == "cuda" and (called := call_attention(simple)) is not simple:
        run_decomposition_stage(called, target, layouts, remarks, dnn, model)
    return list(remarks)


def cut_off_orders(
    graph: Graph,
    target: str,
    layouts: Sequence[MemoryLayout],
    indices: Sequence[int],
    first: int,
    gpu: GpuProperties = H200,
) -> CutGraph | None:
    """`cut_off_index_orders` of a graph whose calls are decided for a target, which orders indices."""
    if target != "cuda" or not indices or all(node.op != "host" for node in graph.nodes):
        return None
    made_for = target_of(target, gpu)
    types = types_checked_between_stages(graph)
    simple = simplify_graph(run_decomposition_stage(graph, target, layouts, dnn=made_for.dnn, model=made_for.model))
    check_graph_after_stage(simple, types, "simplify")
    return cut_off_index_orders(simple, indices, first)


@paused_garbage_collection()
def run_pipeline_stages(
    graph: Graph,
    target: str = "cpu",
    layouts: Sequence[MemoryLayout] | None = None,
    *,
    fastmath: bool = False,
    precision: str = "float32",
    gpu: GpuProperties = H200,
    replaced: Replaced = (),
) -> PipelineStages:
    """Every stage of a graph. Of its forms the one whose plan is predicted to be faster is taken. replaced: outputs
    that may be written over an input, and which."""
    made_for = target_of(target, gpu)
    machine = made_for.machine
    bodies: list[tuple[Plan, PipelineStages]] = []

    def plan_loop_body(body: Graph, layouts: Sequence[MemoryLayout], loose: frozenset[int]) -> Plan:
        """The one plan of a loop's body. It runs on one stream: its kernels use all cores, turns follow each other."""
        stages = best_compiled_graph_form(body, layouts, 1, loose)
        bodies.append((plan_of_program(stages.program, 1), stages))
        return bodies[-1][0]

    def plan_of_program(program: Program, streams: str | int) -> Plan:
        return plan_by_cost_model(
            batch_matmul_tasks_where_faster(program, machine, streams), streams, "balanced", machine
        )

    def best_compiled_graph_form(
        graph: Graph,
        layouts: Sequence[MemoryLayout],
        streams: str | int,
        loose: frozenset[int] = frozenset(),
        replaced: Replaced = (),
    ) -> PipelineStages:
        found = []
        for form in run_graph_pass_stages(graph, made_for, precision, layouts):
            passes = [("traced", graph), ("simplified", form)]
            if made_for.vector_products:
                types, form = types_checked_between_stages(form), rewrite_sums_as_vector_products(form, layouts)
                check_graph_after_stage(form, types, "rewrite_sums_as_vector_products")
                passes.append(("vector products", form))
            prepared, fusion = run_fusion_stage(form, layouts, made_for)
            program = lower_to_program(prepared, fusion, layouts, made_for, fastmath, plan_loop_body, loose, replaced)
            program = made_for.join_tasks(program) if made_for.join_tasks else program
            found.append(PipelineStages((*passes, ("prepared", prepared)), fusion, program, made_for.model))
        return (
            found[0]
            if len(found) == 1
            else min(found, key=lambda each: weight_of_form(each) * predicted_call_microseconds(each.program, streams))
        )

    def weight_of_form(stages: PipelineStages) -> float:
        """Epilogues are given up for what is surely faster: the model knows little of how tasks share a GPU."""
        return 1.0 if any("epilogue" in dict(node.attrs) for node in stages.prepared.nodes) else 1 + SURELY

    def predicted_call_microseconds(program: Program, streams: str | int) -> float:
        """What a call takes, on the device or on the host, which enqueues it."""
        return max(REPLAYED_US, predicted_microseconds(plan_of_program(program, streams)))

    layouts = layouts or [MemoryLayout.contiguous(graph.nodes[n].type) for n in graph.inputs]
    return replace(best_compiled_graph_form(graph, layouts, "auto", replaced=replaced), bodies=tuple(bodies))
