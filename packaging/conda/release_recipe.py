"""A release's source archive in; out, the recipe for conda-forge with its version and digest.

python packaging/conda/release_recipe.py dist/kernelgraph-1.2.3.tar.gz > recipe.yaml
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path


def recipe_of_release(archive: Path) -> str:
    """The text of `recipe.yaml` for an archive named kernelgraph-VERSION.tar.gz."""
    version = archive.name.removeprefix("kernelgraph-").removesuffix(".tar.gz")
    text = (Path(__file__).parent / "recipe.yaml").read_text(encoding="utf-8")
    text = re.sub(r'(?m)^  version: ".*"$', f'  version: "{version}"', text)
    return text.replace("0" * 64, hashlib.sha256(archive.read_bytes()).hexdigest())


if __name__ == "__main__":
    print(recipe_of_release(Path(sys.argv[1])), end="")
