"""What the drain service decides about one worker."""

import msgspec

from lockstep.contracts.events import Event
from lockstep.contracts.facts import Desired


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The new desired state, and what happened on the way to it."""

    desired: Desired
    events: list[Event] = []
