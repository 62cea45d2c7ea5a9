"""A cluster that is filled with a backup before its first process starts."""

from __future__ import annotations

from tests.cluster.processes import RunningCluster


class RestoredCluster(RunningCluster):
    """A `RunningCluster` that is restored from a place of backups as soon as it is described."""

    def __init__(self, place, *arguments, **options):
        super().__init__(*arguments, **options)
        self.place = place

    def sarit(self, *arguments, codes=(0,)):
        """As before; after `cluster init` the restore."""
        output = super().sarit(*arguments, codes=codes)
        if arguments[:2] == ("cluster", "init"):
            self.restore()
        return output

    def restore(self):
        """Fill it."""
        work = str(self.directory / "work")
        super().sarit("restore", str(self.place), "--cluster", self.url, "--work", work)
