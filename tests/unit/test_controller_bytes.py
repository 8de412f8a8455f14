# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The counter of bytes through the controller, over lines as Ansible prints them, and over a real play."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.controller_bytes import CountedPlay, Transfers

PAYLOAD = "/root/.ansible/tmp/ansible-tmp-1-2-3/AnsiballZ_stat.py"


def test_files_count_by_host_and_payloads_do_not(tmp_path: Path) -> None:
    wheel, module = tmp_path / "vllm.whl", tmp_path / "tmpx"
    wheel.write_bytes(b"w" * 1000)
    module.write_bytes(b"m" * 500)
    transfers = Transfers()
    for line in (
        f"<a> PUT {wheel} TO /root/.ansible/tmp/ansible-tmp-1-2-3/.source.whl",
        f"<a> PUT {module} TO {PAYLOAD}",
        f"<b> PUT {wheel} TO /x",
        f"<a> PUT {wheel} TO /x",
        "<a> EXEC /bin/sh -c 'echo PUT nothing TO nowhere'",
        f"ok: [a] => <b> PUT {wheel} TO /x",
        f"<b> FETCH /opt/vllm/x.whl TO {wheel}",
    ):
        transfers.read(line)
    assert (transfers.sent_to("a"), transfers.sent_to("b"), transfers.sent_to("c")) == (2000, 1000, 0)
    assert (transfers.fetched_from("a"), transfers.fetched_from("b")) == (0, 1000)
    assert transfers.table() == {"sent": {"a": 2000, "b": 1000}, "unseen": []}


def test_file_that_is_gone_is_not_counted_as_nothing(tmp_path: Path) -> None:
    transfers = Transfers()
    transfers.read(f"<a> PUT {tmp_path / 'gone'} TO /x")
    assert transfers.unseen == [f"<a> PUT {tmp_path / 'gone'} TO /x"]


def test_what_the_controller_writes_on_itself_is_not_counted(tmp_path: Path) -> None:
    transfers = Transfers()
    transfers.read(f"<localhost> PUT {tmp_path / 'gone'} TO /root/.ansible/tmp/ansible-tmp-1-2-3/.source.json")
    transfers.read(f"<localhost> PUT {__file__} TO /x")
    assert transfers.table() == {"sent": {}, "unseen": []}


def test_a_play_is_counted_and_logged(tmp_path: Path) -> None:
    script = f"import sys; print('<a> PUT {__file__} TO /x'); print(sys.argv[1:], file=sys.stderr); sys.exit(3)"
    play = CountedPlay([sys.executable, "-c", script, "site.yml"], tmp_path / "log", env={**os.environ})
    assert play.wait() == 3
    assert play.transfers.sent_to("a") == Path(__file__).stat().st_size
    assert "['site.yml', '-vvv']" in (tmp_path / "log").read_text()
