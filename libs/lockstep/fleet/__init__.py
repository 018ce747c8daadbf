"""The fleet as all facts together show it: mirror, pairing, holds, drained."""
