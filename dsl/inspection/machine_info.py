"""What there is on this machine that programs need: versions, processor, GPUs, packages, settings, the disk cache."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from ...runtime.codegen.llvm_jit import jit_vector_register_bytes, widest_vector_libm_of_cpu
from ...runtime.core.cache_contents import cache_entries
from ...runtime.core.readable_text import byte_count_in_words
from ...runtime.core.settings import PREFIX, TABLE, allowed_cores, settings, unknown_variables
from ...runtime.devices.registry import query_gpu_properties
from ..array.devices import INSTALL, DeviceUnavailableError, open_device

NEEDED = ("numpy", "ml_dtypes", "llvmlite", "numba")
FOR_CUDA = ("numba-cuda", "cuda-core", "nvmath-python", "nvidia-cublas")
BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome", "firefox")


def machine_info() -> dict[str, Any]:
    """Texts, numbers and lists alone. `problems` says what is missing and what mends it; it may well be empty."""
    problems: list[str] = []
    root = sys.modules[__name__.partition(".")[0]]
    packages = {name: _package_version(name) for name in (*NEEDED, *FOR_CUDA)}
    problems += [f"{name} is missing: pip install {name}" for name in NEEDED if packages[name] is None]
    problems += _problems_of_environment()
    entries = cache_entries()
    return {
        "kernelgraph": getattr(root, "__version__", ""),
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": packages,
        "cpu": _cpu_info_of_machine(problems),
        "gpu": _gpu_info(packages, problems),
        "settings": {
            row.environment_variable: getattr(settings, row.name)
            for row in TABLE
            if getattr(settings, row.name) != row.default
        },
        "cache": {"folder": settings.cache_dir, "entries": len(entries), "bytes": sum(e.nbytes for e in entries)},
        "browser": next((found for name in BROWSERS if (found := shutil.which(name))), None),
        "problems": problems,
    }


def _problems_of_environment() -> list[str]:
    """Variables that look like settings and are none, and a cache folder in which nothing can be kept."""
    found = unknown_variables(os.environ)
    folder = settings.cache_dir
    if folder:
        there = next((p for p in (Path(folder), *Path(folder).parents) if p.exists()), Path(folder))
        try:
            tempfile.TemporaryFile(dir=there).close()
        except OSError:
            found.append(f"nothing can be kept in {folder}, each process compiles anew; set {PREFIX}CACHE_DIR")
    return found


def _package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_info_of_machine(problems: list[str]) -> dict[str, Any]:
    cores = allowed_cores()
    found: dict[str, Any] = {"name": _cpu_name(), "cores": cores, "threads": settings.threads or cores}
    try:
        found |= {"vector bytes": jit_vector_register_bytes(), "vector mathematics": widest_vector_libm_of_cpu()}
    except Exception as error:  # whatever keeps LLVM from loading
        problems.append(f"kernels cannot be compiled for the CPU: {error}")
    return found


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def _gpu_info(packages: dict[str, str | None], problems: list[str]) -> dict[str, Any] | None:
    """The first GPU. That there is none is no problem; that one cannot be used is."""
    driver = shutil.which("nvidia-smi") or os.path.exists("/dev/nvidia0")
    try:
        known = query_gpu_properties("cuda", 0)
    except Exception:  # a driver that is broken
        known = None
    if known is None and not driver:
        return None
    try:
        open_device(("cuda", 0))
    except DeviceUnavailableError as error:
        problems.append(str(error).partition(": ")[2] or str(error))
        missing = [name for name in FOR_CUDA if packages[name] is None]
        if missing:
            problems.append(f"a GPU needs {', '.join(missing)}: {INSTALL}")
    if known is None:
        return {"name": "unknown"}
    return {
        "name": known.name,
        "compute capability": ".".join(map(str, known.compute_capability)),
        "multiprocessors": known.multiprocessors,
        "memory": byte_count_in_words(known.memory_bytes),
    }


def machine_info_text(info: dict[str, Any]) -> str:
    """A screen of text, to be pasted into an issue."""
    lines = []
    for name, value in info.items():
        if name == "problems":
            continue
        if name == "packages":
            missing = [key for key, text in value.items() if text is None]
            value = ", ".join(f"{key} {text}" for key, text in value.items() if text is not None)
            value += f"; not here, only needed for a GPU: {', '.join(missing)} ({INSTALL})" if missing else ""
        elif name == "cache":
            value = f"{value['folder'] or 'none'}: {value['entries']} entries, {byte_count_in_words(value['bytes'])}"
        elif name == "settings":
            value = ", ".join(f"{key}={text}" for key, text in value.items()) or "as they come"
        elif isinstance(value, dict):
            value = ", ".join(f"{key} {text}" if key != "name" else str(text) for key, text in value.items())
        lines.append(f"{name:<12} {'none' if value is None else value}")
    return "\n".join([*lines, *(f"problem      {text}" for text in info["problems"])])
