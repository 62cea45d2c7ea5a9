"""Which Python the workers of a session are."""

from __future__ import annotations

import os
import sys

import pytest

from sarit.spark.sessions import choose_python, name_environment, session


def environment(**more):
    return {"PATH": os.environ["PATH"], **more}


def script(directory, name, text):
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_workers_are_this_python_unless_another_is_named():
    chosen = environment()
    choose_python(chosen)
    assert chosen["PYSPARK_PYTHON"] == sys.executable
    assert "PYSPARK_DRIVER_PYTHON" not in chosen


def test_named_python_with_sarit_stays(tmp_path):
    other = script(tmp_path, "python", f'exec {sys.executable} "$@"')
    chosen = environment(PYSPARK_PYTHON=other, PYSPARK_DRIVER_PYTHON=other)
    choose_python(chosen)
    assert (chosen["PYSPARK_PYTHON"], chosen["PYSPARK_DRIVER_PYTHON"]) == (other, other)


@pytest.mark.parametrize("end", ["echo 'ImportError: no sarit' >&2; exit 1", None])
def test_named_python_without_sarit_is_refused_with_advice(tmp_path, end):
    other = script(tmp_path, "python", end) if end else str(tmp_path / "absent")
    with pytest.raises(ImportError, match=f"PYSPARK_PYTHON is {other}.*(no sarit|No such file).*{sys.executable}"):
        choose_python(environment(PYSPARK_PYTHON=other))


def test_notebook_named_as_python_of_the_driver_is_replaced(tmp_path):
    jupyter = script(tmp_path, "jupyter", "exit 1")
    chosen = environment(PYSPARK_DRIVER_PYTHON=jupyter)
    choose_python(chosen)
    assert chosen["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_master_and_remote_exclude_each_other():
    with pytest.raises(ValueError, match="not both"):
        session(master="local[1]", remote="sc://127.0.0.1")


def test_session_without_the_inner_interface_of_spark_stays_as_it_is(caplog):
    with caplog.at_level("DEBUG", "sarit.spark"):
        name_environment(object())
    assert "no names yet" in caplog.text


def test_session_of_a_jvm_that_does_not_find_sarit_is_named(caplog):
    class Earlier:
        @property
        def _jsparkSession(self):  # Spark's name
            raise ValueError("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: sarit.")

    name_environment(Earlier())
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "an earlier session with another Python" in record.message
    assert "set PYSPARK_PYTHON to that Python before Spark starts" in record.message
