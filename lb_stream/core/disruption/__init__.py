"""What operators let moves cost the clients of namespaces. It holds for balancing, whatever the strategy; drains and failovers are free."""
