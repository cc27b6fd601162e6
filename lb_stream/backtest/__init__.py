"""Back-tests: what other policies would have done with what clusters have carried. docs/backtest.md."""
