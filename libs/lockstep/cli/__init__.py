"""The `lockstep` command: what people see of the fleet and what they ask of it. `main` is where to start."""
