"""All parts of the balancer for a Pulsar cluster, run by one command."""
