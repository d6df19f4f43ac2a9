"""What pyproject.toml cannot say: the README as an index shows it, with absolute links. All else stands there."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent


def readme_for_an_index() -> str:
    """The README, with the repository's address before each relative link; pictures are asked for as files."""
    with (HERE / "pyproject.toml").open("rb") as file:
        home = tomllib.load(file)["project"]["urls"]["Repository"]
    text = (HERE / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:|#)", rf"\1{home}/raw/main/", text)
    return re.sub(r"((?<!!)\[(?:[^][]|!\[[^]]*\]\([^)]*\))*\]\()(?!https?:|#)", rf"\1{home}/blob/main/", text)


setup(long_description=readme_for_an_index(), long_description_content_type="text/markdown")
