"""What several contract suites need."""

import pytest

from tests.components.hdfs import hdfs  # noqa: F401
from tests.contract.s3 import s3_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    """A running S3 server with a bucket."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server
