# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""source_unpack with real archives: as a whole or not at all, and nothing outside its folder."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_module import run_module, start_module


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode, entry.uid, entry.uname = kind, link, mode, 1234, "someone"
    return entry


FOLDER = member("vllm-0.6.5", tarfile.DIRTYPE, mode=0o755)
SETUP = member("vllm-0.6.5/setup.py")


def archive(folder: Path, *members: tarfile.TarInfo, size: int = 3) -> Path:
    """Write members, each regular one with ``size`` bytes."""
    path = folder / "source.tar.gz"
    with tarfile.open(path, "w:gz") as content:
        for entry in members:
            entry.size = size if entry.isfile() else 0
            content.addfile(entry, io.BytesIO(b"x" * entry.size))
    return path


def arguments(path: Path, dest: Path) -> dict[str, Any]:
    return {"src": path, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "dest": dest}


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_tree_comes_without_its_top_folder(tmp_path: Path) -> None:
    path = archive(
        tmp_path,
        FOLDER,
        SETUP,
        member("vllm-0.6.5/vllm", tarfile.DIRTYPE, mode=0o755),
        member("vllm-0.6.5/vllm/run.sh", mode=0o755),
        member("vllm-0.6.5/vllm/link", tarfile.SYMTYPE, "../setup.py"),
    )
    dest = tmp_path / "deep" / "source"
    result = run_module("source_unpack", **arguments(path, dest))
    assert (result["changed"], result["files"]) == (True, 3)
    assert below(dest) == ["setup.py", "vllm", "vllm/link", "vllm/run.sh"]
    assert (dest / "vllm" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (dest / "vllm" / "link").read_text() == "xxx"
    assert os.listdir(dest.parent) == ["source"]


def test_a_tree_that_is_there_is_kept(tmp_path: Path) -> None:
    given = arguments(archive(tmp_path, FOLDER, SETUP), tmp_path / "source")
    run_module("source_unpack", **given)
    (tmp_path / "source" / "setup.py").write_text("edited")
    (tmp_path / "source" / "compiled.o").write_text("object")
    again = run_module("source_unpack", **given)
    assert (again["changed"], again["files"]) == (False, 0)
    assert (tmp_path / "source" / "setup.py").read_text() == "edited"
    assert (tmp_path / "source" / "compiled.o").exists()


REFUSED = {
    "parent": ([member("vllm-0.6.5/../../evil")], "it holds 'vllm-0.6.5/../../evil'"),
    "absolute": ([member("/etc/evil")], "it holds '/etc/evil'"),
    "device": ([member("vllm-0.6.5/null", tarfile.CHRTYPE)], "it holds 'vllm-0.6.5/null'"),
    "pipe": ([member("vllm-0.6.5/pipe", tarfile.FIFOTYPE)], "it holds 'vllm-0.6.5/pipe'"),
    "hard link": ([member("vllm-0.6.5/hard", tarfile.LNKTYPE, "/etc/passwd")], "it holds 'vllm-0.6.5/hard'"),
    "absolute link": ([member("vllm-0.6.5/l", tarfile.SYMTYPE, "/etc")], "'vllm-0.6.5/l' links outside"),
    "link to the top": ([member("vllm-0.6.5/a/l", tarfile.SYMTYPE, "../../..")], "'vllm-0.6.5/a/l' links outside"),
    "link through a link": (
        [
            member("vllm-0.6.5/here", tarfile.SYMTYPE, "."),
            member("vllm-0.6.5/here/up", tarfile.SYMTYPE, "../out"),
            member("vllm-0.6.5/up/evil"),
        ],
        "'vllm-0.6.5/here/up' lies behind a link",
    ),
    "file through a link": (
        [member("vllm-0.6.5/l", tarfile.SYMTYPE, "vllm"), member("vllm-0.6.5/l/evil")],
        "'vllm-0.6.5/l/evil' lies behind a link",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nothing_leaves_the_folder(tmp_path: Path, case: str) -> None:
    members, text = REFUSED[case]
    path = archive(tmp_path, FOLDER, SETUP, *members)
    work = tmp_path / "work"
    work.mkdir()
    failed = run_module("source_unpack", **arguments(path, work / "source"))
    assert failed["msg"] == f"Refused to unpack {path}: {text}. Use another source."
    assert below(work) == []
    assert below(tmp_path) == ["source.tar.gz", "work"]


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path, FOLDER, SETUP)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    failed = run_module("source_unpack", src=path, sha256="0" * 64, dest=tmp_path / "source")
    assert failed["msg"] == (
        f"Refused to unpack {path}: its SHA-256 is {found}, expected {'0' * 64}. Copy the file again."
    )
    assert below(tmp_path) == ["source.tar.gz"]


def test_a_damaged_archive_leaves_nothing(tmp_path: Path) -> None:
    path = archive(tmp_path, FOLDER, SETUP, size=1 << 20)
    path.write_bytes(path.read_bytes()[:-600])
    failed = run_module("source_unpack", **arguments(path, tmp_path / "source"))
    assert failed["msg"].startswith(f"Cannot unpack {path} into {tmp_path}/source: ")
    assert failed["msg"].endswith("Check the free space there and run again.")
    assert below(tmp_path) == ["source.tar.gz"]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    path = archive(tmp_path, FOLDER, SETUP, size=1 << 20)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))"
    done = start_module("source_unpack", limit, **arguments(path, tmp_path / "source"))
    assert f"Cannot unpack {path} into {tmp_path}/source: [Errno 27] File too large." in done.stdout
    assert below(tmp_path) == ["source.tar.gz"]


def test_killed_in_the_middle_it_leaves_nothing_at_its_place_and_a_second_run_converges(tmp_path: Path) -> None:
    path = archive(tmp_path, FOLDER, *(member(f"vllm-0.6.5/{number}.py") for number in range(20)))
    given = arguments(path, tmp_path / "source")
    kill = (
        "import os, signal, tarfile\n"
        "whole = tarfile.TarFile.makefile\n"
        "def makefile(self, entry, target):\n"
        "    whole(self, entry, target)\n"
        "    if target.endswith('/10.py'): os.kill(os.getpid(), signal.SIGKILL)\n"
        "tarfile.TarFile.makefile = makefile\n"
    )
    killed = start_module("source_unpack", kill, **given)
    assert killed.returncode == -9
    assert not (tmp_path / "source").exists()
    (tmp_path / "source.partial" / "left-over.py").write_text("")
    result = run_module("source_unpack", **given)
    assert (result["changed"], result["files"]) == (True, 20)
    assert below(tmp_path / "source") == sorted(f"{number}.py" for number in range(20))
    assert not (tmp_path / "source.partial").exists()


def test_check_mode_unpacks_nothing(tmp_path: Path) -> None:
    planned = run_module("source_unpack", check=True, src=tmp_path / "none", sha256="", dest=tmp_path / "source")
    assert (planned["changed"], below(tmp_path)) == (True, [])
