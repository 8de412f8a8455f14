# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a module of the collection through its own ``main()``, in this process or in one of its own."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from ansible.module_utils import basic

PACKAGE = "ansible_collections.cpufleet.vllm.plugins.modules"
REPOSITORY = Path(__file__).resolve().parents[2]
# ansible-test runs a copy that lies below ansible_collections itself.
COLLECTIONS = (
    REPOSITORY.parents[2]
    if REPOSITORY.parts[-3:-2] == ("ansible_collections",)
    else REPOSITORY / ".ansible/collections"
)


class _Finished(Exception):  # noqa: N818 - it is no error
    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__()
        self.result = result


def run_module(name: str, /, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
    """Return what the module ``name`` exits with; a failure has ``failed: True``."""

    def finish(_self: object, **result: Any) -> NoReturn:
        raise _Finished(result)

    def fail(_self: object, msg: str, **result: Any) -> NoReturn:
        raise _Finished({"failed": True, "msg": msg, **result})

    module = importlib.import_module(f"{PACKAGE}.{name}")
    exits = mock.patch.multiple(basic.AnsibleModule, exit_json=finish, fail_json=fail)
    with exits, mock.patch.multiple(basic, _ANSIBLE_ARGS=_payload(check, arguments), **_profile()):
        try:
            module.main()
        except _Finished as finished:
            return finished.result
    raise AssertionError(f"{name} neither exited nor failed")


def start_module(name: str, before: str = "", /, **arguments: Any) -> subprocess.CompletedProcess[str]:
    """Run the module in a process of its own, after the Python statements ``before``: for limits and faults."""
    script = (
        f"from ansible.module_utils import basic\nbasic._ANSIBLE_ARGS = {_payload(False, arguments)!r}\n"
        f"for key, value in {_profile()!r}.items(): setattr(basic, key, value)\n"
        f"{before}\nfrom {PACKAGE} import {name}\n{name}.main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(COLLECTIONS)},
        capture_output=True,
        check=False,
        text=True,
    )


def _payload(check: bool, arguments: dict[str, Any]) -> bytes:
    given = {key: str(value) if isinstance(value, Path) else value for key, value in arguments.items()}
    return json.dumps({"ANSIBLE_MODULE_ARGS": {**given, "_ansible_check_mode": check}}).encode()


def _profile() -> dict[str, str]:
    # ansible-core 2.19 and newer name the serialization of the arguments beside them.
    return {"_ANSIBLE_PROFILE": "legacy"} if hasattr(basic, "_ANSIBLE_PROFILE") else {}
