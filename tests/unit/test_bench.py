# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bench: what a caller's settings become on a host, where the image comes from, what the suite runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.lib import caller, guards, image, sanity, suite, venvs

WHEELS = [
    "torch-2.9.1+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
    "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
    "torch-2.14.0+cpu-cp313-cp313-manylinux_2_28_x86_64.whl",
    "torch-2.14.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    "torchvision-0.99.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
    "torch-2.13.1+cpu-cp311-cp311-manylinux_2_28_aarch64.whl",
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "ca.pem").write_text("certificate", encoding="ascii")
    return tmp_path


def read(home: Path, text: str = "", **environ: str) -> caller.Caller:
    file = home / "pip.conf"
    file.write_text(text, encoding="utf-8")
    return caller.read_caller({"HOME": str(home), **environ}, [file])


def test_a_caller_without_settings_gives_a_host_nothing(home: Path) -> None:
    settings = read(home)
    assert settings == caller.Caller()
    assert caller.mounts(settings) == []
    assert caller.host_variables(settings, "3.11", "x86_64") == {}


def test_the_pip_configuration_reaches_the_host(home: Path) -> None:
    (home / "wheels" / WHEELS[1]).touch()
    settings = read(
        home,
        f"[global]\nindex-url = https://index.example/simple\nextra-index-url = https://more.example/simple\n"
        f"    file:///srv/local\nfind-links = {home}/wheels\ncert = {home}/ca.pem\ntimeout = 99\n",
        https_proxy="http://proxy.example:3128",
    )
    assert caller.mounts(settings) == [
        f"{home}/wheels:/srv/wheels:ro",
        f"{home}/ca.pem:/srv/ca-certificates.crt:ro",
    ]
    variables = caller.host_variables(settings, "3.11", "x86_64")
    environment = variables.pop("vllm_environment")
    assert variables == {"torch_cpu_find_links": "/srv/wheels", "torch_cpu_version": "2.13.0+cpu"}
    certificates = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
    assert environment == {
        **dict.fromkeys(certificates, "/srv/ca-certificates.crt"),
        "PIP_INDEX_URL": "https://index.example/simple",
        "UV_DEFAULT_INDEX": "https://index.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://more.example/simple",
        "UV_INDEX": "https://more.example/simple",
        "PIP_DEFAULT_TIMEOUT": "99",
        "UV_HTTP_TIMEOUT": "99",
        "https_proxy": "http://proxy.example:3128",
        "HTTPS_PROXY": "http://proxy.example:3128",
    }


def test_variables_win_over_the_file_and_uv_over_pip(home: Path) -> None:
    text = f"[global]\nindex-url = https://file.example/\n[install]\nfind-links = {home}/none\n"
    assert read(home, text, PIP_INDEX_URL="https://pip.example/").index == "https://pip.example/"
    both = read(home, text, PIP_INDEX_URL="https://pip.example/", UV_DEFAULT_INDEX="https://uv.example/")
    assert both.index == "https://uv.example/"
    assert read(home, text, PIP_FIND_LINKS=f"{home}/wheels").wheels == f"{home}/wheels"
    assert read(home, text).wheels == ""


def test_the_uv_configuration_is_read(home: Path) -> None:
    file = home / "uv.toml"
    file.write_text(
        f'find-links = ["{home}/wheels"]\n[[index]]\nurl = "https://extra.example/"\n'
        '[[index]]\nurl = "https://main.example/"\ndefault = true\n',
        encoding="utf-8",
    )
    settings = read(home, UV_CONFIG_FILE=str(file))
    assert (settings.index, settings.extra_indexes) == ("https://main.example/", ("https://extra.example/",))
    assert settings.wheels == f"{home}/wheels"


@pytest.mark.parametrize(
    ("python", "machine", "version"),
    [
        ("3.11", "x86_64", "2.13.0+cpu"),
        ("3.13", "x86_64", "2.14.0+cpu"),
        ("3.11", "aarch64", "2.13.1+cpu"),
        ("3.10", "x86_64", ""),
    ],
)
def test_the_newest_cpu_torch_that_fits_is_taken(python: str, machine: str, version: str) -> None:
    assert caller.torch_wheel(WHEELS, python, machine) == version


def test_torch_comes_from_the_wheel_folder_or_from_its_own_index(home: Path) -> None:
    assert venvs.torch_install(caller.Caller(), "3.11", "x86_64") == ["--default-index", venvs.TORCH_INDEX, "torch"]
    (home / "wheels" / WHEELS[1]).touch()
    settings = caller.Caller(wheels=f"{home}/wheels")
    assert venvs.torch_install(settings, "3.11", "x86_64") == ["--find-links", f"{home}/wheels", "torch==2.13.0+cpu"]
    assert venvs.torch_install(settings, "3.12", "x86_64")[-1] == "torch"


TARGETS = """http://mirror.example/debian/ bookworm main Debian
http://mirror.example/debian/ bookworm-updates main Debian
http://mirror.example/debian-security/ bookworm-security main Debian
https://other.example/node/ nodistro main Node
http://ubuntu.example/ubuntu/ jammy main Ubuntu
"""


@pytest.mark.parametrize("suite_name", ["bookworm", "trixie"])
def test_a_bootstrap_takes_the_archive_of_the_caller(suite_name: str) -> None:
    assert image.apt_sources(suite_name, TARGETS) == [
        f"deb http://mirror.example/debian/ {suite_name} main",
        f"deb http://mirror.example/debian/ {suite_name}-updates main",
        f"deb http://mirror.example/debian-security/ {suite_name}-security main",
    ]


def test_a_caller_without_debian_leaves_the_archive_to_the_tool() -> None:
    assert image.apt_sources("bookworm", TARGETS.splitlines()[-1]) == []


def test_apt_settings_that_a_host_needs_too_are_copied() -> None:
    known = {"Acquire::http::Proxy": "http://proxy.example:3128"}
    assert image.apt_options(lambda name: known.get(name, "")) == ['Acquire::http::Proxy "http://proxy.example:3128";']


def test_the_bare_host_has_nothing_that_the_roles_bring() -> None:
    brought = ("gcc", "g++", "build-essential", "cmake", "ninja-build", "libnuma-dev", "python3-dev", "python3-pip")
    assert not set(image.PACKAGES) & set(brought)


@pytest.mark.parametrize(
    ("line", "problems"),
    [
        ("index = https://" + ".".join(("pypi", "org")) + "/simple", 1),
        ("uri " + ".".join(("deb", "debian", "org")) + "/debian", 1),
        ("cd /here/checkout/x", 1),
        ("cd /here/checkouts/x", 0),
        ("https://download.pytorch.org/whl/cpu", 0),
        ("pypi is an index", 0),
    ],
)
def test_the_guards_see_what_may_not_be_committed(line: str, problems: int) -> None:
    assert len(list(guards.problems_in("file", f"first\n{line}\n", ["/here/checkout"]))) == problems


def test_the_guards_see_files_that_are_not_added_yet_and_linked_folders(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "new").write_text("x = '" + ".".join(("pypi", "org")) + "'\n", encoding="ascii")
    assert [problem.split(":")[0] for problem in guards.check(tmp_path)] == ["link", "new"]


@pytest.mark.parametrize(
    ("lines", "closing"),
    [
        (["3 passed, 1 skipped in 0.92s", "== 2 passed, 1 failed in 1.0s =="], "5 passed, 1 failed, 1 skipped"),
        (["  \x1b[2m|\x1b[0m === 1 passed in 0.92s"], "1 passed, 0 failed"),
        (["1 error in 0.5s", "135 passed, 342 deselected in 105.92s (0:01:45)"], "135 passed, 1 failed"),
        (["host : ok=3 changed=1 failed=0", "12 passed the gate"], "0 passed, 0 failed"),
    ],
)
def test_the_closing_line_adds_up_what_pytest_counted(lines: list[str], closing: str) -> None:
    counter = suite.Counter()
    for line in lines:
        counter.read(line)
    assert counter.line() == closing


def names(*words: str, full: bool = False) -> list[str]:
    everything = [suite.Tier("lint", int), suite.Tier("molecule:a", int), suite.Tier("sanity", int, full=True)]
    return [tier.name for tier in suite.selected(everything, list(words), full)]


def test_what_needs_hosts_has_the_models_made_before() -> None:
    tiers = [tier.name for tier in suite.selected(suite.tiers(), ["molecule:toolchain", "lint"], full=False)]
    assert tiers == ["lint", "models", "molecule:toolchain"]
    assert [tier.name for tier in suite.selected(suite.tiers(), ["unit"], full=False)] == ["unit"]


def test_tiers_are_selected_by_name() -> None:
    assert names() == ["lint", "molecule:a"]
    assert names(full=True) == ["lint", "molecule:a", "sanity"]
    assert names("molecule") == names("molecule:a") == ["molecule:a"]
    with pytest.raises(SystemExit, match=r"^test: no tier is called unti\. Known are: lint, molecule, "):
        names("unti")


def test_the_suite_stops_at_the_first_red_tier(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[str] = []

    def red() -> None:
        raise suite.RedError("step ended with status 3")

    chosen = [
        suite.Tier("a", lambda: done.append("a")),
        suite.Tier("b", red),
        suite.Tier("c", lambda: done.append("c")),
    ]
    results = list(suite.run(chosen))
    assert [(name, result) for name, _seconds, result in results] == [("a", "green"), ("b", "red")]
    assert done == ["a"]
    suite.report(results, chosen)
    printed = capsys.readouterr().out
    assert "test: b is red: step ended with status 3" in printed
    assert "not run" in printed


def test_ansible_test_is_offered_a_pip_script_for_each_version_that_it_names(tmp_path: Path) -> None:
    source = tmp_path / "venv/lib/python3.11/site-packages/ansible_test/_internal/python_requirements.py"
    source.parent.mkdir(parents=True)
    source.write_text("        pip='24.2',\n    default = dict(\n        pip='20.3.4',\n", encoding="ascii")
    sanity.offer_get_pip(tmp_path / "venv", tmp_path / "cache")
    assert sorted(file.name for file in (tmp_path / "cache").iterdir()) == ["get_pip_20_3_4.py", "get_pip_24_2.py"]
