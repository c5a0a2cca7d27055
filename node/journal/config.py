"""The settings of a journal. The reasons for the defaults stand in `limits.py`."""

from __future__ import annotations

from dataclasses import dataclass

from node.journal import limits


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """The settings of one journal, in bytes, but for `open_segments`, which counts files."""

    segment_bytes: int = limits.SEGMENT_BYTES
    preallocation_bytes: int = limits.PREALLOCATION_BYTES
    command_bytes: int = limits.COMMAND_BYTES_MAX
    cache_bytes: int = limits.CACHE_BYTES
    replay_chunk_bytes: int = limits.REPLAY_CHUNK_BYTES
    open_segments: int = limits.OPEN_SEGMENTS_MAX

    def __post_init__(self) -> None:
        if not limits.SEGMENT_BYTES_MIN <= self.segment_bytes <= limits.SEGMENT_BYTES_MAX:
            raise ValueError(
                f"segment_bytes must be {limits.SEGMENT_BYTES_MIN} to {limits.SEGMENT_BYTES_MAX}, "
                f"not {self.segment_bytes}"
            )
        if not 1 <= self.command_bytes <= limits.COMMAND_BYTES_MAX:
            raise ValueError(
                f"command_bytes must be 1 to {limits.COMMAND_BYTES_MAX}, not {self.command_bytes}"
            )
        if self.preallocation_bytes < 0:
            raise ValueError(
                f"preallocation_bytes must be 0 or more, not {self.preallocation_bytes}"
            )
        if self.cache_bytes < 0 or self.replay_chunk_bytes < 1:
            raise ValueError(
                "cache_bytes must be 0 or more and replay_chunk_bytes 1 or more, "
                f"not {self.cache_bytes} and {self.replay_chunk_bytes}"
            )
        if self.open_segments < 2:
            raise ValueError(
                "open_segments must be 2 or more, one to write and one to read, "
                f"not {self.open_segments}"
            )
