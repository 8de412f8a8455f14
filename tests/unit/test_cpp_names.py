# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of a C++ file at namespace scope."""

from __future__ import annotations

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._cpp_names import included, read_names

TEXT = r"""
#include "a/b.hpp"
#  include "c.h"
#include <vector>
#define BRACE {
/* int commented() {} */ // void too() {}
namespace dnnl { namespace impl {
namespace cpu::x64 {
namespace { int inner() { return 1; } }
static int own(int n) { return n; }
using namespace data_type;
const char *text = "} { ;";
extern const int table[4];
int function(int n) { if (n) { return 0; } return 1; }
int promised(const std::vector<int> &list);
template <typename T> struct described_t : public base_t<T> { void member(); };
struct forward_t;
template <cpu_isa_t isa> status_t kernel_t<isa>::pd_t::init(engine_t *engine) { return 0; }
outer_t::outer_t(int n) : base_t(n), list_ {n} {}
template struct made_t<avx2>;
template status_t instance<avx2>(int);
int outer_t::shared = 3;
} // x64
} }
extern "C" { int entry(int kind) { return kind; } }
"""
SPACE = "dnnl::impl::cpu::x64"


def test_names_of_a_file() -> None:
    names = read_names(TEXT)
    assert names.whole
    assert names.owners == {"kernel_t", "pd_t", "outer_t", "made_t"}
    assert names.defined == {(SPACE, "text"), (SPACE, "function"), (SPACE, "instance"), ("", "entry")}
    assert names.declared == {(SPACE, "table"), (SPACE, "promised")}
    assert names.classes == {"described_t"}
    assert included(TEXT) == ["a/b.hpp", "c.h"]


@pytest.mark.parametrize("text", ["void f() {", "namespace a { int b;", "} int c;"])
def test_braces_that_do_not_pair(text: str) -> None:
    assert not read_names(text).whole
