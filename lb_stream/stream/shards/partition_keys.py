"""Keys for the shards of a large cluster, chosen so that Spark spreads them evenly over its
partitions.

Spark puts a key where its hash says, and a few keys hash unevenly: of 32 shards on two partitions
22 and 10. So a shard's key is not its number but a number that hashes to the partition where it
should go.
"""

from __future__ import annotations

from functools import lru_cache

SEED = 42
"""Of Spark's hash partitioning."""

_WORD = 0xFFFFFFFF


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _WORD


def _mixed(state: int, word: int) -> int:
    word = _rotated(word * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    return (_rotated(state ^ word, 13) * 5 + 0xE6546B64) & _WORD


def _finished(state: int, length: int) -> int:
    state ^= length
    state = (state ^ (state >> 16)) * 0x85EBCA6B & _WORD
    state = (state ^ (state >> 13)) * 0xC2B2AE35 & _WORD
    return state ^ (state >> 16)


def _text_hash(text: str) -> int:
    """What Spark's `hash(text)` gives, without its sign: Murmur3 x86 32, its last bytes one by one
    and signed."""
    data, state = text.encode(), SEED
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        state = _mixed(state, int.from_bytes(data[at : at + 4], "little"))
    for byte in data[whole:]:
        state = _mixed(state, (byte - 256 if byte > 127 else byte) & _WORD)
    return _finished(state, len(data))


def _modulo(found: int, partitions: int) -> int:
    """The hash as a signed number, modulo the number of partitions, never negative."""
    return (found - (1 << 32) if found >> 31 else found) % partitions


@lru_cache(maxsize=1 << 17)
def partition(cluster: str, slot: int, partitions: int) -> int:
    """Where Spark puts a shard's key, by its `hash(cluster, slot)`."""
    return _modulo(_finished(_mixed(_text_hash(cluster), slot), 4), partitions)


@lru_cache(maxsize=1 << 17)
def deciding_task(cluster: str, tasks: int) -> int:
    """Where Spark puts all shards of a cluster, by its `hash(cluster)`."""
    return _modulo(_text_hash(cluster), tasks)


@lru_cache(maxsize=1 << 17)
def slots_of(cluster: str, shards: int, partitions: int) -> tuple[int, ...]:
    """The key of each shard: shard s goes to partition s modulo their number.

    The only shard of a small cluster goes where it may.
    """
    if shards == 1:
        return (0,)
    slots: list[int] = []
    candidate = [0] * partitions  # the next number to try for each partition
    for shard in range(shards):
        wanted = shard % partitions
        while partition(cluster, candidate[wanted], partitions) != wanted:
            candidate[wanted] += 1
        slots.append(candidate[wanted])
        candidate[wanted] += 1
    return tuple(slots)
