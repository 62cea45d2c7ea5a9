from tests.components.bookkeeper import bookkeeper  # noqa: F401
from tests.components.zookeeper import zookeeper_server  # noqa: F401
