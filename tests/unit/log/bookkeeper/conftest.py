"""Property tests have no deadline: the machine may be busy."""

from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
