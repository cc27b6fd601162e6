"""Commands to the running balancer."""
