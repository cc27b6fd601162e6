"""Plays a scenario: brokers report, the balancer decides, brokers obey, loads follow."""
