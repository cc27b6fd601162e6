"""Tables of a run in mode approve: proposals that wait, are approved, are rejected."""

from pathlib import Path
from typing import Any

from lb_stream.contracts.commands import COMMANDS
from lb_stream.core.commands.responder import Received
from lb_stream.query.lake import open_lake
from lb_stream.query.present.proposals import load_ended_proposals, load_waiting_proposals
from lb_stream.store import Store
from tests.support.recorded_tables import Recorder, record

BY = "User:ann"
HOUR_MS = 3_600_000


def say(made: Recorder, kind: str, **fields: Any) -> None:
    """Have a command come with the next round."""
    loop = made.loop
    loop.commands.append(
        Received.from_command(
            COMMANDS[kind](id=f"{kind}-{loop.now_ms}", by=BY, **fields), loop.now_ms
        )
    )


def ids(made: Recorder) -> list[str]:
    return [proposal.proposal_id for proposal in made.loop.memory.proposals]


def record_proposals(folder: Path) -> Recorder:
    """Return a run in which one proposal is approved and one rejected, while the others wait."""
    made = record(folder, 12, settings={"mode": "approve"})
    first, second, *_ = ids(made)
    say(made, "approve-proposals", proposals=[first])
    say(made, "reject-proposals", proposals=[second], why="its topics go tonight", for_ms=HOUR_MS)
    made.run(6)
    return made


def told(played: Recorder) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What waits, and what does no more."""
    with open_lake(Store.at(played.root)) as lake:
        return load_waiting_proposals(lake), load_ended_proposals(lake, "demo", 10)
