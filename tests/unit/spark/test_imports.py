"""Spark starts a Python process for each call on the driver, so what the connector imports is paid in every batch."""

from __future__ import annotations

import subprocess
import sys


def test_connector_imports_no_pandas():
    code = "import sys, sarit.spark.data_source; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_connector_imports_no_registry_where_there_is_none():
    code = "import sys, sarit.spark.data_source; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = ("sarit.serializers", "sarit.schemas.protobuf", "sarit.schemas.json_columns", "sarit.env.https")
    assert [one for one in done.stdout.split() if one.startswith(rooms)] == []
