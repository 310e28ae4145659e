"""``preceptor doctor``: what is installed, what the machine has, and whether cache and zoo are sound."""

from __future__ import annotations

import os
import platform
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from preceptor.cli.console import emit_json, say
from preceptor.cli.options import AsJson, TrustCode
from preceptor.core import PreceptorError

NEEDED = ("preceptor", "torch", "torchvision", "timm")
EXTRAS = {
    "ray": ("ray",),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "hf": ("transformers",),
    "s3": ("s3fs",),
    "tensorboard": ("tensorboard",),
}
SMALLEST_DISK = 2**30


def doctor(
    zoo: Annotated[str | None, typer.Option(help="Check every teacher of this zoo as well.")] = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Say which versions, devices and caches there are, and what is broken.

    Exits with 1 if something is broken; an extra that is not installed is no fault.

    Example: preceptor doctor --zoo zoo/
    """
    problems: list[str] = []
    findings: dict[str, Any] = {
        "versions": _versions(problems),
        "extras": {name: _extra(name, packages) for name, packages in EXTRAS.items()},
        "devices": _devices(problems),
        "cache": _cache(problems),
    }
    if zoo is not None:
        findings["zoo"], findings["not_run"] = _zoo(zoo, trust_code, problems)
    findings["problems"] = problems
    if as_json:
        emit_json(findings)
    else:
        for line in _lines(findings):
            say(line)
    if problems:
        raise typer.Exit(1)


def _versions(problems: list[str]) -> dict[str, str]:
    """Versions of what must be there; a package that is installed but cannot be imported is broken."""
    found = {"python": platform.python_version()}
    for package in NEEDED:
        try:
            import_module(package)
            found[package] = version(package)
        except (ImportError, OSError, RuntimeError, PackageNotFoundError) as error:
            found[package] = "broken"
            reason = (str(error).strip().splitlines() or ["no message"])[0]
            problems.append(f"{package} cannot be used ({reason}); pip install --force-reinstall {package}")
    return found


def _extra(name: str, packages: tuple[str, ...]) -> dict[str, Any]:
    absent = [package for package in packages if find_spec(package) is None]
    installed = {package: _version(package) for package in packages if package not in absent}
    return {
        "installed": installed,
        "absent": absent,
        "get": f"pip install 'preceptor[{name}]'" if absent else None,
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"


def _devices(problems: list[str]) -> dict[str, Any]:
    import psutil

    memory = psutil.virtual_memory()
    found: dict[str, Any] = {
        "cpu": {"cores": os.cpu_count(), "memory": memory.total, "available": memory.available},
        "cuda": [],
        "mps": False,
    }
    try:
        import torch

        # A driver that is too old makes the first call fail; that is a finding, not the end of the visit.
        for index in range(torch.cuda.device_count()):
            device = torch.cuda.get_device_properties(index)
            torch.zeros(1, device=f"cuda:{index}")
            found["cuda"].append({"name": device.name, "memory": device.total_memory})
        found["mps"] = torch.backends.mps.is_available()
    except ImportError:
        pass  # named among the versions
    except (RuntimeError, AssertionError) as error:
        problems.append(
            f"a CUDA device is there and does not work ({str(error).strip().splitlines()[0]}); use --device cpu"
        )
    return found


def _cache(problems: list[str]) -> dict[str, Any]:
    import psutil

    from preceptor.files import cache_folder
    from preceptor.zoo.cache import FeatureCache
    from preceptor.zoo.cache_parts import measure_parts

    found: dict[str, Any] = {"location": str(cache_folder())}
    try:
        cache = FeatureCache()
        cache.check_writable()
    except PreceptorError as error:
        problems.append(str(error))
        return found
    entries = cache.entries()
    free = psutil.disk_usage(str(cache.root)).free
    if free < SMALLEST_DISK:
        problems.append(
            f"the disk of the cache has {_size(free)} left; free some, or move the cache with PRECEPTOR_CACHE"
        )
    return found | {
        "bytes": sum(part.bytes for part in measure_parts(cache_folder()).values()),
        "limit": cache.limit,  # of the features
        "features": sum(entry.size for entry in entries),
        "entries": len(entries),
        "free": free,
    }


def _zoo(url: str, trust_code: bool, problems: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """What is wrong with each teacher, and which were not run, for want of trust in their code."""
    from preceptor.zoo import Zoo

    opened = Zoo(url)
    if not opened.exists():
        problems.append(f"there is no zoo at {url!r}; `preceptor zoo add` makes one")
        return {}, []
    rows = opened.listing()
    not_run = [row["name"] for row in rows if not trust_code and row.get("source", "").startswith("python:")]
    found = {
        row["name"]: opened.verify(row["name"], trust_code, files_only=row["name"] in not_run) for row in rows
    }
    problems += [f"teacher {name}: {'; '.join(wrong)}" for name, wrong in found.items() if wrong]
    return found, not_run


def _lines(findings: dict[str, Any]) -> list[str]:
    lines = [", ".join(f"{name} {number}" for name, number in findings["versions"].items())]
    for name, extra in findings["extras"].items():
        installed = ", ".join(f"{package} {number}" for package, number in extra["installed"].items())
        lines.append(
            f"extra {name}: {installed}"
            if not extra["absent"]
            else f"extra {name}: not installed; {extra['get']}"
        )
    cpu = findings["devices"]["cpu"]
    lines.append(
        f"CPU: {cpu['cores']} cores, {_size(cpu['available'])} of {_size(cpu['memory'])} memory free"
    )
    for index, device in enumerate(findings["devices"]["cuda"]):
        lines.append(f"cuda:{index}: {device['name']}, {_size(device['memory'])}")
    if findings["devices"]["mps"]:
        lines.append("mps: Apple's GPU")
    if not findings["devices"]["cuda"] and not findings["devices"]["mps"]:
        lines.append("no GPU that torch can use: training runs on the CPU")
    cache = findings["cache"]
    if "entries" in cache:  # otherwise it is broken, and named below
        shares = (
            f"{_size(cache['features'])} of at most {_size(cache['limit'])} in {cache['entries']} entries"
        )
        lines.append(f"cache: {cache['location']}, {_size(cache['bytes'])}; its features {shares}")
    for name, wrong in findings.get("zoo", {}).items():
        good = "not run (needs --trust-code), its files are good" if name in findings["not_run"] else "good"
        lines.append(f"teacher {name}: {'; '.join(wrong) or good}")
    verdict = [f"BROKEN: {problem}" for problem in findings["problems"]]
    return lines + (verdict or ["nothing is broken"])


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
