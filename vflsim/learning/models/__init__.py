"""The networks of the parties: one per client, one for the server, and how they are built."""
