"""The words that services exchange: facts, events, Holds, subjects, streams. msgspec only."""
