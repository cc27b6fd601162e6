"""Keys of shards, chosen so that Spark spreads the shards of a large cluster evenly.

Spark chooses a key's partition by its hash, which is uneven for few keys: 32 shards on two
partitions would be 22 and 10. So a shard's key is not its number, but another number whose hash
leads to the wanted partition.
"""

from __future__ import annotations

from functools import lru_cache

SEED = 42
"""Seed of Spark's hash partitioning."""

_WORD = 0xFFFFFFFF


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _WORD


def _mix(state: int, word: int) -> int:
    word = _rotate(word * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    return (_rotate(state ^ word, 13) * 5 + 0xE6546B64) & _WORD


def _finish(state: int, length: int) -> int:
    state ^= length
    state = (state ^ (state >> 16)) * 0x85EBCA6B & _WORD
    state = (state ^ (state >> 13)) * 0xC2B2AE35 & _WORD
    return state ^ (state >> 16)


def _text_hash(text: str) -> int:
    """Return Spark's `hash(text)` as an unsigned number.

    It is Murmur3 x86 32, except that the last bytes are mixed one by one, as signed numbers.
    """
    data, state = text.encode(), SEED
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        state = _mix(state, int.from_bytes(data[at : at + 4], "little"))
    for byte in data[whole:]:
        state = _mix(state, (byte - 256 if byte > 127 else byte) & _WORD)
    return _finish(state, len(data))


def _modulo(unsigned: int, partitions: int) -> int:
    """Return the hash, taken as a signed number, modulo `partitions`; never negative."""
    signed = unsigned - (1 << 32) if unsigned >> 31 else unsigned
    return signed % partitions


@lru_cache(maxsize=1 << 17)
def partition(cluster: str, slot: int, partitions: int) -> int:
    """Return the partition into which Spark puts a shard's key, by its `hash(cluster, slot)`."""
    return _modulo(_finish(_mix(_text_hash(cluster), slot), 4), partitions)


@lru_cache(maxsize=1 << 17)
def deciding_task(cluster: str, tasks: int) -> int:
    """Return the task to which Spark brings all shards of a cluster, by its `hash(cluster)`."""
    return _modulo(_text_hash(cluster), tasks)


@lru_cache(maxsize=1 << 17)
def slots_of(cluster: str, shards: int, partitions: int) -> tuple[int, ...]:
    """Return the key of each shard: shard s goes to partition s modulo `partitions`.

    The only shard of a small cluster has key 0, and goes to any partition.
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
