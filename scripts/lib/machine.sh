#!/usr/bin/env bash
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Install what scripts/demo and scripts/test need of a fresh Debian or Ubuntu machine: Python with venv, git, the
# Docker engine, mmdebstrap. Does nothing where it is all there. Needs root or sudo, and else says what is missing.
set -euo pipefail

wanted=()
has() { command -v "$1" >/dev/null 2>&1; }

if ! has "${PYTHON:-python3}"; then
  wanted+=(python3 python3-venv)
elif ! "${PYTHON:-python3}" -c 'import venv, ensurepip' 2>/dev/null; then
  wanted+=(python3-venv)
fi
if ! has git; then wanted+=(git); fi
# A daemon elsewhere will do (DOCKER_HOST); without one, the engine has to be here.
if ! { has docker && docker info >/dev/null 2>&1; }; then
  if ! has dockerd; then wanted+=(docker.io); fi
fi
# Images from a registry need no bootstrap; ours does, unless it is there already.
image=${CPUFLEET_IMAGE:-cpufleet/debian:12}
case $image in
  cpufleet/debian:*)
    if ! has mmdebstrap && ! docker image inspect "$image" >/dev/null 2>&1; then
      wanted+=(mmdebstrap debian-archive-keyring)
    fi
    ;;
esac

if [ ${#wanted[@]} -eq 0 ] && has docker; then exit 0; fi

root=()
if [ "$(id -u)" -ne 0 ]; then
  if has sudo && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    root=(sudo)
  else
    echo "machine: not root and no sudo; run as root, or have root install: ${wanted[*]:-docker-cli}" >&2
    exit 1
  fi
fi
if ! has apt-get; then
  echo "machine: this is no Debian or Ubuntu; install what corresponds to: ${wanted[*]}" >&2
  exit 1
fi

install() {
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a \
    apt-get install --yes --quiet --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "machine: installing ${wanted[*]:-docker-cli} (a minute)"
if ! {
  "${root[@]}" apt-get update --quiet -o DPkg::Lock::Timeout=300
  if [ ${#wanted[@]} -gt 0 ]; then install "${wanted[@]}"; fi
  # Debian 13 has the client in a package of its own.
  hash -r
  if ! has docker; then install docker-cli; fi
} >"$log" 2>&1; then
  cat "$log" >&2
  echo "machine: apt could not install ${wanted[*]:-docker-cli}; its words stand above" >&2
  exit 1
fi
