"""Errors of HDFS that an operator can mend say how; the texts are like those of a name node."""

import pytest

from sarit.core.errors import Exists, NotFound, Unavailable
from sarit.storage.hdfs import map_error

SAFE = "RPC error: org.apache.hadoop.hdfs.server.namenode.SafeModeException: Cannot create. Name node is in safe mode."
DENIED = (
    'RPC error: org.apache.hadoop.security.AccessControlException: Permission denied: user=a, inode="/":b:c:drwxr-xr-x'
)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            RuntimeError(SAFE),
            Unavailable,
            "write x: HDFS is in safe mode, which takes no writes: wait until it has left",
        ),
        (
            RuntimeError(DENIED),
            Unavailable,
            "write x: HDFS refuses that: may this user (HADOOP_USER_NAME) write to the",
        ),
        (RuntimeError("no route\nat java"), Unavailable, "write x: no route"),
        (FileNotFoundError("gone"), NotFound, "write x: gone"),
        (FileExistsError("there"), Exists, "write x: there"),
    ],
)
def test_error_of_hdfs_has_its_kind_and_says_what_to_do(error, kind, message):
    found = map_error(error, "write x")
    assert type(found) is kind
    assert str(found).startswith(message)
    assert "\n" not in str(found)
