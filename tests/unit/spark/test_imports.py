"""Spark starts a Python process for each call on the driver, so what the connector imports is paid in every batch."""

from __future__ import annotations

import subprocess
import sys


def test_connector_imports_no_pandas():
    code = "import sys, sarit.spark.data_source; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
