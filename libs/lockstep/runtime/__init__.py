"""How a service runs: settings, telemetry, health, ports, start and stop."""
