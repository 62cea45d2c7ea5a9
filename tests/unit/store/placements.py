"""A placement of containers whose reports a test records."""


class RecordedPlacement:
    """Gives all containers to the store, whose lease runs for ever, unless a test says otherwise."""

    def __init__(self, *, mine=True, valid=True, released=None):
        self.mine, self.runs = mine, valid
        self.releases, self.fences = [], []
        self.on_released = released or self.releases.append  # its result is the store's answer

    def is_mine(self, number):
        return self.mine

    def valid(self):
        return self.runs

    def fenced(self, number, version):
        self.fences.append((number, version))

    def released(self, number):
        return self.on_released(number)

    def opening_changed(self):
        pass
