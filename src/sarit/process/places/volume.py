"""What a node may expect of the volume of its data directory: the size of its log files, and space for a new node."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.storage.open import directory_of_storage
from sarit.store.flow_control.free_space import log_file_bytes, require_space

if TYPE_CHECKING:
    from sarit.env.ports import Files
    from sarit.process.settings import NodeConfig


def fit_to_volume(config: NodeConfig, files: Files) -> NodeConfig:
    """This configuration with log files that fit its volume.  Nothing is written.

    Raises Invalid when DATA is new, and its volume has no space for a node.  A node that has data starts on a full
    disk, too: it deletes what its clients delete.  Raises OSError."""
    directory = config.data_dir
    while not files.exists(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    limits, containers = config.limits, config.containers
    size = min(limits.log_file_bytes, log_file_bytes(files.volume_bytes(directory), containers))
    if not files.exists(f"{config.data_dir}/meta"):
        require_space(config.data_dir, files.free_bytes(directory), containers, size, limits.disk_reserve_bytes)
    return replace(config, limits=replace(limits, log_file_bytes=size))


def storage_directory(config: NodeConfig) -> str | None:
    """Return the directory of long-term storage, when it is not below DATA, whose disk is watched anyway."""
    directory = None if config.storage_url is None else directory_of_storage(config.storage_url)
    return None if directory is None or f"{directory}/".startswith(f"{config.data_dir}/") else directory
