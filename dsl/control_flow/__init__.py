"""Python's own `if`, `while`, `for`, `and`, `assert` on traced values: source, rewrite, effects, statements, loops."""
