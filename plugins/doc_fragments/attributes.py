# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """What every module of the collection declares about check mode, diff and repetition."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
    support: full
  diff_mode:
    description: Returns details on what has changed (or possibly needs changing in C(check_mode)), when in diff mode.
    support: full
  idempotent:
    description: When run twice in a row with the same arguments, the second run changes nothing.
    support: full
"""

    INFO = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying the target.
    support: full
    details:
      - This module only gathers and changes nothing.
  diff_mode:
    description: Returns details on what has changed (or possibly needs changing in C(check_mode)), when in diff mode.
    support: N/A
    details:
      - This module only gathers and changes nothing.
  idempotent:
    description: When run twice in a row with the same arguments, the second run changes nothing.
    support: full
    details:
      - This module only gathers and changes nothing.
"""
