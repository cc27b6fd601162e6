"""What a trace is worth: imbalance, balance, moves, cost, rules, thrash. Definitions: docs/simulation.md."""
