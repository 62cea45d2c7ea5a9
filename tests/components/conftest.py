from tests.components.zookeeper import zookeeper_server  # noqa: F401
