"""Who uses the console: users and their roles, logins, and what a request says of who sends it."""
