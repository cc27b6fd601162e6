"""`lbctl backtest`."""
