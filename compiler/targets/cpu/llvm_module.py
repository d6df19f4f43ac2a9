"""A module of LLVM IR: declarations and helper functions, each written once, and the metadata that all refer to."""

from __future__ import annotations

from collections.abc import Callable

from .llvm_ir import LlvmFunction, LlvmValue, llvm_type

# Loops, branches that are hardly ever taken, streaming stores.
METADATA = """\
!0 = distinct !{!0, !2, !3}
!1 = distinct !{!1, !2, !4}
!2 = !{!"llvm.loop.vectorize.enable", i1 false}
!3 = !{!"llvm.loop.unroll.disable"}
!4 = !{!"llvm.loop.unroll.count", i32 8}
!5 = !{!"branch_weights", i32 1, i32 1048576}
!6 = !{i32 1}"""


class LlvmModule:
    """Declarations and helper functions by name, each written once, in the order of first use."""

    def __init__(self, vector_library: str | None = None, flags: str = "") -> None:
        self.vector_library = vector_library
        self.flags = flags
        self.parts: dict[str, str] = {}

    def declare(self, name: str, text: str) -> str:
        self.parts.setdefault(name, f"declare {text}")
        return name

    def define(self, name: str, make: Callable[[], str]) -> str:
        if name not in self.parts:
            self.parts[name] = ""  # its place in the order; helpers that it needs come after
            self.parts[name] = make()
        return name

    def function(
        self,
        name: str,
        elem: str,
        kinds: tuple[str, ...],
        lanes: int,
        write: Callable[..., LlvmValue],
        attributes: str = "alwaysinline",
    ) -> str:
        """Define `elem name(kinds...)`, every parameter and the result `lanes` wide; `write` gets the parameters."""

        def make() -> str:
            f = LlvmFunction(self)
            params = [LlvmValue(f, f"%x{i}", kind, lanes) for i, kind in enumerate(kinds)]
            result = write(*params)
            f.do(f"ret {result.typed}")
            signature = ", ".join(p.typed for p in params)
            return f.render(f"define internal {llvm_type(elem, lanes)} {name}({signature}) {attributes}")

        return self.define(name, make)

    def __str__(self) -> str:
        return "\n".join(self.parts.values())
