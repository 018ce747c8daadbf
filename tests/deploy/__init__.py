"""Writes what the Helm chart takes from the source: files, rights, users, the values' schema and reference."""
