# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which sources of oneDNN have to be compiled."""

from __future__ import annotations

from ansible_collections.cpufleet.vllm.plugins.module_utils._onednn_sources import needed_sources

from tests.support import tiny_onednn

ASKED = ("matmul", "reorder")


def test_what_a_switched_off_list_names_is_left_out() -> None:
    needed = needed_sources(tiny_onednn.sources(), ASKED)
    assert (needed.sources, needed.total, needed.reason) == (tiny_onednn.NEEDED, 7, "")


def test_what_is_switched_on_is_reached() -> None:
    needed = needed_sources(tiny_onednn.sources(), ("matmul", "convolution"))
    assert needed.sources == tuple(sorted((*tiny_onednn.NEEDED, "common/convolution.cpp", "cpu/convolution.cpp")))


def test_another_architecture_does_not_count() -> None:
    files = {**tiny_onednn.sources(), "cpu/aarch64/gemm.cpp": tiny_onednn.LIBRARY["src/cpu/gemm_by_hand.cpp"]}
    assert needed_sources(files, ASKED).sources == tiny_onednn.NEEDED
    assert "cpu/aarch64/gemm.cpp" in needed_sources(files, ASKED, "aarch64").sources


def test_a_source_that_cannot_be_read_to_its_end_is_compiled() -> None:
    files = {**tiny_onednn.sources(), "cpu/odd.cpp": "#if A\nvoid f() {\n#else\nvoid g() {\n#endif\n}\n"}
    assert "cpu/odd.cpp" in needed_sources(files, ASKED).sources


def test_a_definition_far_from_its_header_is_found() -> None:
    files = tiny_onednn.sources()
    files["cpu/cpu_engine.hpp"] += "namespace dnnl { namespace impl { namespace jit { void note(const char *); } } }\n"
    files["cpu/notes/writer.cpp"] = "namespace dnnl::impl::jit {\nvoid note(const char *text) { (void)text; }\n}\n"
    assert "cpu/notes/writer.cpp" in needed_sources(files, ASKED).sources
    # The same name in another namespace is another function.
    files["cpu/notes/writer.cpp"] = files["cpu/notes/writer.cpp"].replace("::jit", "::gpu")
    assert "cpu/notes/writer.cpp" not in needed_sources(files, ASKED).sources


def test_a_tree_of_another_layout_is_compiled_as_a_whole() -> None:
    files = tiny_onednn.sources()
    del files["cpu/cpu_matmul_list.cpp"]
    needed = needed_sources(files, ASKED)
    assert needed.reason == "this oneDNN is laid out in another way: no matmul"
    assert len(needed.sources) == needed.total == 6
    del files["cpu/cpu_engine.cpp"]
    assert needed_sources(files, ASKED).reason == "this oneDNN is laid out in another way: no cpu/cpu_engine.cpp"
