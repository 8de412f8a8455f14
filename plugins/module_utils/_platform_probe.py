# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""From the findings of the vLLM probe to a report with named causes.

The probe (``_probe_vllm``) runs inside the release's venv and tells facts, one JSON line each. What they mean is
decided here, without touching anything: ``parse_findings`` reads the lines of one run, ``plan_report`` judges them.
"""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils import _probe_vllm
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._platform_causes import Cause, find_causes

__all__ = (
    "Findings",
    "PlatformReport",
    "needs_second_run",
    "parse_findings",
    "plan_report",
    "probe_environment",
    "probe_source",
)

STDERR_KEPT = 2000
SHELL_SIGNAL_BASE = 128  # a wrapper around the interpreter reports a signal this way

# Not handed on from the caller: what would change the answer, and where an import would leave files behind.
WITHHELD = ("PYTHON", "VLLM_", "LD_PRELOAD", "XDG_")


@dataclass(frozen=True)
class Findings:
    """What one run of the probe told, and how it ended."""

    told: dict[str, Any]
    errors: dict[str, dict[str, str]]
    unfinished: str | None
    """The step during which the process died."""
    died_of: str | None
    stderr: str


@dataclass(frozen=True)
class PlatformReport:
    """What vLLM in a venv makes of this machine. ``to_result`` gives the keys that the module returns."""

    platform_class: str | None
    device_type: str | None
    version: str | None
    metadata_name: str | None
    python: str | None
    package: str | None
    detectors: list[dict[str, Any]]
    kernels: dict[str, Any]
    torch: dict[str, Any]
    strays: list[str]
    dist_infos: list[dict[str, Any]]
    shadowed_by: str | None
    causes: list[Cause] = field(default_factory=list)

    def to_result(self) -> dict[str, Any]:
        """Return the report as the dictionary that ``platform_info`` documents."""
        result = asdict(self)
        result["class"] = result.pop("platform_class")
        return result


def probe_source() -> str:
    """Return the text of the probe, to be handed to another Python on its command line."""
    loader = getattr(_probe_vllm.__spec__, "loader", None)  # a zip file on a host, a folder in a test
    read = getattr(loader, "get_source", None)
    text = read(_probe_vllm.__name__) if read else None
    if not text:
        raise CpufleetError("Cannot read the text of the vLLM probe", "Install the collection again")
    # Ansible's own loader of collections answers in bytes.
    return text.decode("utf-8") if isinstance(text, bytes) else str(text)


def probe_environment(own: dict[str, str], given: dict[str, str]) -> dict[str, str]:
    """Return the environment of the probe: the caller's without what would change the answer, then the service's."""
    kept = {name: value for name, value in own.items() if name != "HOME" and not name.startswith(WITHHELD)}
    return {**kept, **given}


def parse_findings(stdout: str, return_code: int, stderr: str) -> Findings:
    """Read the JSON lines of one run; lines that are not JSON are not the probe's and are passed over."""
    told: dict[str, Any] = {}
    errors: dict[str, dict[str, str]] = {}
    begun: list[str] = []
    for line in stdout.splitlines():
        try:
            document = json.loads(line)
            kind, data = document["kind"], document["data"]
        except (ValueError, TypeError, KeyError):
            continue
        if kind == "begin":
            begun.append(data)
        elif kind == "error":
            errors[data["step"]] = data
        else:
            told[kind] = data
    open_steps = [name for name in begun if name not in told and name not in errors]
    unfinished = open_steps[0] if return_code != 0 and open_steps else None
    return Findings(told, errors, unfinished, _death(return_code) if unfinished else None, stderr[-STDERR_KEPT:])


def needs_second_run(first: Findings) -> bool:
    """Whether the whole package could not be imported, so that its parts have to be asked alone."""
    return "installation" in first.told and "import" not in first.told and "torch" in first.told


def merge_findings(first: Findings, second: Findings) -> Findings:
    """Join the run that failed at the import with the one that asked the parts: the later run fills the gaps."""
    told = {**second.told, **first.told}
    errors = {**second.errors, **first.errors}
    if first.unfinished:
        errors.setdefault(
            first.unfinished, {"type": "Died", "text": f"the process ended: {first.died_of}", "trace": first.stderr}
        )
    return Findings(told, errors, second.unfinished, second.died_of, second.stderr or first.stderr)


def plan_report(first: Findings, second: Findings | None = None) -> PlatformReport:
    """Judge the findings: what was detected, whether the kernels work, and every known cause of trouble."""
    if "installation" not in first.told:
        reason = (
            first.errors.get("installation", {}).get("text") or first.stderr.strip() or first.died_of or "no output"
        )
        raise CpufleetError(
            f"Cannot read the installation behind this Python: the probe gave no answer ({reason})",
            "Check that the interpreter belongs to a whole venv; a venv that was copied or moved has to be made again",
        )
    found = first if second is None else merge_findings(first, second)
    installation = found.told["installation"]
    platform = found.told.get("platform") or {}
    report = PlatformReport(
        platform_class=platform.get("class"),
        device_type=platform.get("device_type"),
        version=installation["version"],
        metadata_name=_metadata_name(installation),
        python=installation["python"],
        package=installation["package"],
        detectors=(found.told.get("detect") or {}).get("detectors", []),
        kernels=judge_kernels(found),
        torch={key: value for key, value in (found.told.get("torch") or {}).items() if key != "path"},
        strays=installation["strays"],
        dist_infos=[{k: entry[k] for k in ("name", "version", "path")} for entry in installation["dist_infos"]],
        shadowed_by=next(iter(installation["shadowed_by"]), None),
    )
    facts = {**asdict(report), "errors": found.errors, "detect": found.told.get("detect") or {}}
    return PlatformReport(**{**report.__dict__, "causes": find_causes(facts)})


def judge_kernels(found: Findings) -> dict[str, Any]:
    """Say which library this CPU selects, and whether it is there, loads, and computes."""
    installation = found.told["installation"]
    kernels = found.told.get("kernels") or {}
    run = found.told.get("run") or {}
    selected = kernels.get("selected") or next(iter(found.told.get("asked", [])), None)
    libraries = [name for name in installation["libraries"] if name.startswith("_C")]
    file = next((name for name in libraries if selected == "vllm." + name.split(".", 1)[0]), None)
    operators = kernels.get("operators") or {}
    loads = bool(file and file in kernels.get("loaded", []) and operators and all(operators.values()))
    return {
        "selected": selected,
        "file": file,
        "libraries": libraries,
        "loaded": kernels.get("loaded", []),
        "operators": operators,
        "loads": loads,
        "runs": bool(loads and run.get("ok")),
        "error": _kernel_error(found, loads, bool(run.get("ok"))),
    }


def _kernel_error(found: Findings, loads: bool, runs: bool) -> str | None:
    kernels = found.told.get("kernels") or {}
    if found.unfinished in ("kernels", "run", "import"):
        verb = "running" if found.unfinished == "run" else "loading"
        return f"the process ended while {verb} the kernels: {found.died_of}"
    if loads and runs:
        return None
    for step in ("kernels", "run"):
        if step in found.errors:
            return f"{found.errors[step]['type']}: {found.errors[step]['text']}"
    failure = kernels.get("failure") or {}
    if not loads:
        return kernels.get("error") or failure.get("text")
    return "an operator of the kernels computes another result than torch"


def _metadata_name(installation: dict[str, Any]) -> str | None:
    """Return the name under which the package that is imported is registered."""
    if installation["version"] is not None:
        return "vllm"
    return next((str(entry["name"]) for entry in installation["dist_infos"]), None)


def _death(return_code: int) -> str:
    number = -return_code if return_code < 0 else return_code - SHELL_SIGNAL_BASE
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"exit status {return_code}"
