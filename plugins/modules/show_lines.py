#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: show_lines
short_description: Print lines as they are
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Prints lines on the controller's terminal, whatever the output callback makes of results.
    A table stays a table, neither wrapped nor escaped.
  - Runs on the controller only.
extends_documentation_fragment:
  - cpufleet.vllm.attributes.info
options:
  lines:
    description: The lines.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Show two lines
  cpufleet.vllm.show_lines:
    lines:
      - host  minutes
      - web1        6
"""

RETURN = r"""
shown:
  description: How many lines were printed.
  returned: always
  type: int
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Check the arguments; the action plugin of the same name prints on the controller before this is reached."""
    module = AnsibleModule(
        argument_spec={"lines": {"type": "list", "elements": "str", "required": True}}, supports_check_mode=True
    )
    module.exit_json(changed=False, shown=len(module.params["lines"]))


if __name__ == "__main__":
    main()
