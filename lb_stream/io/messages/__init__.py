"""What people are told: lines without secrets and without what a terminal would obey, and what each exception means."""
