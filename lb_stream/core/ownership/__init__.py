"""Who owns which bundle: the records, the states that they go through, and a topic's broker by them."""
