# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SmolLM2-135M-Instruct as the GGUF that an index package carries: ``python -m scripts.lib.smollm2_gguf FOLDER``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from scripts.lib.smollm2 import packaged_gguf

if __name__ == "__main__":
    shutil.copy(packaged_gguf(), Path(sys.argv[1]))
