"""What all of the core speaks of: the view of a cluster, names, policies, the memory between rounds, refusals, registries."""
