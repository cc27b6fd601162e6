"""What a scenario is, how it is read, checked, made and written. Format: docs/simulation.md."""
