"""Everything that proves Lockstep: unit, contract and integration tests, the lab, the benchmarks."""
